//! The plug-in from outside: `libgmlake_torch.so` in the hands of a C++ program that calls it as PyTorch does, on the
//! mock driver, from several threads and on two GPUs.
//!
//! Without a C++ compiler these tests say so and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::common::cpp::{compile, folder, mock};
use gmlake::allocator::by_default;
use gmlake::sim::open;
use gmlake::trace::LoadOptions;

/// The shared library, built as the tests are.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // `cargo test` has built it already, but `cargo test --test gpu torch` has not.
        // With an example, so that all has the features that the tests give it, and nothing is compiled again.
        let arguments = ["build", "--profile", "test", "--lib", "--example", "categories"];
        let manifest = env!("CARGO_MANIFEST_DIR");
        let mut cargo = Command::new(env!("CARGO"));
        // What `cargo test` says of this package would make build scripts that ask for it run again, and with them
        // half of the dependencies.
        for (name, _) in std::env::vars().filter(|(name, _)| is_of_package(name)) {
            cargo.env_remove(name);
        }
        let status = cargo.args(arguments).current_dir(manifest).status().unwrap();
        assert!(status.success(), "the shared library does not build");
        let here = std::env::current_exe().unwrap();
        here.ancestors().nth(2).unwrap().join("libgmlake_torch.so")
    })
}

fn is_of_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// The client: with parts of PyTorch for exceptions, or without.
struct Client {
    program: PathBuf,
    libraries: PathBuf,
}

fn client(with_c10: bool) -> Option<&'static Client> {
    static CLIENTS: [OnceLock<Option<Client>>; 2] = [const { OnceLock::new() }; 2];
    CLIENTS[usize::from(with_c10)].get_or_init(|| build(with_c10)).as_ref()
}

fn build(with_c10: bool) -> Option<Client> {
    let mock = mock()?;
    let libraries = folder(if with_c10 { "with_c10" } else { "plain" });
    fs::copy(mock.join("libcuda.so"), libraries.join("libcuda.so")).unwrap();
    let program = libraries.join("client");
    let mut more = vec!["-pthread", "-ldl"];
    let c10 = libraries.join("libc10.so");
    if with_c10 {
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libc10.so"];
        compile("torch_plugin/c10.cpp", &c10, &shared).then_some(())?;
        more.extend(["-DWITH_C10", c10.to_str().unwrap()]);
    }
    compile("torch_plugin/driver.cpp", &program, &more).then_some(())?;
    Some(Client { program, libraries })
}

fn run(client: &Client, conf: &str, scenario: &[&str]) -> Output {
    let mut command = Command::new(&client.program);
    command.arg(library()).args(scenario).env("GMLAKE_CONF", conf);
    command.env("LD_LIBRARY_PATH", &client.libraries).env("MOCK_CUDA_DEVICES", "2");
    command.output().unwrap()
}

#[track_caller]
fn check(conf: &str, scenario: &[&str]) -> Option<String> {
    let output = run(client(false)?, conf, scenario);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{conf} {scenario:?}: {}\n{text}{errors}", output.status);
    assert!(text.ends_with("done\n") && !errors.contains("panicked"), "{text}{errors}");
    Some(errors)
}

/// Every allocator that a program can run on.
fn allocators() -> impl Iterator<Item = &'static str> {
    by_default().map(|spec| spec.name).filter(|name| !name.starts_with("bound"))
}

/// Each byte of each block is its owner's, whoever allocates, lends and frees it, on whichever GPU.
#[test]
fn threads_on_two_gpus_keep_their_memory_apart() {
    for name in allocators() {
        check(&format!("allocator={name}"), &["threads"]);
    }
    check("poison=on,record=1000", &["threads"]);
}

#[test]
fn memory_that_was_lent_waits_for_the_borrower() {
    for name in allocators().filter(|name| !["native", "vmm"].contains(name)) {
        check(&format!("allocator={name}"), &["lending"]);
    }
}

#[test]
fn out_of_memory_is_an_exception_and_life_goes_on() {
    for name in allocators() {
        check(&format!("allocator={name}"), &["oom"]);
    }
}

/// With PyTorch's parts in the process, it is PyTorch's own exception, made and destroyed as one.
#[test]
fn out_of_memory_is_pytorchs_own_exception() {
    let Some(client) = client(true) else { return };
    let output = run(client, "allocator=gmlake", &["oom"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn memory_of_graphs_stays_apart_until_they_are_gone() {
    for name in allocators().filter(|name| !["native", "vmm"].contains(name)) {
        check(&format!("allocator={name}"), &["graph"]);
    }
}

#[test]
fn frees_may_come_when_the_driver_has_gone() {
    for name in allocators() {
        let Some(errors) = check(&format!("allocator={name}"), &["shutdown"]) else { return };
        let ours: Vec<_> = errors.lines().filter(|line| !line.starts_with("mock:")).collect();
        assert!(ours.is_empty(), "{name}: {ours:?}");
    }
}

#[test]
fn gpus_of_one_process_may_use_each_others_memory() {
    for name in ["gmlake", "gmlake-released", "expandable", "vmm"] {
        check(&format!("allocator={name}"), &["peers"]);
    }
}

#[test]
fn poison_finds_a_late_writer() {
    for name in ["gmlake", "caching", "expandable"] {
        let conf = format!("allocator={name},poison=on");
        let Some(errors) = check(&conf, &["poison"]) else { return };
        assert!(errors.contains("gmlake: 4 of "), "{errors}");
    }
}

#[test]
fn the_rest_of_the_interface() {
    let Some(errors) = check("", &["odds_and_ends"]) else { return };
    assert_eq!(errors.matches("which was not handed out").count(), 1, "{errors}");
}

#[test]
fn a_wrong_configuration_is_an_exception() {
    let Some(client) = client(false) else { return };
    let output = run(client, "allocator=magic", &["lending"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "gmlake: GMLAKE_CONF: there is no allocator \"magic\"; there are: ";
    assert!(!output.status.success() && errors.contains(expected), "{errors}");
}

/// What the plug-in writes is read like any recording, and says what the program did.
#[test]
fn a_snapshot_is_a_trace() {
    let scratch = tempfile::tempdir().unwrap();
    for name in allocators() {
        let file = scratch.path().join(format!("{name}.json"));
        let conf = format!("allocator={name},record=on");
        let Some(_) = check(&conf, &["snapshot", file.to_str().unwrap()]) else { return };
        let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(written["gmlake"][0]["stats"]["allocator"], *name);
        for device in 0..2 {
            let opened =
                open(&file, &LoadOptions { device: Some(device), ..LoadOptions::default() });
            let opened = opened.unwrap();
            let names: Vec<_> =
                opened.records.entries.iter().map(|e| (e.action.name(), e.size)).collect();
            let (five, seven) = (5 << 20, 7 << 20);
            let expected = [
                &[("alloc", five), ("alloc", 1000), ("free_requested", five)][..],
                &[("free_completed", five), ("free_requested", 1000)][..],
            ]
            .concat();
            match device {
                0 => assert_eq!(names[..5], expected, "{name}"),
                _ => assert_eq!(names, [("alloc", seven)], "{name}"),
            }
            assert_eq!(opened.notes, Vec::<String>::new(), "{name}");
            let stats = &written["gmlake"][device as usize]["stats"];
            let sum = |key: &str| -> u64 {
                let segments = written["segments"].as_array().unwrap().iter();
                let ours = segments.filter(|segment| segment["device"] == device);
                ours.map(|segment| segment[key].as_u64().unwrap()).sum()
            };
            let reserved = stats["current"]["reserved"].as_u64().unwrap();
            assert_eq!(
                (sum("total_size"), sum("active_size")),
                (reserved, stats["current"]["active"].as_u64().unwrap()),
                "{name}"
            );
        }
    }
}
