//! The best `PYTORCH_CUDA_ALLOC_CONF` for a trace, by trying.
//!
//! PyTorch has few options, and a run takes some milliseconds: all combinations of a coarse grid are run, and then,
//! from the best of them, each option by itself over finer values, until none improves on it:
//!
//! ```text
//!   expandable_segments        -  True
//!   max_split_size_mb          -  32  64  128  256  512  1024  ...            every combination,
//!   roundup_power2_divisions   -  2  4  8  16  [256:1,512:2,1024:4,>:8]       then one at a time
//!   large_segment_size_mb      -  32  64  128                  (2.11)
//!   max_non_split_rounding_mb  -  64  256  1024                (2.6; matters only with max_split_size_mb)
//!   garbage_collection_threshold  -  0.6  0.8                  (acts only under a memory fraction)
//! ```
//!
//! What is best is a judgement, made in `pick`: first to get through; then to hold little memory, where one per cent of
//! the run's time spent in the driver weighs as much as one per cent of memory, up to five per cent, and each option
//! that is set must save what it is worth. Where a device is given, memory is there to be used, and only time and
//! options weigh. Of settings with as many options, none is taken that another beats in memory, retries and time.
//! More options beat fewer only if they retry less, or if each of them saves what it is worth. Nothing is taken that
//! reserves more than PyTorch's defaults.

mod data;
mod knobs;
pub mod show;

pub use data::{Tried, Tuned, Tuning, Untuned};
pub(crate) use knobs::single_settings;

use rayon::prelude::*;

use crate::alloc_conf::{AllocConf, TorchVersion};
use crate::allocator::{Choice, Options, find};
use crate::device::{AddressPolicy, Profile};
use crate::sim::{Conf, FileError, Memory, Opened, Setup, run_one};
use knobs::{COLLECTION, KNOBS, Knob};

/// Rounds of the finer search at most; two are usual.
const MOST_ROUNDS: usize = 8;

/// What to tune for.
#[derive(Debug, Clone)]
pub struct TuneOptions {
    /// The PyTorch that is to run; its memory, settings and profile are those of the other fields.
    pub setup: Setup,
    /// The device.
    pub memory: Memory,
    /// What its driver's calls cost.
    pub profile: Profile,
    /// Memory that an option must save to be worth setting, as a share.
    pub worth: f64,
}

/// A value for some knobs, in their order; `None`: left out.
type Turned = Vec<Option<&'static str>>;

/// Searches the settings for one trace, over all cores.
///
/// # Errors
/// If a run comes to no result. Running out of memory is a result.
pub fn tune(opened: &Opened, options: &TuneOptions) -> Result<Tuning, FileError> {
    let bench = Bench::new(opened, options);
    let mut tried = bench.try_all(&bench.grid())?;
    let default = tried.first().cloned().unwrap_or_default();
    let is_scarce = bench.setup.memory(opened).is_some();
    let weights = Weights { is_scarce, worth: options.worth };
    let mut best = pick(&tried, &default, &weights).clone();
    for _ in 0..MOST_ROUNDS {
        tried.extend(bench.try_all(&bench.changes_of(&best.conf, true))?);
        let next = pick(&tried, &default, &weights).clone();
        if next.conf == best.conf {
            break;
        }
        best = next;
    }
    tried.sort_by(|a, b| a.conf.cmp(&b.conf));
    tried.dedup_by(|a, b| a.conf == b.conf);
    Ok(Tuning {
        file: opened.file.clone(),
        coverage: opened.coverage.clone(),
        device_memory_bytes: bench.setup.memory(opened),
        profile: options.profile.name.clone(),
        variable: bench.version.alloc_conf_name(),
        recorded: bench.recorded()?,
        alone: bench.try_all(&bench.changes_of("", false))?,
        beside_best: bench.try_all(&bench.changes_of(&best.conf, false))?,
        default,
        best,
        tried,
    })
}

/// Driver time weighs at most as much as this share of memory, however short the recorded program ran.
const MOST_TIME: f64 = 0.05;

/// The setting to take of those that were tried, of which the first is PyTorch's defaults: no other makes it pointless,
/// it reserves no more than they do, and it is better than they are. Otherwise they stay.
fn pick<'t>(tried: &'t [Tried], default: &'t Tried, options: &Weights) -> &'t Tried {
    let least_ooms = tried.iter().map(|tried| tried.oom_count).min().unwrap_or(0);
    let runs = || tried.iter().filter(|tried| tried.oom_count == least_ooms);
    // Where the defaults run out, what they reserve is no measure.
    let most = match default.oom_count == least_ooms {
        true => default.reserved_peak_bytes,
        false => u64::MAX,
    };
    let is_choice = |one: &&Tried| {
        one.reserved_peak_bytes <= most && !runs().any(|other| makes_pointless(other, one))
    };
    let best = runs().filter(is_choice).min_by(|a, b| {
        let by_weight = options.of(a).total_cmp(&options.of(b));
        by_weight.then_with(|| a.reserved_peak_bytes.cmp(&b.reserved_peak_bytes))
    });
    let is_better = |best: &&Tried| {
        best.oom_count < default.oom_count || options.of(best) < options.of(default)
    };
    best.filter(is_better).unwrap_or(default)
}

/// Whether `other` beats `one` without more options, or with fewer retries. What more options save otherwise has to be
/// worth them, which [`Weights`] judge.
fn makes_pointless(other: &Tried, one: &Tried) -> bool {
    let is_as_simple = other.options().len() <= one.options().len();
    other.beats(one) && (is_as_simple || other.alloc_retries < one.alloc_retries)
}

/// What a setting is judged by.
#[derive(Debug, Clone, Copy)]
struct Weights {
    /// Whether the device is given: then memory is there to be used.
    is_scarce: bool,
    /// Memory that an option must save, as a share.
    worth: f64,
}

impl Weights {
    fn of(&self, tried: &Tried) -> f64 {
        let memory = if self.is_scarce { 1.0 } else { tried.reserved_peak_bytes as f64 };
        let time = tried.predicted_driver_share.unwrap_or(0.0).min(MOST_TIME);
        memory * (1.0 + time + self.worth * tried.options().len() as f64)
    }
}

/// Where settings are tried.
struct Bench<'a> {
    opened: &'a Opened,
    setup: Setup,
    /// The PyTorch that is to run.
    version: TorchVersion,
    knobs: Vec<Knob>,
}

impl<'a> Bench<'a> {
    fn new(opened: &'a Opened, options: &TuneOptions) -> Self {
        let profile = Some(options.profile.clone());
        let setup = Setup {
            memory: options.memory,
            profile,
            conf: None,
            // What was held at the start was reserved under other settings: each pays for its own.
            is_fresh: true,
            ..options.setup.clone()
        };
        let version = setup.version(opened);
        let mut knobs = Vec::from(KNOBS);
        if setup.environment(opened).memory_limit().is_some() {
            knobs.push(COLLECTION);
        }
        Self { opened, setup, version, knobs }
    }

    /// Every combination of the coarse values; the defaults come first.
    fn grid(&self) -> Vec<String> {
        let mut grid: Vec<Turned> = vec![Vec::new()];
        for knob in &self.knobs {
            let values: Vec<_> =
                std::iter::once(None).chain(knob.coarse.iter().copied().map(Some)).collect();
            grid = grid
                .iter()
                .flat_map(|turned| values.iter().map(|&value| [&turned[..], &[value]].concat()))
                .collect();
        }
        grid.iter().filter_map(|turned| self.text(turned)).collect()
    }

    /// The settings that differ from this one in one knob.
    fn changes_of(&self, conf: &str, is_fine: bool) -> Vec<String> {
        let now: Turned = self.knobs.iter().map(|knob| knob.value_in(conf)).collect();
        let mut all = Vec::new();
        for (index, knob) in self.knobs.iter().enumerate() {
            let finer = knob.finer.iter().filter(|_| is_fine);
            let values = knob.coarse.iter().chain(finer).copied().map(Some);
            for value in values.chain([None]).filter(|&value| value != now[index]) {
                let mut turned = now.clone();
                turned[index] = value;
                all.extend(self.text(&turned));
            }
        }
        all
    }

    /// The setting as PyTorch reads it; `None` if this version refuses it.
    fn text(&self, turned: &Turned) -> Option<String> {
        let pairs = self.knobs.iter().zip(turned);
        let texts = pairs.filter_map(|(knob, value)| Some(format!("{}:{}", knob.name, (*value)?)));
        let text = texts.collect::<Vec<_>>().join(",");
        AllocConf::parse(&text, self.version).is_ok().then_some(text)
    }

    fn try_all(&self, confs: &[String]) -> Result<Vec<Tried>, FileError> {
        self.setup.runs.plan(confs.len());
        confs.par_iter().map(|conf| self.try_one(conf)).collect()
    }

    fn try_one(&self, text: &str) -> Result<Tried, FileError> {
        let conf = AllocConf::parse(text, self.version).unwrap_or_default();
        let name = if conf.expandable_segments { "expandable" } else { "caching" };
        let setup = Setup {
            conf: Some(Conf::Known(conf)),
            // All with the same addresses, so that no setting owes anything to them.
            addresses: self.setup.addresses.clone().or(Some(AddressPolicy::Driver)),
            ..self.setup.clone()
        };
        Ok(Tried::new(text, &self.run(name, &setup)?))
    }

    fn recorded(&self) -> Result<Tried, FileError> {
        let conf = self.opened.trace.settings.as_ref().map_or("", |conf| conf.text.as_str());
        self.setup.runs.plan(1);
        // What PyTorch held when the recording began is a part of what was recorded.
        let setup = Setup { is_fresh: false, ..self.setup.clone() };
        Ok(Tried::new(conf, &self.run(self.opened.recorded_by(), &setup)?))
    }

    fn run(&self, name: &str, setup: &Setup) -> Result<crate::run::RunSummary, FileError> {
        let spec = find(name).expect("PyTorch's own allocators are on the list");
        run_one(self.opened, &Choice { spec, options: Options::default() }, setup)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn tried(conf: &str, reserved: u64, share: f64, ooms: u64) -> Tried {
        Tried {
            conf: conf.to_owned(),
            reserved_peak_bytes: reserved,
            predicted_driver_share: Some(share),
            predicted_driver_ns: (share * 1e6) as u64,
            oom_count: ooms,
            ..Tried::default()
        }
    }

    fn options(memory: Memory) -> TuneOptions {
        let profile = Profile::built_in("h200").unwrap();
        TuneOptions { setup: Setup::default(), memory, profile, worth: 0.01 }
    }

    #[test]
    fn an_option_must_save_what_it_is_worth() {
        let all = [
            tried("", 1000, 0.0, 0),
            tried("a_a:1", 995, 0.0, 0),
            tried("b_b:1", 500, 0.0, 0),
            tried("b_b:1,c_c:1", 497, 0.0, 0),
            tried("b_b:1,d_d:1", 450, 0.2, 0),
            tried("e_e:1", 100, 0.0, 1),
        ];
        let weights = Weights { is_scarce: false, worth: 0.01 };
        assert_eq!(pick(&all[..2], &all[0], &weights).conf, "");
        assert_eq!(pick(&all[..3], &all[0], &weights).conf, "b_b:1");
        // The second option saves less than it is worth.
        assert_eq!(pick(&all[..4], &all[0], &weights).conf, "b_b:1");
        // Time weighs no more than five per cent of memory, and who runs out is no choice.
        assert_eq!(pick(&all, &all[0], &weights).conf, "b_b:1,d_d:1");
        // Of as many options the better ones are taken, and retries are worth an option.
        let equal = [all[0].clone(), tried("b_b:1", 500, 0.0, 0), tried("c_c:1", 499, 0.0, 0)];
        assert_eq!(pick(&equal, &all[0], &weights).conf, "c_c:1");
        let retries = Tried { alloc_retries: 2, ..tried("b_b:1", 500, 0.0, 0) };
        let retries = [all[0].clone(), retries, tried("b_b:1,c_c:1", 499, 0.0, 0)];
        assert_eq!(pick(&retries, &all[0], &weights).conf, "b_b:1,c_c:1");
    }

    #[test]
    fn on_a_device_that_runs_out_getting_through_comes_first_and_time_second() {
        let all = [tried("", 50, 0.0, 3), tried("a_a:1", 90, 0.01, 0), tried("b_b:1", 60, 0.03, 0)];
        let weights = Weights { is_scarce: true, worth: 0.01 };
        assert_eq!(pick(&all, &all[0], &weights).conf, "a_a:1");
        assert_eq!(pick(&[], &all[0], &weights).conf, "");
    }

    #[test]
    fn settings_are_made_and_found_again_and_old_versions_know_fewer() {
        let opened = Opened::default();
        let new = Bench::new(&opened, &options(Memory::Unlimited));
        let grid = new.grid();
        // PyTorch refuses segments that are larger than what may be split: of the seven sizes that may be, one falls
        // away with segments of 64 MiB, and another with 128.
        assert_eq!((grid.len(), grid[0].as_str()), (2 * 6 * (7 + 7 + 6 + 5), ""));
        let turned = "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
        assert!(grid.iter().any(|conf| conf == turned));
        assert_eq!(new.knobs[1].value_in(turned), Some("128"));
        assert_eq!(new.knobs[2].value_in(turned), Some("[256:1,512:2,1024:4,>:8]"));
        assert_eq!(new.knobs[0].value_in(turned), None);
        assert!(new.changes_of("", true).iter().any(|conf| conf == "large_segment_size_mb:12"));
        let mut old = options(Memory::Unlimited);
        old.setup.version = "2.5".parse().unwrap();
        let old = Bench::new(&opened, &old).grid();
        assert!(old.iter().all(|conf| !conf.contains("large_segment")) && old.len() == 2 * 7 * 6);
    }

    proptest! {
        #[test]
        fn what_is_taken_is_on_the_front_and_never_above_the_defaults(
            numbers in vec((1_u64..20, 0_u64..3, 0_u64..5, 0_u64..2, 0..4), 1..40),
            is_scarce: bool,
            worth in 0.0..0.1,
        ) {
            type Numbers = (u64, u64, u64, u64, i32);
            let conf = |index: usize, options: i32| {
                let options = 0..options * i32::from(index > 0);
                options.map(|o| format!("o{o}:{index}")).collect::<Vec<_>>().join(",")
            };
            let one = |(index, numbers): (usize, &Numbers)| {
                let &(memory, retries, time, ooms, options) = numbers;
                Tried {
                conf: conf(index, options),
                reserved_peak_bytes: 100 * memory,
                alloc_retries: retries,
                predicted_driver_ns: time,
                predicted_driver_share: Some(time as f64 / 4.0),
                oom_count: ooms,
                ..Tried::default()
                }
            };
            let all: Vec<Tried> = numbers.iter().enumerate().map(one).collect();
            let best = pick(&all, &all[0], &Weights { is_scarce, worth });
            if best != &all[0] {
                prop_assert!(all.iter().all(|other| other.oom_count >= best.oom_count));
                let weights = Weights { is_scarce, worth };
                for other in all.iter().filter(|o| o.oom_count == best.oom_count && o.beats(best)) {
                    // More options alone, and not worth it.
                    prop_assert!(other.options().len() > best.options().len());
                    prop_assert!(other.alloc_retries == best.alloc_retries);
                    prop_assert!(weights.of(other) >= weights.of(best));
                }
                prop_assert!(
                    best.oom_count < all[0].oom_count
                        || best.reserved_peak_bytes <= all[0].reserved_peak_bytes
                );
            }
        }
    }
}
