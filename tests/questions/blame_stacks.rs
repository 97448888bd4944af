//! Stacks of every kind, from files as people have them: who asked is a line, and never PyTorch's own machinery.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use gmlake::blame::{At, BEFORE, Blame, By, Question, blame, folded};
use gmlake::sim::{Opened, open};
use gmlake::trace::LoadOptions;
use gmlake::units::{Bytes, MIB};

const OURS: &str = "tests/data/cases";

fn opened(path: &Path) -> Opened {
    open(path, &LoadOptions { stacks: true, ..LoadOptions::default() }).unwrap()
}

fn ours(name: &str) -> Opened {
    opened(&Path::new(OURS).join(name))
}

/// A case that is too large for the repository; it lies next to the checkout or is skipped.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new("../shared/cases").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is not there", path.display());
    }
    path.exists().then_some(path)
}

fn by(opened: &Opened, by: By, at: At) -> Blame {
    let found = blame(opened, &Question { by, at, ..Question::default() }).unwrap();
    let sum: Bytes = found.rows.iter().map(|row| row.bytes).sum();
    assert_eq!(sum, found.live_bytes, "{by:?}");
    found
}

fn bytes(blame: &Blame, name: &str) -> Bytes {
    blame.row(name).map_or(0, |row| row.bytes)
}

#[test]
fn the_unwinder_is_never_the_answer() {
    let Some(path) = shared("stacks/default.pickle") else { return };
    let opened = opened(&path);
    for (kind, name) in By::ALL {
        for row in by(&opened, kind, At::Peak).rows {
            for part in ["unwind", "gather", "CachingAllocator", "at::detail"] {
                assert!(!row.name.contains(part), "by {name}: {}", row.name);
            }
        }
    }
    let lines = by(&opened, By::Line, At::Peak);
    assert_eq!(lines.rows[0].name, "train.py:9 <module>");
    assert_eq!(bytes(&lines, "at::native::mm (backward pass)"), 134_266_880);
    assert_eq!(lines.stackless_bytes, 0);
    let python = self::opened(&shared("stacks/python.pickle").unwrap());
    let python = by(&python, By::Category, At::Peak);
    assert_eq!(by(&opened, By::Category, At::Peak).rows, python.rows);
    for (stack, _) in folded(&opened, &Question::default()).unwrap() {
        assert!(!stack.contains("unwind") && !stack.contains("CachingAllocator"), "{stack}");
    }
}

#[test]
fn a_stack_begins_with_the_frame_that_allocated() {
    let Some(path) = shared("stacks/python.pickle") else { return };
    let found = by(&opened(&path), By::Stack, At::Peak);
    let forward = "torch/nn/modules/linear.py:134 forward < train.py:8 <module>";
    assert_eq!(bytes(&found, forward), 33 * MIB, "{:?}", found.rows);
}

#[test]
fn the_users_own_line_stands_behind_that_of_a_library() {
    let Some(path) = shared("truncated/oom-in-forward.pickle") else { return };
    let opened = opened(&path);
    let first = by(&opened, By::Line, At::Peak).rows.remove(0);
    assert_eq!(
        first.with_own(),
        "transformers/models/llama/modeling_llama.py:175 forward < train.py:25 train_step"
    );
    for row in by(&opened, By::Own, At::Peak).rows {
        assert!(row.name.starts_with("train.py:"), "{}", row.name);
    }
}

#[test]
fn an_out_of_memory_of_the_recording_is_none_of_a_larger_device() {
    let Some(path) = shared("truncated/oom-in-forward.pickle") else { return };
    let other: [&[&str]; 3] = [
        &["--device-memory", "80GiB"],
        &["--device-memory", "unlimited"],
        &["--device-memory", "80GiB", "--allocator", "lake"],
    ];
    for arguments in other {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        let run =
            command.args(["blame", "--at", "oom"]).arg(&path).args(arguments).assert().code(2);
        let told = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(told.contains("ran out in the recording, but not with these options"), "{told}");
        assert!(run.get_output().stdout.is_empty());
    }
}

#[test]
fn the_users_own_line_stands_in_the_headline_of_an_out_of_memory() {
    let Some(path) = shared("truncated/oom-in-forward.pickle") else { return };
    let run = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        let run = command.args(arguments).arg(&path).assert().success();
        String::from_utf8(run.get_output().stdout.clone()).unwrap()
    };
    let text = run(&["blame", "--at", "oom"]);
    let line = text.lines().nth(1).unwrap();
    let library = "transformers/activations.py:103 forward";
    let own = "(called from train.py:25 train_step) requested 88 MiB.";
    assert_eq!(line, format!("{library} {own}"), "{text}");
    let text = run(&["compare", "--allocators", "caching"]);
    assert!(text.contains("` (called from `train.py:25 train_step`) requested "), "{text}");
}

/// The ring buffer begins behind the building of the model: 16 MiB that `train.py` then requests may be an input.
#[test]
fn a_recording_that_begins_later_knows_no_parameters_by_time() {
    let opened = ours("truncated/ring.pickle");
    for at in [At::Peak, At::End] {
        let found = by(&opened, By::Category, at);
        assert!(found.row("parameters").is_none(), "{:?}", found.rows);
        assert!(bytes(&found, BEFORE) > 0, "{:?}", found.rows);
    }
}

#[test]
fn where_memory_ran_out_in_the_forward_pass_activations_are_activations() {
    let Some(path) = shared("truncated/oom-in-forward.pickle") else { return };
    let found = by(&opened(&path), By::Category, At::Peak);
    let share = |name: &str| bytes(&found, name) as f64 / found.live_bytes as f64;
    assert!(share("activations") > 0.88 && share("parameters") > 0.11, "{:?}", found.rows);
    assert_eq!((bytes(&found, "temporaries"), bytes(&found, "inputs")), (0, 64 << 10));
}

#[test]
fn what_was_live_before_is_called_so_in_every_view() {
    let opened = ours("truncated/late-annotation.pickle");
    let before = by(&opened, By::Annotation, At::Peak);
    assert_eq!(bytes(&before, BEFORE), before.before_bytes);
    assert!(before.before_bytes > 300 * MIB && before.row("## my_region ##").is_none());
    assert_eq!(bytes(&by(&opened, By::Category, At::Peak), BEFORE), before.before_bytes);
    assert_eq!(bytes(&by(&opened, By::Metadata, At::Peak), BEFORE), before.before_bytes);
    let sizes = by(&opened, By::Size, At::Peak);
    let marked = sizes.rows.iter().filter(|row| row.name.ends_with(BEFORE));
    assert_eq!(marked.map(|row| row.bytes).sum::<Bytes>(), before.before_bytes);
    // The final state has stacks of what is live to the end; the rest has none.
    for kind in [By::Line, By::Own, By::Function, By::Module, By::Stack] {
        assert_eq!(bytes(&by(&opened, kind, At::Peak), BEFORE), 32 * MIB, "{kind:?}");
    }
}

#[test]
fn stacks_of_pytorch_2_0_are_read_from_the_history_of_blocks() {
    let opened = ours("truncated/torch20-state.pickle");
    let found = by(&opened, By::Line, At::End);
    assert_eq!(bytes(&found, "train.py:4 <module>"), 6 * (16 * MIB + 8192));
    // One block of this file has an empty stack.
    assert_eq!(bytes(&found, BEFORE), 32 * MIB);
    assert_eq!((found.live_bytes, found.before_bytes), (387_072_000, 387_072_000));
}

#[test]
fn names_of_files_never_act_on_a_terminal_or_in_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::canonicalize(Path::new(OURS).join("damaged/evil-names.pickle")).unwrap();
    let text = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        let run = command.current_dir(folder.path()).args(arguments).arg(&file).assert().success();
        [run.get_output().stdout.clone(), run.get_output().stderr.clone()].concat()
    };
    let acts = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        text
    };
    for (_, kind) in By::ALL {
        let shown = acts(&text(&["blame", "--by", kind]));
        assert!(shown.lines().all(|line| !line.starts_with("<img")), "{shown}");
    }
    for arguments in [&["blame", "--growth"][..], &["blame", "--fragmentation"], &["inspect"]] {
        acts(&text(arguments));
    }
    acts(&text(&["blame", "--export-folded", "-"]));
    text(&["blame", "--export-flamegraph", "peak.svg"]);
    text(&["report", "--out", "page.html"]);
    let svg = acts(&fs::read(folder.path().join("peak.svg")).unwrap());
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    for document in [svg, page] {
        assert!(!document.contains("<img") && !document.contains("<script>alert"));
    }
}
