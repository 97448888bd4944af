//! What is in a file, in words.

use super::{EntryCount, Failure, Inspection, Share, SizeClass, StackTotals};
use crate::report::Look;
use crate::report::table::plain;
use crate::units::{Bytes, Count, Grouped, Nanos, Size};

/// Everything about one device, as text.
pub fn text(inspection: &Inspection, look: Look) -> String {
    let mut parts = vec![summary(inspection, look)];
    parts.push(entries(inspection, look));
    if !inspection.sizes.is_empty() {
        parts.push(sizes(inspection, look));
    }
    parts.push(shares(inspection, look));
    let missing = inspection.missing.iter().map(|sentence| format!("  {sentence}"));
    parts.push(match inspection.missing.is_empty() {
        true => "The recording is complete.".to_owned(),
        false => {
            format!("Missing from the recording:\n{}", missing.collect::<Vec<_>>().join("\n"))
        }
    });
    parts.join("\n\n")
}

fn summary(inspection: &Inspection, look: Look) -> String {
    let Inspection { file, device, .. } = inspection;
    let mut rows: Vec<(&str, String)> = Vec::new();
    let others = inspection.devices.iter().filter(|line| line.entries > 0);
    let others: Vec<_> =
        others.map(|line| format!("{} ({})", line.device, entries_of(line.entries))).collect();
    if inspection.devices.len() > 1 {
        rows.push(("devices with entries", others.join(", ")));
    }
    if inspection.is_virtual {
        rows.push(("recorded on", "the virtual GPU, so times are of its host".to_owned()));
    }
    if inspection.is_simulated {
        let what =
            "a simulation of another allocator than PyTorch's, of which only the requests count";
        rows.push(("exported from", what.to_owned()));
    }
    rows.push(("settings", settings(inspection)));
    let requests = Count(inspection.requests, "request");
    rows.push(("events", format!("{} ({requests})", Grouped(inspection.events))));
    if inspection.span_us > 0 {
        rows.push(("span", Nanos(inspection.span_us as f64 * 1e3).to_string()));
    }
    rows.push(("training steps", steps(inspection.steps)));
    rows.extend(inspection.peak.map(|_| ("peak of live bytes", peak(inspection))));
    rows.extend(inspection.stacks.map(|totals| ("call stacks", stacks(totals))));
    rows.extend(inspection.first_failure.as_ref().map(|failed| ("out of memory", failure(failed))));
    rows.extend(inspection.segments.map(|_| ("held at the end", segments(inspection))));
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    left(vec![file.clone(), format!("device {device}")], rows, look)
}

fn entries_of(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{} entries", Grouped(count)) }
}

fn settings(inspection: &Inspection) -> String {
    let settings = match &inspection.settings {
        None => "not in the file".to_owned(),
        Some(rows) if rows.is_empty() => "PyTorch's defaults".to_owned(),
        Some(rows) => rows.iter().map(|(k, v)| format!("{k}:{v}")).collect::<Vec<_>>().join(", "),
    };
    match &inspection.written_by {
        Some(writer) => format!("{settings} (keys of {writer})"),
        None => settings,
    }
}

fn steps(steps: u64) -> String {
    if steps == 0 { "none found".to_owned() } else { Grouped(steps).to_string() }
}

fn peak(inspection: &Inspection) -> String {
    let Some(peak) = inspection.peak else { return String::new() };
    let blocks = Count(peak.blocks, "block");
    let mut text = format!("{} in {blocks}", Size(peak.requested_bytes));
    text += &format!(", at event {}", Grouped(peak.event));
    if inspection.span_us > 0 {
        text += &format!(", {} after the first", Nanos(peak.time_us as f64 * 1e3));
    }
    if let Some(step) = peak.step {
        text += &format!(", in step {step}");
    }
    text
}

fn stacks(totals: StackTotals) -> String {
    let (count, without) = (Count(totals.count, "different one"), totals.requests_without);
    let have = if without == 1 { "has" } else { "have" };
    let without = Count(without, "request");
    format!("{count}; {without} {have} none (gmlake-sim blame shows who holds)")
}

fn failure(failed: &Failure) -> String {
    let by = failed.asked_by.as_ref().map_or(String::new(), |name| format!(" by {name}"));
    let times = if failed.count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", Grouped(failed.count))
    };
    let (bytes, event) = (Size(failed.bytes), Grouped(failed.event));
    format!("{times}; first {bytes} requested{by} at event {event}; see gmlake-sim blame --at oom")
}

fn segments(inspection: &Inspection) -> String {
    let Some(totals) = inspection.segments else { return String::new() };
    format!(
        "{} in {} ({} small, {} expandable); {} in use, {} free in {}, the largest {}",
        Size(totals.bytes),
        Count(totals.count, "segment"),
        Grouped(totals.small),
        Grouped(totals.expandable),
        Size(totals.active_bytes),
        Size(totals.bytes - totals.active_bytes),
        Count(totals.free_blocks, "block"),
        Size(totals.largest_free_bytes),
    )
}

fn entries(inspection: &Inspection, look: Look) -> String {
    let heading = vec!["recorded entries".to_owned(), "count".to_owned()];
    let row = |entry: &EntryCount| vec![entry.action.to_owned(), Grouped(entry.count).to_string()];
    plain(heading, inspection.entries.iter().map(row).collect(), look)
}

fn sizes(inspection: &Inspection, look: Look) -> String {
    let heading = ["request size", "requests", "share", "bytes", "share of bytes"];
    let requests: u64 = inspection.sizes.iter().map(|class| class.requests).sum();
    let bytes: Bytes = inspection.sizes.iter().map(|class| class.bytes).sum();
    let percent = |part: u64, whole: u64| format!("{:.1} %", 100.0 * part as f64 / whole as f64);
    let row = |class: &SizeClass| {
        vec![
            format!("{} to {}", Size(class.from_bytes), Size(2 * class.from_bytes)),
            Grouped(class.requests).to_string(),
            percent(class.requests, requests),
            Size(class.bytes).to_string(),
            percent(class.bytes, bytes),
        ]
    };
    let rows = inspection.sizes.iter().map(row).collect();
    plain(heading.map(str::to_owned).to_vec(), rows, look)
}

fn shares(inspection: &Inspection, look: Look) -> String {
    let heading = ["pool or stream", "requests", "bytes"].map(str::to_owned).to_vec();
    let row = |kind: &str, share: &Share| {
        let name = format!("{kind} {}", share.name);
        vec![name, Grouped(share.requests).to_string(), Size(share.bytes).to_string()]
    };
    let mut rows: Vec<_> = inspection.pools.iter().map(|share| row("pool", share)).collect();
    rows.extend(inspection.streams.iter().map(|share| row("stream", share)));
    plain(heading, rows, look)
}

/// Names and values, all to the left, under a line that says what they are about.
fn left(heading: Vec<String>, rows: Vec<Vec<String>>, look: Look) -> String {
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    let title = heading.join(", ");
    let rule = if look.has_boxes { "─" } else { "-" }.repeat(title.chars().count());
    let lines = rows.iter().map(|row| format!("{:<width$}  {}", row[0], row[1]));
    [title, rule].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}
