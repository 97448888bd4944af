//! Neighbours: other processes on the card when memory ran out, from the file that `gmlake.record(card=True)` writes.
//!
//! It stands beside the snapshot, under the same name with `.card.jsonl`, and has a line of JSON for each look at the
//! card. The line of the moment when memory ran out says `"at": "oom"`. Without the file, nothing is known.

use std::fs;

use serde::Deserialize;

use super::data::OtherProcess;

/// What is read of a line.
#[derive(Deserialize)]
struct Look {
    at: String,
    pid: u32,
    processes: Vec<OtherProcess>,
}

/// Other processes on the card of a snapshot when memory ran out first, those with most memory first.
pub(super) fn at_oom(snapshot: &str) -> Vec<OtherProcess> {
    let text = fs::read_to_string(format!("{snapshot}.card.jsonl")).unwrap_or_default();
    let mut looks = text.lines().filter_map(|line| serde_json::from_str::<Look>(line).ok());
    let Some(look) = looks.find(|look| look.at == "oom") else { return Vec::new() };
    let others = look.processes.into_iter().filter(|process| process.pid != look.pid);
    others.filter(|process| process.bytes.is_some_and(|bytes| bytes > 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_those_of_the_first_look_at_which_memory_ran_out() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("run.pickle").display().to_string();
        assert!(at_oom(&snapshot).is_empty());
        let look = |at: &str, bytes: &str| {
            let process = |pid: u32, name: &str, bytes: &str| {
                format!(r#"{{"pid":{pid},"name":"{name}","bytes":{bytes}}}"#)
            };
            let processes = [process(1, "a", "9"), process(2, "b", bytes)].join(",");
            format!(r#"{{"at":"{at}","pid":1,"processes":[{processes}]}}"#)
        };
        let text = [look("time", "5"), look("oom", "6"), look("oom", "7"), "{\"cut".to_owned()];
        fs::write(format!("{snapshot}.card.jsonl"), text.join("\n")).unwrap();
        let b = OtherProcess { pid: 2, name: "b".to_owned(), bytes: Some(6) };
        assert_eq!(at_oom(&snapshot), [b]);
        fs::write(format!("{snapshot}.card.jsonl"), look("oom", "null")).unwrap();
        assert!(at_oom(&snapshot).is_empty());
    }
}
