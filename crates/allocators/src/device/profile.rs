//! Profiles: the cost of driver calls, as a model and as measured.
//!
//! A call on an idle GPU is taken to cost a fixed time, plus a time for each handle, plus a time for each MiB; where
//! one line does not do for handles of all sizes, there are several:
//!
//! ```text
//!   cuMemSetAccess over 3 handles, 12 MiB  =  per_call + 3 x per_handle + 12 x per_mib
//!   cuMemAlloc   up to 1 MiB ──────╱ 48 MiB ───────╱ without end ───────        (small ones share pages)
//! ```
//!
//! `gmlake-replay calibrate` fits the lines and states their error. Two things come on top. Memory that was freed has
//! to be zeroed before it is handed out again (`zeroing.rs`). And `cuMemFree` waits until the GPU has done all
//! that was queued: how long depends on the program, not on the driver, so these waits are counted, and priced only by
//! a stated `stream_wait_ns` for each. None of the other calls waits.

use serde::{Deserialize, Serialize};

use super::call::{Amount, Call, PerCall};
use gmlake_core::printable::printable;
use gmlake_core::reader_error;
use gmlake_core::units::{Bytes, MIB};

/// Time that calls about handles of up to a size take on an idle GPU, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The most bytes that each handle may have, or the whole where there are none; `None`: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<Bytes>,
    /// For each call.
    #[serde(default)]
    pub per_call_ns: f64,
    /// For each handle that it is about.
    #[serde(default)]
    pub per_handle_ns: f64,
    /// For each MiB that it is about.
    #[serde(default)]
    pub per_mib_ns: f64,
    /// How far the measurements lie from this line and how uncertain they are, relative to them: root of the mean
    /// square; `None` if not fitted.
    #[serde(default)]
    pub fit_error: Option<f64>,
}

impl Line {
    /// The price of one call in nanoseconds.
    #[inline]
    pub fn of(&self, amount: Amount) -> f64 {
        let mib = amount.size as f64 / MIB as f64;
        self.per_call_ns + self.per_handle_ns * amount.handles as f64 + self.per_mib_ns * mib
    }
}

/// The prices of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name, in every output that rests on it.
    pub name: String,
    /// The GPU and its driver.
    pub device: String,
    /// Where the numbers come from.
    pub source: String,
    /// Prices on an idle GPU, by ascending size.
    pub calls: PerCall<Vec<Line>>,
    /// Memory of the GPU in bytes; zero if not stated.
    #[serde(default)]
    pub memory: Bytes,
    /// Time that the driver takes to zero a MiB of freed memory; zero if not stated.
    #[serde(default)]
    pub zeroing_ns_per_mib: f64,
    /// What a small fixed piece of work took next to the measurements, in nanoseconds; zero if not stated. A machine
    /// that takes longer for it takes longer for everything.
    #[serde(default)]
    pub probe_ns: f64,
    /// Added each time that a call waits for work queued on the GPU; zero if not stated.
    #[serde(default)]
    pub stream_wait_ns: f64,
}

/// Why a profile was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("profile {name:?} is neither {} nor a file that can be read", Profile::built_in_names().join(" nor "))]
    Read {
        /// What was asked for.
        name: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The content is none.
    #[error("not a device profile: {0}; write one with `gmlake-replay calibrate --out FILE`")]
    Content(String),
}

/// No driver call takes longer than 1,000 seconds.
const MOST_NS: f64 = 1e12;

/// Name and content of each profile that comes with this program.
const BUILT_IN: [(&str, &str); 3] = [
    ("h200", include_str!("profiles/h200.json")),
    ("h100", include_str!("profiles/h100.json")),
    ("a100-paper", include_str!("profiles/a100-paper.json")),
];

impl Profile {
    /// Names of the profiles that come with this program.
    pub fn built_in_names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|&(name, _)| name).collect()
    }

    /// A profile that comes with this program.
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(other, _)| *other == name)?;
        Some(Self::from_json(text).expect("a test reads every profile that we ship"))
    }

    /// The built-in profile of this name, or the one in the file of this name.
    ///
    /// # Errors
    /// If it is neither.
    pub fn open(name: &str) -> Result<Self, ProfileError> {
        if let Some(profile) = Self::built_in(name) {
            return Ok(profile);
        }
        let text = std::fs::read_to_string(name)
            .map_err(|source| ProfileError::Read { name: name.to_owned(), source })?;
        Self::from_json(&text).map_err(|error| match error {
            ProfileError::Content(problem) => ProfileError::Content(format!("{name}: {problem}")),
            read @ ProfileError::Read { .. } => read,
        })
    }

    /// Reads a profile from JSON.
    ///
    /// # Errors
    /// If it is not JSON, lacks a call, or holds a price that is negative, or that no driver takes.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let mut profile: Self = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let problem = reader_error::json(&error);
            ProfileError::Content(format!("line {line}, column {column}: {problem}"))
        })?;
        let of_calls = profile.calls.rows().flat_map(|(call, lines)| {
            let prices = |line: &Line| [line.per_call_ns, line.per_handle_ns, line.per_mib_ns];
            lines.iter().flat_map(prices).map(move |price| (call.name(), price))
        });
        let others = [
            ("stream_wait_ns", profile.stream_wait_ns),
            ("zeroing_ns_per_mib", profile.zeroing_ns_per_mib),
            ("probe_ns", profile.probe_ns),
        ];
        let is_wrong = |(_, price): &(&str, f64)| !(0.0..=MOST_NS).contains(price);
        if let Some((name, price)) = of_calls.chain(others).find(is_wrong) {
            let problem = format!("price of {name} is {price:e}; expected 0 to {MOST_NS:e} ns");
            return Err(ProfileError::Content(problem));
        }
        if let Some((call, _)) = profile.calls.rows().find(|(_, lines)| lacks_sizes(lines)) {
            let name = call.name();
            let problem =
                format!("{name}: expected prices by ascending up_to, the last one without it");
            return Err(ProfileError::Content(problem));
        }
        for text in [&mut profile.name, &mut profile.device, &mut profile.source] {
            *text = printable(text).into_owned();
        }
        Ok(profile)
    }

    /// The same prices on a machine that is `pace` times as slow. The zeroing is the GPU's own, and stays.
    pub fn at_pace(&self, pace: f64) -> Self {
        let mut slower = self.clone();
        for call in Call::ALL {
            for line in &mut slower.calls[call] {
                line.per_call_ns *= pace;
                line.per_handle_ns *= pace;
                line.per_mib_ns *= pace;
            }
        }
        slower
    }

    /// The price of one call in nanoseconds, waiting for the GPU not included. A `map` is one call for each handle.
    #[inline]
    pub fn price(&self, call: Call, amount: Amount) -> f64 {
        let holds = |line: &&Line| line.up_to.is_none_or(|most| amount.each() <= most);
        self.calls[call].iter().find(holds).map_or(0.0, |line| line.of(amount))
    }
}

/// Whether there are sizes for which no price holds, or lines that hold for none. Of a call that was too rare to be
/// measured there are no lines, and it costs nothing.
fn lacks_sizes(lines: &[Line]) -> bool {
    let sizes = || lines.iter().map(|line| line.up_to.unwrap_or(Bytes::MAX));
    let is_whole = lines.last().is_none_or(|last| last.up_to.is_none());
    !(is_whole && sizes().zip(sizes().skip(1)).all(|(a, b)| a < b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::GIB;

    #[test]
    fn every_profile_that_we_ship_can_be_read_and_names_itself() {
        for name in Profile::built_in_names() {
            let profile = Profile::built_in(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(!profile.source.is_empty() && !profile.device.is_empty());
            for (call, lines) in profile.calls.rows() {
                let amount = Amount { handles: 1, size: 2 * MIB };
                let is_for_memory = call < Call::Synchronize;
                assert!(
                    !is_for_memory || profile.price(call, amount) > 0.0,
                    "{name}: {call:?} {lines:?}"
                );
            }
            let again = serde_json::to_string(&profile).unwrap();
            assert_eq!(Profile::from_json(&again).unwrap(), profile);
        }
    }

    #[test]
    fn a_bad_profile_is_refused_with_a_reason() {
        let negative = include_str!("profiles/h200.json").replacen(
            "\"per_call_ns\": ",
            "\"per_call_ns\": -",
            1,
        );
        let huge =
            negative.replacen("\"per_call_ns\": -", "\"per_call_ns\": 1e13, \"per_mib_ns\": ", 1);
        let with_lines = |lines: serde_json::Value| {
            let mut other: serde_json::Value =
                serde_json::from_str(include_str!("profiles/h200.json")).unwrap();
            other["calls"]["mem_alloc"] = lines;
            other.to_string()
        };
        let up_to = |bytes: u64| serde_json::json!({"up_to": bytes, "per_call_ns": 1.0});
        let all = || serde_json::json!({"per_call_ns": 1.0});
        assert!(Profile::from_json(&with_lines(serde_json::json!([up_to(5), all()]))).is_ok());
        assert!(Profile::from_json(&with_lines(serde_json::json!([]))).is_ok());
        let lists = [vec![up_to(5)], vec![all(), up_to(5)], vec![up_to(9), up_to(5), all()]];
        for list in lists {
            let error = Profile::from_json(&with_lines(list.into())).unwrap_err().to_string();
            assert!(error.contains("mem_alloc: expected prices by ascending up_to"), "{error}");
        }
        for text in ["", "{}", "{\"name\": 3}", negative.as_str(), huge.as_str()] {
            let error = Profile::from_json(text).unwrap_err().to_string();
            assert!(error.starts_with("not a device profile: ") && !error.contains('\n'));
        }
    }

    #[test]
    fn names_in_a_profile_stay_on_their_line() {
        let text = include_str!("profiles/h200.json").replacen("\"h200\"", "\"a\\nb\"", 1);
        assert_eq!(Profile::from_json(&text).unwrap().name, "a\\nb");
    }

    /// The paper's Table 1 (2 GiB in chunks of 2 and 128 MiB), which its profile is made to follow.
    #[test]
    fn the_paper_profile_follows_the_papers_table() {
        let profile = Profile::built_in("a100-paper").unwrap();
        let unit = profile.price(Call::MemAlloc, Amount { handles: 1, size: 2 * GIB });
        let total = |chunk: Bytes| {
            let handles = 2 * GIB / chunk;
            let one = Amount { handles: 1, size: chunk };
            let all = Amount { handles, size: 2 * GIB };
            let create = profile.price(Call::Create, one) * handles as f64;
            (create + profile.price(Call::Map, all) + profile.price(Call::SetAccess, all)) / unit
        };
        assert!((total(2 * MIB) / 115.4 - 1.0).abs() < 0.1, "{}", total(2 * MIB));
        assert!(total(128 * MIB) < 12.0 && total(128 * MIB) > 3.0, "{}", total(128 * MIB));
    }
}
