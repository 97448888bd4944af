//! Out of memory: what comes first, whose fault it was, and only cures that PyTorch confirms.
//!
//! The cures of `mempool.pickle` were tried in PyTorch 2.11 and 2.13 on the virtual GPU: emptying the cache before the
//! pool is used serves the request, and so does 2.13; expandable segments, `max_split_size_mb:32` and
//! `roundup_power2_divisions:2` do not.

use crate::common::cli::{gmlake_sim, output};
use predicates::prelude::*;
use predicates::str::contains;

const POOL: &str = "tests/data/cases/oom/mempool.pickle";
const FREE: &str = "tests/data/cases/oom/free-yet-refused.pickle";
const NO_LIMIT: &str = "tests/data/cases/damaged/invented-limit.pickle";

#[test]
fn a_request_inside_a_mempool_gets_nothing_of_other_pools() {
    let verified = output(&["verify", POOL]);
    assert!(verified.contains("Exact: all 5 recorded decisions"), "{verified}");
    gmlake_sim()
        .args(["compare", POOL, "--allocators", "caching,expandable"])
        .assert()
        .success()
        .stdout(contains(
            "mempool: Out of memory in step 1: `mempool.py:4 e` requested 7.81 GiB; 11.72 GiB of",
        ))
        .stdout(contains(
            "while a MemPool is in use (up to PyTorch 2.12) or a CUDA graph is captured",
        ))
        .stdout(contains("no allocator here gets through"))
        .stderr(contains("memory limit inferred from failed requests: 15.25 GiB"));
}

#[test]
fn only_cures_that_pytorch_confirms_are_offered() {
    let text = output(&["blame", POOL, "--at", "oom", "--quiet"]);
    let cure = "the request succeeds if torch.cuda.empty_cache() runs before the pool is used, or \
                with PyTorch 2.13 or later, unless a CUDA graph is being captured.";
    assert!(text.contains(cure), "{text}");
    let text = text.replace("python -m gmlake", "");
    for wrong in ["expandable", "max_split", "roundup", "lake"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    let later = output(&["compare", POOL, "--allocators", "caching", "--torch-version", "2.13"]);
    assert!(!later.contains("caching runs out of memory"), "{later}");
}

/// On an RTX 4090 nothing runs the whole job; the setting, which costs nothing, makes a smaller card do.
#[test]
fn a_setting_and_its_card_come_before_a_larger_card() {
    let job = "traces/opt-1.3b-LR-var.frames.pickle.xz";
    let blame = ["blame", job, "--at", "oom", "--device-memory", "22.14GiB"];
    let cards = "With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, the whole job runs on the \
                 RTX 5090 (30.39 GiB for the job). The smallest card that runs the whole job with \
                 caching is the A100 40GB (38.53 GiB for the job).";
    let text = output(&blame);
    assert!(text.contains(cards), "{text}");
    for (allocator, card, code) in
        [("expandable", "RTX-5090", 0), ("expandable", "RTX-4090", 1), ("caching", "RTX-5090", 1)]
    {
        let fits = ["fits", job, "--card", card, "--allocator", allocator];
        gmlake_sim().args(fits).assert().code(code);
    }
}

#[test]
fn a_refusal_with_memory_free_is_no_want_of_memory() {
    let verified = output(&["verify", FREE]);
    assert!(verified.contains("Exact: all 587 recorded decisions"), "{verified}");
    assert!(!verified.contains("refused more than") && !verified.contains("limit"), "{verified}");
    let sentence = "Out of memory in step 3: `/data/observer.py:712 forward` requested 2 MiB \
                    although the driver had 203.49 GiB free. Memory was not short: ";
    gmlake_sim()
        .args(["compare", FREE, "--allocators", "caching,expandable"])
        .assert()
        .success()
        .stdout(contains(sentence).and(contains("expandable would").not()))
        .stderr(contains(
            "What refused it (a memory fraction, a MemPool, the driver) is not recorded",
        ));
    let blamed = output(&["blame", FREE, "--at", "oom", "--quiet"]);
    assert!(blamed.contains("Memory was not short: the driver had 203.49 GiB free."), "{blamed}");
    assert!(!blamed.contains("RTX") && !blamed.contains("expandable"), "{blamed}");
}

#[test]
fn no_limit_is_known_where_nothing_was_refused() {
    let verified = output(&["verify", NO_LIMIT]);
    assert!(verified.contains("Exact: all 586") && !verified.contains("limit of"), "{verified}");
    let compared = gmlake_sim().args(["compare", NO_LIMIT, "--allocators", "caching"]).assert();
    compared.success().stderr(contains("limit inferred").not());
}

#[test]
fn the_page_begins_with_the_out_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let out = page.display().to_string();
    gmlake_sim().args(["report", POOL, "--out", &out]).assert().success();
    let text = std::fs::read_to_string(page).unwrap();
    let line = "<code>mempool.py:4 e</code>";
    let first = format!("Out of memory in step 1: {line} requested 7.81&nbsp;GiB");
    assert!(text.contains(&first));
    assert!(text.to_lowercase().contains("no allocator here gets through"));
    assert!(!text.contains("lake gets through"));
}

/// The step in which memory ran out, as a command says it.
fn step_in(text: &str) -> Option<&str> {
    let step = ["Out of memory in step ", "ran out of memory in step ", "out-of-memory in step "]
        .iter()
        .find_map(|words| text.split_once(words))?;
    step.1.split(|c: char| !c.is_ascii_digit()).next()
}

#[test]
fn all_commands_count_steps_alike() {
    for (file, step) in [(POOL, "1"), (FREE, "3")] {
        let caching = ["--allocators", "caching"];
        for arguments in [
            &[&["compare", file][..], &caching].concat()[..],
            &["blame", file, "--at", "oom"],
            &["fits", file, "--device-memory", "1TiB"],
            &["plan", file, "--allocators", "caching"],
            &["inspect", file],
        ] {
            let run = gmlake_sim().args(arguments).output().unwrap();
            let text = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
            assert_eq!(step_in(&text), Some(step), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn the_step_in_which_a_recording_ends_can_be_asked_about() {
    let at = |file: &str, step: u64| {
        gmlake_sim().args(["blame", file, "--at", &format!("step:{step}")]).assert()
    };
    let file = "traces/opt-1.3b-LR-var.gc60-cap16pct.pickle.xz";
    let shown = at(file, 4).success().get_output().stdout.clone();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("peak of live memory in step 4"), "{shown}");
    let fits = gmlake_sim().args(["fits", file, "--device-memory", "22GiB"]).assert().code(1);
    fits.stdout(contains("in step 4, event 43,966"));
    at(file, 5).code(2).stderr(contains("no step 5; the recording has 3 steps"));
    at("traces/opt-1.3b-RO.pickle.xz", 99).code(2);
}

#[test]
fn of_a_job_the_rank_that_ran_out_of_memory_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let put = |rank: u64, case: &str| {
        std::fs::copy(case, folder.path().join(format!("job.r{rank}.pickle"))).unwrap();
    };
    let whole = "tests/data/cases/stacks/python.pickle";
    let blame = |at: &str| gmlake_sim().arg("blame").arg(folder.path()).args(["--at", at]).assert();
    put(0, whole);
    put(1, whole);
    let none = blame("oom").code(2).stdout("");
    none.stderr(
        contains("job.r0.pickle: memory never").and(contains("job.r1.pickle: memory never")),
    );
    put(1, FREE);
    let explained = contains("job.r1.pickle, device 0: PyTorch ran out of memory in step 3")
        .and(contains("Memory was not short"));
    blame("oom").success().stdout(explained).stderr(contains("never ran out").not());
    // Where several did, their rows are compared.
    put(2, FREE);
    let one = contains("2 ranks ran out of memory; give one file for its request");
    blame("oom").success().stdout(contains("2 ranks, each at its own moment")).stderr(one);
    // A rank may have no such step.
    put(3, POOL);
    let lacks = contains("warning: ").and(contains("job.r3.pickle: no step 3; "));
    blame("step:3").success().stderr(lacks);
    blame("step:99").code(2).stdout("");
}
