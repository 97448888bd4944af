//! The whole card beside a recording, from the file that `gmlake.record(card=True)` writes.
//!
//! It stands beside the snapshot, under the same name with `.card.jsonl`, and has a line of JSON for each look at the
//! card. The line of the moment when memory ran out says `"at": "oom"`. Without the file, nothing is known.

use std::fs;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A line.
#[derive(Deserialize)]
struct Look {
    at: String,
    time_us: u64,
    pid: u32,
    #[serde(default)]
    device: u32,
    name: String,
    total_bytes: Bytes,
    reserved_bytes: Bytes,
    entries: Vec<Entry>,
    processes: Vec<OtherProcess>,
}

/// An owner of a part of the card.
#[derive(Deserialize)]
struct Entry {
    owner: String,
    bytes: i64,
    #[serde(default)]
    parts: Vec<Entry>,
}

/// Another process on the card at that moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// Its number in the system.
    pub pid: u32,
    /// What it ran, in a few words.
    pub name: String,
    /// Bytes of the card that it held, if the monitor told.
    pub bytes: Option<Bytes>,
}

/// A card over time, by owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CardHistory {
    /// The card.
    pub name: String,
    /// What all programs together may use of it, in bytes.
    pub usable_bytes: Bytes,
    /// When it was looked at, in microseconds since the first look.
    pub times_us: Vec<u64>,
    /// The owners, PyTorch first.
    pub owners: Vec<String>,
    /// For each look, the bytes of each owner.
    pub bytes: Vec<Vec<Bytes>>,
    /// The looks at which memory had run out.
    pub ooms: Vec<usize>,
}

/// More looks than this are thinned out: of neighbours, the one with most memory in use stays.
const MOST_LOOKS: usize = 2000;
/// Owners by name; the smallest of more are one.
const MOST_OWNERS: usize = 11;
const SMALLEST: &str = "others";
const PYTORCH: &str = "PyTorch's allocator";

/// The card of a device over time, if it was recorded.
pub fn card_history(snapshot: &str, device: u32) -> Option<CardHistory> {
    let looks: Vec<Look> =
        looks(snapshot).into_iter().filter(|look| look.device == device).collect();
    let (first, last) = (looks.first()?, looks.last()?);
    let (name, start) = (last.name.clone(), first.time_us);
    let usable_bytes = last.total_bytes - last.reserved_bytes.min(last.total_bytes);
    let rows: Vec<_> = looks.iter().map(rows_of).collect();
    let owners = owners(&rows);
    let bytes: Vec<Vec<Bytes>> = rows.iter().map(|row| by_owner(row, &owners)).collect();
    let kept = kept(&looks, &bytes);
    let ooms = (0..kept.len()).filter(|&place| looks[kept[place]].at == "oom").collect();
    Some(CardHistory {
        name,
        usable_bytes,
        times_us: kept.iter().map(|&look| looks[look].time_us.saturating_sub(start)).collect(),
        owners,
        bytes: kept.iter().map(|&look| bytes[look].clone()).collect(),
        ooms,
    })
}

/// The lines that can be read: the last may have been cut off.
fn looks(snapshot: &str) -> Vec<Look> {
    let packed = [".xz", ".gz", ".zst", ""].iter().find_map(|end| snapshot.strip_suffix(end));
    let names = [snapshot, packed.unwrap_or(snapshot)].map(|name| format!("{name}.card.jsonl"));
    let text = names.iter().find_map(|name| fs::read_to_string(name).ok()).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The owners of one look: PyTorch's allocator by live and cached. When memory runs out, the process is not asked what
/// is inside it, so that it is one owner.
fn rows_of(look: &Look) -> Vec<(String, Bytes)> {
    let mut rows = Vec::new();
    let own = format!("process {}:", look.pid);
    for entry in &look.entries {
        let parts = entry.parts.iter().take(2).filter(|_| entry.owner == PYTORCH);
        let parts: Vec<_> =
            parts.map(|part| (format!("PyTorch, {}", part.owner), part.bytes)).collect();
        let owner = if entry.owner.starts_with(&own) { "this process" } else { &entry.owner };
        let whole = vec![(owner.to_owned(), entry.bytes)];
        let named = if parts.is_empty() { whole } else { parts };
        rows.extend(named.into_iter().map(|(owner, bytes)| (owner, bytes.max(0) as Bytes)));
    }
    rows
}

/// The names of all looks in the order in which they come, without the smallest.
fn owners(rows: &[Vec<(String, Bytes)>]) -> Vec<String> {
    let (mut order, mut most) = (Vec::new(), FxHashMap::<&str, Bytes>::default());
    for (owner, bytes) in rows.iter().flatten() {
        let seen = most.entry(owner).or_insert_with(|| {
            order.push(owner.as_str());
            0
        });
        *seen = (*seen).max(*bytes);
    }
    let mut sizes: Vec<Bytes> = order.iter().map(|owner| most[owner]).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes.get(MOST_OWNERS).map_or(0, |&bytes| bytes + 1);
    let large = order.iter().filter(|&&owner| most[owner] >= least);
    let mut names: Vec<String> = large.map(|&owner| owner.to_owned()).collect();
    if names.len() < order.len() {
        names.push(SMALLEST.to_owned());
    }
    names
}

/// A look's bytes in the order of the owners; what is of none of them is of the last.
fn by_owner(row: &[(String, Bytes)], owners: &[String]) -> Vec<Bytes> {
    let mut bytes = vec![0; owners.len()];
    for (owner, more) in row {
        let place = owners.iter().position(|name| name == owner).unwrap_or(owners.len() - 1);
        bytes[place] += more;
    }
    bytes
}

/// The looks that are kept: all at which memory had run out, and one of each few others.
fn kept(looks: &[Look], bytes: &[Vec<Bytes>]) -> Vec<usize> {
    let every = looks.len().div_ceil(MOST_LOOKS);
    let places: Vec<usize> = (0..looks.len()).collect();
    let of_few = |few: &[usize]| {
        let most = few.iter().copied().max_by_key(|&look| bytes[look].iter().sum::<Bytes>());
        let is_kept = move |look: &usize| Some(*look) == most || looks[*look].at == "oom";
        few.iter().copied().filter(is_kept).collect::<Vec<_>>()
    };
    places.chunks(every.max(1)).flat_map(of_few).collect()
}

/// Other processes on the card of a snapshot when memory ran out first, those with most memory first.
pub(super) fn at_oom(snapshot: &str) -> Vec<OtherProcess> {
    let looks = looks(snapshot);
    let Some(look) = looks.into_iter().find(|look| look.at == "oom") else { return Vec::new() };
    let others = look.processes.into_iter().filter(|process| process.pid != look.pid);
    others.filter(|process| process.bytes.is_some_and(|bytes| bytes > 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with these owners.
    fn look(at: &str, time_us: u64, entries: &str) -> String {
        format!(
            r#"{{"at":"{at}","time_us":{time_us},"pid":1,"device":0,"name":"H100","total_bytes":100,
                "reserved_bytes":10,"entries":[{entries}],"processes":[
                {{"pid":1,"name":"a","bytes":9}},{{"pid":2,"name":"b","bytes":6}}]}}"#
        )
        .replace('\n', "")
    }

    fn entry(owner: &str, bytes: i64) -> String {
        format!(r#"{{"owner":"{owner}","bytes":{bytes}}}"#)
    }

    /// A snapshot's name with these lines beside it.
    fn written(folder: &tempfile::TempDir, lines: &[String]) -> String {
        let snapshot = folder.path().join("run.pickle").display().to_string();
        fs::write(format!("{snapshot}.card.jsonl"), lines.join("\n")).unwrap();
        snapshot
    }

    #[test]
    fn others_are_those_of_the_first_look_at_which_memory_ran_out() {
        let folder = tempfile::tempdir().unwrap();
        assert!(at_oom(&folder.path().join("run.pickle").display().to_string()).is_empty());
        let silent = look("oom", 3, "").replace("\"bytes\":6", "\"bytes\":null");
        let lines = [look("time", 1, ""), look("oom", 2, ""), silent.clone(), "{\"cut".to_owned()];
        let snapshot = written(&folder, &lines);
        let b = OtherProcess { pid: 2, name: "b".to_owned(), bytes: Some(6) };
        assert_eq!(at_oom(&snapshot), std::slice::from_ref(&b));
        assert_eq!(at_oom(&format!("{snapshot}.xz")), [b], "compressed afterwards");
        assert!(at_oom(&written(&folder, &[silent])).is_empty());
    }

    #[test]
    fn a_card_has_its_owners_over_time_and_the_moment_when_memory_ran_out() {
        let folder = tempfile::tempdir().unwrap();
        let parts = format!("{},{},{}", entry("live", 5), entry("cached", 2), entry("by pool", 7));
        let held = format!(r#"{{"owner":"{PYTORCH}","bytes":7,"parts":[{parts}]}}"#);
        let other = entry("process 2: b", 6);
        let lines = [
            look("begin", 50, &format!("{held},{other}")),
            look("oom", 70, &format!("{},{other}", entry("process 1: a", 84))),
            look("end", 90, &format!("{held},{},{}", entry("NCCL", 3), entry("context", -1))),
        ];
        let snapshot = written(&folder, &lines);
        let found = card_history(&snapshot, 0).unwrap();
        assert_eq!(
            (found.usable_bytes, &*found.times_us, &*found.ooms),
            (90, &[0, 20, 40][..], &[1][..])
        );
        let owners =
            ["PyTorch, live", "PyTorch, cached", "process 2: b", "this process", "NCCL", "context"];
        assert_eq!(found.owners, owners);
        let expected = [[5, 2, 6, 0, 0, 0], [0, 0, 6, 84, 0, 0], [5, 2, 0, 0, 3, 0]];
        assert_eq!(found.bytes, expected);
        assert_eq!(card_history(&snapshot, 1), None, "another device");
    }

    #[test]
    fn many_looks_and_owners_are_few_and_lose_no_byte_of_the_peak() {
        let folder = tempfile::tempdir().unwrap();
        let all =
            |n: i64| (1..=14).map(|k| entry(&format!("p{k}"), 10 * k + n % 7)).collect::<Vec<_>>();
        let lines: Vec<String> =
            (0..5000).map(|n| look("time", n, &all(n as i64).join(","))).collect();
        let found = card_history(&written(&folder, &lines), 0).unwrap();
        assert!(found.times_us.len() <= MOST_LOOKS && found.owners.len() == MOST_OWNERS + 1);
        assert_eq!(found.owners.last().unwrap(), SMALLEST);
        let most = found.bytes.iter().map(|row| row.iter().sum::<Bytes>()).max();
        assert_eq!(most, Some((1..=14).map(|k| 10 * k + 6).sum()));
    }
}
