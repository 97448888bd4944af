//! Cases: small inputs on which the answer was once wrong, next to the checkout and in `tests/data/cases`. Each has a
//! test with the right answer; those that no other suite is about stand here.

use std::path::{Path, PathBuf};

use crate::common::cli::output;
use crate::common::recordings::case;

/// What other tests are about, without having the file's name in their text.
const TESTED_OTHERWISE: [(&str, &str); 4] = [
    // `settings.rs` puts the names together.
    ("settings/async.pickle", "tests/questions/settings.rs"),
    ("settings/throw.pickle", "tests/questions/settings.rs"),
    // PyTorch is needed to run these: an embedding on every card, and a script that raises.
    ("predict/embedding.py", "python/tests/matrix/job.py"),
    ("predict/fails.py", "python/tests/test_predict.py"),
];

/// Programs that make cases, and what is said of them.
const MAKERS: [&str; 6] =
    ["README.md", "cycles.py", "forward.py", "mempool.py", "train.py", "variants.py"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder, as a path from there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten() {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn every_case_has_a_test() {
    let tests = ["tests", "python/tests"].map(|folder| files(&root().join(folder))).concat();
    let is_code = |path: &&PathBuf| path.extension().is_some_and(|end| end == "rs" || end == "py");
    let code = tests.iter().filter(is_code);
    let text: String = code.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for folder in ["tests/data/cases", "../shared/cases"] {
        let folder = root().join(folder);
        for path in files(&folder) {
            let name = path.strip_prefix(&folder).unwrap().display().to_string();
            if MAKERS.iter().any(|maker| path.ends_with(maker)) {
                continue;
            }
            let (_, place) = TESTED_OTHERWISE.into_iter().find(|&(case, _)| case == name).unzip();
            let is_named = text.contains(&format!("{name}\""));
            let is_there = place.is_some_and(|place: &str| root().join(place).is_file());
            assert!(is_named || is_there, "no test is about {name}");
        }
    }
}

#[test]
fn a_message_and_a_table_with_memory_free_are_no_fragmentation() {
    let Some(message) = case("oom/message.txt") else { return };
    let text = output(&["blame", message.to_str().unwrap()]);
    assert!(
        text.contains("Not fragmentation, and not a full device: 203.49 GiB was free"),
        "{text}"
    );
    // The table is cut off above the memory that was held.
    let Some(summary) = case("oom/summary.txt") else { return };
    let text = output(&["blame", summary.to_str().unwrap()]);
    assert!(text.contains("1 request failed") && text.contains("cause cannot be known"), "{text}");
    assert!(!text.contains("ragmentation"), "{text}");
}

#[test]
fn a_history_that_stopped_says_so() {
    let Some(path) = case("truncated/history-stopped.pickle") else { return };
    let text = output(&["inspect", path.to_str().unwrap()]);
    assert!(text.contains("the history ends before the snapshot was taken"), "{text}");
}

/// torchtitan writes `iteration_10/rank0_memory_snapshot.pickle`.
#[test]
fn a_folder_of_iterations_is_a_job() {
    let Some(snapshot) = case("folders/iteration_10/rank0_memory_snapshot.pickle") else { return };
    let folder = snapshot.ancestors().nth(2).unwrap().to_str().unwrap();
    let text = output(&["compare", folder, "--allocators", "caching", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let runs = answer["result"]["runs"].as_array().unwrap();
    assert_eq!(runs[0]["reserved_peak_bytes"], 100 << 20, "{answer}");
}
