//! `blame --fragmentation` names `torch.cuda.empty_cache()` only where it was seen to help.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::cli::gmlake_sim;

/// A job by hand: large blocks that come and go, and then `small` blocks of 1 MiB that stay.
fn job(large: &[&str], small: usize) -> Vec<String> {
    let come_and_go =
        large.iter().flat_map(|size| [format!("alloc,{size},{size},0"), format!("free,{size},,")]);
    come_and_go.chain((0..small).map(|id| format!("alloc,s{id},1MiB,0"))).collect()
}

fn told(folder: &Path, rows: &[String], arguments: &[&str]) -> String {
    let path = folder.join("job.csv");
    fs::write(&path, format!("event,id,size,stream\n{}\n", rows.join("\n"))).unwrap();
    let run = gmlake_sim().args(arguments).arg(path).assert().success();
    String::from_utf8(run.get_output().stdout.clone()).unwrap()
}

fn reserved(folder: &Path, rows: &[String]) -> u64 {
    let text = told(folder, rows, &["compare", "--json", "--allocators", "caching"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    document["result"]["runs"][0]["reserved_peak_bytes"].as_u64().unwrap()
}

#[test]
fn emptying_the_cache_is_named_only_where_it_saves_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    for (large, small, helps) in [
        (&["2GiB", "3GiB"][..], 1, false), // The peak was there before the small request.
        (&["1GiB"], 800, true),
        (&["1GiB", "200MiB"], 800, true),
        (&["1GiB"], 20, false), // It saves 2 %.
    ] {
        let rows = job(large, small);
        let text = told(folder.path(), &rows, &["blame", "--fragmentation"]);
        assert_eq!(text.contains("Call torch.cuda.empty_cache()"), helps, "{text}");
        assert!(!text.contains("requests of 1 MiB needs"), "{text}");
        let json = told(folder.path(), &rows, &["blame", "--fragmentation", "--json"]);
        let document: Value = serde_json::from_str(&json).unwrap();
        let emptied = &document["result"][0]["emptied"];
        let Some(event) = emptied["event"].as_u64() else {
            assert!(text.contains("Nothing to gain"), "{text}");
            continue;
        };
        let place = event as usize + 1;
        let mut followed = rows;
        followed.insert(place, "empty_cache,,,".to_owned());
        assert_eq!(emptied["reserved_bytes"], reserved(folder.path(), &followed), "{text}");
        assert!(!helps || text.contains(&format!("after event {event}): 1 GiB")), "{text}");
    }
}
