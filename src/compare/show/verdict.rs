//! The closing sentence: what the table means, in plain words, with numbers that can be acted on.

use crate::allocator::Role;
use crate::blame::show::called_from;
use crate::blame::{RecordedOom, Shortfall};
use crate::compare::comparison::Comparison;
use crate::report::section::capitalized;
use crate::run::{RECORDED, RunSummary};
use crate::trace::{Certainty, Coverage};
use crate::units::{Bytes, Count, Grouped, Size};

/// Savings below this share are not worth a change.
const NOTICEABLE: f64 = 0.01;

/// Peaks that are this close together are as good as equal: the time in the driver decides.
const AS_GOOD: f64 = 0.005;

/// One sentence on a comparison.
pub fn verdict(comparison: &Comparison) -> String {
    let oom = comparison.recorded_oom.as_ref();
    let mut clauses = Vec::new();
    clauses.extend(held(comparison).filter(|_| oom.is_none()));
    let failed = choices(comparison).filter(|run| run.oom_count > 0).count();
    let is_short = oom.is_none_or(|oom| oom.shortfall != Shortfall::NotShort);
    if failed > 0 {
        clauses.push(out_of_memory(comparison));
    } else if is_short && comparison.has_history() {
        // One moment tells of no allocator what it would need.
        clauses.extend(alternative(comparison));
    }
    clauses.extend(bound(comparison));
    if is_empty(comparison) {
        clauses = vec!["nothing was requested".to_owned()];
    }
    let rest = clauses.join("; ");
    let text = match oom.map(sentence) {
        Some(first) if rest.is_empty() => first,
        Some(first) => format!("{first} {}.", capitalized(&rest)),
        None => format!("{rest}."),
    };
    format!("{}: {text}{}", comparison.heading(), caution(&comparison.coverage))
}

/// A further sentence on what is not the whole job.
pub(super) fn caution(coverage: &Coverage) -> String {
    let caution = coverage.caution();
    caution.map_or_else(String::new, |caution| format!(" {}.", capitalized(&caution)))
}

/// Whether no run reserved a byte, or refused one.
fn is_empty(comparison: &Comparison) -> bool {
    comparison.recorded_oom.is_none() && comparison.runs.iter().all(is_idle)
}

/// Whether a run reserved no byte and refused none.
fn is_idle(run: &RunSummary) -> bool {
    run.reserved_peak_bytes == 0 && run.oom_count == 0
}

/// The out-of-memory of a recording: where, how much, and why what there was did not do.
pub fn sentence(oom: &RecordedOom) -> String {
    let step = oom.step.map_or(String::new(), |step| format!(" in step {}", Grouped(step)));
    let own = oom.own_line.as_ref().map(|own| format!("`{own}`"));
    let requested = match &oom.line {
        Some(line) => format!(
            "{} requested {}",
            called_from(&format!("`{line}`"), own.as_deref()),
            Size(oom.requested_bytes)
        ),
        None => format!("{} was requested", Size(oom.requested_bytes)),
    };
    let needed = Size(oom.live_bytes + oom.requested_bytes);
    let why = match oom.shortfall {
        Shortfall::NotShort => format!(
            "although the driver had {} free. Memory was not short: a memory fraction, a MemPool or \
             the driver refused it",
            Size(oom.device_free_bytes.unwrap_or(0))
        ),
        Shortfall::Limited => format!(
            "although the driver had {} free: a memory limit refused it. Raise the limit \
             (torch.cuda.set_per_process_memory_fraction): with this {needed} would be live",
            Size(oom.device_free_bytes.unwrap_or(0))
        ),
        Shortfall::TooMuch => format!(
            "{}. No allocator or setting could have served it: {needed} would be live",
            free_of(oom)
        ),
        Shortfall::Unclear => format!(
            "{}. Whether an allocator could have served it is unknown: {needed} would be live, and the \
             memory limit is only roughly known",
            free_of(oom)
        ),
        Shortfall::CacheKept => format!(
            "{}, but while a MemPool is in use (up to PyTorch 2.12) or a CUDA graph is captured, \
             PyTorch does not release the cache of other pools",
            free_of(oom)
        ),
        Shortfall::Fragmented if oom.free_bytes().is_none() => {
            format!("{}. With it {needed} would be live", too_little_left(oom))
        }
        Shortfall::Fragmented => format!(
            "{}, but in no block that it could use. With it {needed} would be live",
            free_of(oom)
        ),
    };
    let why = if why.starts_with("although") { format!(" {why}") } else { format!("; {why}") };
    format!("Out of memory{step}: {requested}{why}.")
}

/// `none of 8.97 GiB was free`, of what PyTorch held.
fn free_of(oom: &RecordedOom) -> String {
    let held = Size(oom.reserved_bytes);
    match oom.free_bytes() {
        None => format!("none of {held} was free"),
        Some(free) => format!("{} of {held} was free", Size(free)),
    }
}

/// Why a request was refused that is smaller than what was left: PyTorch requests whole segments.
fn too_little_left(oom: &RecordedOom) -> String {
    let (held, segment) = (Size(oom.reserved_bytes), Size(oom.driver_request_bytes));
    let used = format!("all of the {held} that PyTorch held was in use");
    match oom.left_bytes() {
        Some(left) if left < segment.0 => format!(
            "{used}, and it requests {segment} from the driver for that, which had {} left",
            Size(left)
        ),
        _ => format!("{used}, and the driver gave no more"),
    }
}

fn choices(comparison: &Comparison) -> impl Iterator<Item = &RunSummary> {
    comparison.runs.iter().filter(|run| run.is_choice())
}

/// What the reference reserved for what was in use; without one that reserved any, the first run that did.
fn held(comparison: &Comparison) -> Option<String> {
    let mut runs = comparison.reference().into_iter().chain(&comparison.runs);
    let run = runs.find(|run| !is_idle(run))?;
    let who = match run.allocator.as_str() {
        RECORDED if run.certainty == Certainty::About => "PyTorch reserved about".to_owned(),
        RECORDED => "PyTorch reserved".to_owned(),
        // Of those that one could use, it is said with the others.
        _ if run.oom_count > 0 => return (!run.is_choice()).then(|| failure(run)),
        _ => format!("{} reserves", run.label()),
    };
    let (reserved, active) = (Size(run.reserved_peak_bytes), Size(run.active_peak_bytes));
    let used = 100.0 * run.utilization;
    let mut text = format!("{who} {reserved} for {active} in use ({used:.1} %)");
    match run.oom_count {
        0 => {}
        ooms => text += &format!(" and refused {}", Count(ooms, "request")),
    }
    Some(text)
}

/// The run to recommend: of those that need about as little as the one that needs least, the one that spends least time
/// in the driver. Of equals the first one: the table goes from the usual to the unusual.
fn best<'a>(runs: impl Iterator<Item = &'a RunSummary> + Clone) -> Option<&'a RunSummary> {
    let least = runs.clone().map(|run| run.reserved_peak_bytes).min()?;
    let most = least + (least as f64 * AS_GOOD) as Bytes;
    let close = runs.filter(|run| run.reserved_peak_bytes <= most);
    close.min_by_key(|run| (driver_time(run), run.reserved_peak_bytes))
}

/// Nanoseconds in the driver; without a profile the calls, which cost about the same each.
fn driver_time(run: &RunSummary) -> u64 {
    run.predicted_driver_ns().unwrap_or_else(|| run.device_calls.total())
}

/// The allocator that needs least, and PyTorch's own setting where that is another one.
fn alternative(comparison: &Comparison) -> Option<String> {
    let reference = comparison.reference()?;
    let is_caching =
        |run: &&RunSummary| reference.allocator == RECORDED && run.label() == "caching";
    // Where it is not known with what PyTorch began, it holds more than the simulation of it does.
    let is_same = |run: &&RunSummary| is_caching(run) && run.certainty == Certainty::About;
    let others = || {
        let others = choices(comparison).filter(|run| !std::ptr::eq(*run, reference));
        others.filter(|run| !is_same(run))
    };
    let best = best(others().collect::<Vec<_>>().into_iter())?;
    if reference.oom_count > best.oom_count {
        return Some(format!("to serve all, {} would need {}", best.label(), need(best)));
    }
    let Some(saved) = saving(best, reference.reserved_peak_bytes) else {
        // A simulation of what was recorded is no other allocator.
        let is_other = others().any(|run| !is_caching(&run));
        let (label, need) = (best.label(), need(best));
        let none = "no other allocator here that keeps memory for reuse needs noticeably less";
        return is_other.then(|| format!("{none} ({label}: {need})"));
    };
    let mut text = format!("{} would need {saved}", best.label());
    let setting = others().find(|run| run.allocator == "expandable");
    if let Some(setting) = setting.filter(|setting| !std::ptr::eq(*setting, best))
        && saving(setting, reference.reserved_peak_bytes).is_some()
    {
        text += &format!(", and expandable, which is only a setting, {}", need(setting));
    }
    Some(text)
}

/// What a run held, which is `about 30.96 GiB` where nobody knows with what it would have begun.
fn need(run: &RunSummary) -> String {
    let about = if run.certainty == Certainty::About { "about " } else { "" };
    format!("{about}{}", Size(run.reserved_peak_bytes))
}

/// `30.96 GiB, 31.78 GiB (51 %) less`, if that is noticeable.
fn saving(run: &RunSummary, reference: Bytes) -> Option<String> {
    let saved = reference.checked_sub(run.reserved_peak_bytes)?;
    let share = saved as f64 / reference as f64;
    let text = || format!("{}, {} ({:.0} %) less", need(run), Size(saved), 100.0 * share);
    (share >= NOTICEABLE).then(text)
}

/// Who ran out of memory where, and who did not.
fn out_of_memory(comparison: &Comparison) -> String {
    let failed: Vec<_> = choices(comparison).filter(|run| run.oom_count > 0).map(failure).collect();
    // Inside a `MemPool` or a capture only PyTorch's own allocator is at work.
    let kept = comparison.recorded_oom.as_ref().map(|oom| oom.shortfall);
    let is_there =
        |run: &&RunSummary| kept != Some(Shortfall::CacheKept) || run.role() == Some(Role::PyTorch);
    let passed = choices(comparison).filter(|run| run.oom_count == 0).filter(is_there);
    let passed: Vec<_> = passed
        .map(|run| format!("{} gets through with {}", run.label(), Size(run.reserved_peak_bytes)))
        .collect();
    let memory = comparison.device_memory.map(|memory| format!("with {}, ", Size(memory)));
    let rest = match passed.is_empty() {
        true => "no allocator here gets through".to_owned(),
        false => passed.join(", "),
    };
    format!("{}{}; {rest}", memory.unwrap_or_default(), failed.join(", "))
}

fn failure(run: &RunSummary) -> String {
    let Some(event) = run.first_oom_event else {
        return format!("{} runs out of memory", run.label());
    };
    let step = run.first_oom_step.map(|step| format!(" (step {step})")).unwrap_or_default();
    format!("{} runs out of memory at event {}{step}", run.label(), Grouped(event))
}

/// What no allocator can do without. The bound of the table is higher where streams still use what was freed, for which
/// an allocator that runs short waits, and lower where memory is short.
fn bound(comparison: &Comparison) -> Option<String> {
    let least = Size(comparison.least_bytes?);
    if comparison.coverage.of_what_was_seen() == Certainty::About {
        return Some(format!("about {least} are needed, whatever the allocator"));
    }
    match comparison.device_memory {
        Some(memory) if memory < least.0 => {
            Some(format!("at least {least} are needed, whatever the allocator"))
        }
        _ => Some(format!("no allocator can go below {least}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::utilization;
    use crate::units::{GIB, MIB};

    fn run(allocator: &str, reserved: f64, active: f64) -> RunSummary {
        let bytes = |gib: f64| (gib * GIB as f64) as Bytes;
        RunSummary {
            allocator: allocator.to_owned(),
            reserved_peak_bytes: bytes(reserved),
            active_peak_bytes: bytes(active),
            utilization: utilization(bytes(active), bytes(reserved)),
            ..RunSummary::default()
        }
    }

    fn comparison(reference: &str, runs: Vec<RunSummary>) -> Comparison {
        let (file, reference) = ("job.pickle.xz".to_owned(), Some(reference.to_owned()));
        let least_bytes = runs.iter().find(|run| run.allocator == "bound");
        let least_bytes = least_bytes.map(|bound| bound.reserved_peak_bytes);
        Comparison { file, reference, runs, least_bytes, ..Comparison::default() }
    }

    /// The sentence, a clause a line.
    fn clauses(comparison: &Comparison) -> String {
        verdict(comparison).replace("; ", ";\n").replace("), ", "),\n")
    }

    #[test]
    fn it_says_what_was_held_what_would_do_and_what_cannot_be_beaten() {
        let refused = RunSummary { oom_count: 49, ..run("recorded", 27.63, 27.3) };
        for (runs, said) in [
            (
                vec![
                    run("recorded", 62.74, 24.87),
                    run("native", 24.8, 24.8),
                    run("caching", 62.74, 24.87),
                    run("expandable", 30.96, 24.87),
                    run("bound", 24.5, 24.5),
                ],
                "PyTorch reserved 62.74 GiB for 24.87 GiB in use (39.6 %); expandable would need \
                 30.96 GiB, 31.78 GiB (51 %) less; no allocator can go below 24.50 GiB.",
            ),
            (
                vec![
                    run("caching", 60.0, 30.0),
                    run("expandable", 40.0, 30.0),
                    run("gmlake", 33.0, 30.0),
                ],
                "caching reserves 60 GiB for 30 GiB in use (50.0 %); gmlake would need 33 GiB, \
                 27 GiB (45 %) less, and expandable, which is only a setting, 40 GiB.",
            ),
            // A recording that ran out of memory is no measure.
            (
                vec![refused, run("caching", 42.69, 30.0), run("expandable", 32.07, 29.97)],
                "PyTorch reserved 27.63 GiB for 27.30 GiB in use (98.8 %) and refused 49 requests; \
                 to serve all, expandable would need 32.07 GiB.",
            ),
            (
                vec![run("caching", 30.1, 30.0), run("expandable", 30.0, 30.0)],
                "caching reserves 30.10 GiB for 30 GiB in use (99.7 %); no other allocator here \
                 that keeps memory for reuse needs noticeably less (expandable: 30 GiB).",
            ),
        ] {
            let reference = runs[0].allocator.clone();
            assert_eq!(verdict(&comparison(&reference, runs)), format!("job: {said}"));
        }
    }

    #[test]
    fn of_those_that_need_about_as_little_the_one_with_the_fewest_calls_is_recommended() {
        let with_calls = |allocator: &str, reserved: f64, creates: u64| {
            let mut run = run(allocator, reserved, 6.0);
            run.device_calls.create = creates;
            run
        };
        let best_of = |runs: &[RunSummary]| best(runs.iter()).unwrap().allocator.clone();
        let runs = [with_calls("gmlake", 6.0, 3700), with_calls("lake", 6.02, 100)];
        assert_eq!(best_of(&runs), "lake");
        // A per cent of memory is more than calls weigh.
        let runs = [with_calls("gmlake", 6.0, 3700), with_calls("lake", 6.06, 100)];
        assert_eq!(best_of(&runs), "gmlake");
        let equal = [with_calls("caching", 6.0, 7), with_calls("lake", 6.0, 7)];
        assert_eq!(best_of(&equal), "caching");
    }

    #[test]
    fn nothing_is_said_of_allocators_that_did_not_run() {
        let runs = vec![run("recorded", 62.74, 24.87), run("caching", 62.74, 24.87)];
        let others = vec![run("native", 24.87, 24.87), run("bound", 24.87, 24.87)];
        for runs in [runs.clone(), [runs, others].concat()] {
            let said = clauses(&comparison("recorded", runs));
            assert!(!said.contains("other"), "{said}");
        }
    }

    #[test]
    fn out_of_memory_comes_with_its_place_and_with_who_gets_through() {
        let mut failed = run("caching", 40.0, 24.0);
        failed.oom_count = 3;
        (failed.first_oom_event, failed.first_oom_step) = (Some(123_456), Some(2));
        let runs = vec![run("recorded", 62.74, 24.87), failed, run("expandable", 30.96, 24.87)];
        let mut comparison = comparison("recorded", runs);
        comparison.device_memory = Some(40 * GIB);
        insta::assert_snapshot!(clauses(&comparison), @r#"
    job: PyTorch reserved 62.74 GiB for 24.87 GiB in use (39.6 %);
    with 40 GiB, caching runs out of memory at event 123,456 (step 2);
    expandable gets through with 30.96 GiB.
    "#);
        comparison.runs.truncate(2);
        comparison.runs.push(run("bound", 40.0, 40.0));
        comparison.least_bytes = Some(44 * GIB);
        insta::assert_snapshot!(clauses(&comparison), @r#"
    job: PyTorch reserved 62.74 GiB for 24.87 GiB in use (39.6 %);
    with 40 GiB, caching runs out of memory at event 123,456 (step 2);
    no allocator here gets through;
    at least 44 GiB are needed, whatever the allocator.
    "#);
    }

    fn refused(driver_request_bytes: Bytes, device_free_bytes: Option<Bytes>) -> RecordedOom {
        RecordedOom {
            event: 1,
            step: None,
            line: None,
            own_line: None,
            requested_bytes: 5 * MIB,
            reserved_bytes: 90 * MIB,
            unused_bytes: 0,
            live_bytes: 90 * MIB,
            device_free_bytes,
            driver_request_bytes,
            memory_bytes: Some(100 * MIB),
            shortfall: Shortfall::Fragmented,
        }
    }

    #[test]
    fn where_nothing_was_free_the_driver_had_less_than_a_segment() {
        let begin = "Out of memory: 5 MiB was requested; all of the 90 MiB that PyTorch held was \
                     in use, and ";
        let end = ". With it 95 MiB would be live.";
        let segment = "it requests 20 MiB from the driver for that, which had 10 MiB left";
        for (oom, why) in [
            (refused(20 * MIB, Some(10 * MIB)), segment),
            (refused(20 * MIB, None), segment),
            (refused(8 * MIB, None), "the driver gave no more"),
        ] {
            assert_eq!(sentence(&oom), format!("{begin}{why}{end}"));
        }
        let free =
            RecordedOom { unused_bytes: 10 * MIB, live_bytes: 80 * MIB, ..refused(20 * MIB, None) };
        assert!(sentence(&free).contains("; 10 MiB of 90 MiB was free, but in no block"));
        // What rounding added to blocks in use is not free.
        let rounded = RecordedOom { live_bytes: 80 * MIB, ..refused(20 * MIB, None) };
        assert!(sentence(&rounded).contains("; all of the 90 MiB that PyTorch held was in use"));
        let full = RecordedOom { shortfall: Shortfall::TooMuch, ..refused(20 * MIB, None) };
        assert!(sentence(&full).contains("; none of 90 MiB was free. No allocator"));
    }

    #[test]
    fn an_empty_comparison_has_a_sentence_too() {
        assert_eq!(verdict(&Comparison::default()), ": nothing was requested.");
        let runs = ["caching", "expandable", "bound"].map(|name| run(name, 0.0, 0.0)).to_vec();
        assert_eq!(verdict(&comparison("caching", runs)), "job: nothing was requested.");
    }

    #[test]
    fn nothing_was_requested_is_said_only_where_nothing_was() {
        let one = || vec![run("caching", 2.0, 1.0)];
        let oom = RecordedOom { shortfall: Shortfall::NotShort, ..refused(20 * MIB, Some(GIB)) };
        let oom = Comparison { recorded_oom: Some(oom), ..comparison("caching", one()) };
        assert!(verdict(&oom).ends_with("a memory fraction, a MemPool or the driver refused it."));
        let no_reference = verdict(&comparison("none", one()));
        assert_eq!(no_reference, "job: caching reserves 2 GiB for 1 GiB in use (50.0 %).");
        let short =
            RunSummary { oom_count: 1, first_oom_event: Some(7), ..run("native", 0.0, 0.0) };
        let short = comparison("native", vec![short]);
        assert_eq!(verdict(&short), "job: native runs out of memory at event 7.");
    }
}
