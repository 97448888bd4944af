//! Plug-ins in C and in Rust: the templates keep every promise, and what misbehaves is one clear line.
//!
//! The compiler is the machine's `cc`. Where there is none, the tests say SKIPPED and check nothing.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use gmlake_allocators::allocator::{Allocator, Checked, Environment, Options, Request, Spec};
use gmlake_allocators::device::SimDevice;
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::program::{PoolId, StreamId};
use gmlake_core::units::{Bytes, GIB, KIB, MIB};
use gmlake_plugin::{abi, load};

/// Flaws of `data/flawed.c` that a run shows, and a part of what is said of them.
const FLAWS: &[(&str, &str)] = &[
    ("NULL_ADDRESS", "it returned 0x0 for 1 MiB, which is no address"),
    ("TOO_SMALL", "with a size of 1048575 bytes where 1048576 were requested"),
    ("UNMAPPED", "which has no memory: nothing is mapped"),
    ("OVERLAP", "which overlaps"),
    ("NO_ACCESS", "which has no memory: no access was set"),
    ("UNKNOWN_FREE", "its call of free is wrong: cuMemFree of 0x1000, which is not held"),
    ("ODD_SIZE", "its call of create is wrong: 1048577 bytes are no multiple of 2 MiB"),
    ("CODE", "its allocate returned 77"),
    ("EARLY_FREE", "which has no memory"),
    ("NO_PLACE", "it called malloc without a place for the result"),
    ("MISALIGNED", "alignment"),
    ("OTHER_STREAM", "handed out to stream 1, but stream 0 may still be using them"),
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether there is a C compiler; says so if there is none.
fn has_compiler() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: no cc on this machine, so no plug-in in C was tried");
    }
    found
}

fn compile(source: &str, out: &Path, flags: &[String]) {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]).args(flags);
    let built = cc.arg("-I").arg(here("include")).arg(here(source)).arg("-o").arg(out).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

fn library(source: &str, out: &Path, flags: &[String]) {
    let shared = ["-shared".to_owned(), "-fPIC".to_owned()];
    compile(source, out, &[&shared, flags].concat());
}

/// The template in Rust, which cargo built beside this test.
fn in_rust() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/libsize_classes.so")
}

fn start(spec: &'static Spec) -> Checked {
    let environment = Environment::new(AllocConf::default());
    Checked::supervised(spec.build(&Options::default(), &environment).unwrap(), spec)
}

fn request(size: Bytes, stream: u16) -> Request {
    Request { size, stream: StreamId(stream), pool: PoolId::DEFAULT }
}

/// Requests of many sizes on two streams, freed in another order, for a few rounds.
fn exercise(allocator: &mut Checked, gpu: &mut SimDevice) -> Result<(), String> {
    let mut held = Vec::new();
    for round in 0..400_u64 {
        let size = [512, 700 * KIB, 3 * MIB, 40 * MIB, 77][round as usize % 5] * (1 + round % 3);
        match allocator.malloc(gpu, request(size, (round % 2) as u16)) {
            Ok(given) => held.push(given.block),
            Err(error) => return Err(error.to_string()),
        }
        if round % 3 > 0 {
            let block = held.remove(round as usize * 7 % held.len());
            allocator.free(gpu, block);
        }
        if round % 100 == 99 {
            let block = held.remove(0);
            allocator.free_requested(block, &[StreamId(1)]);
            allocator.trim(gpu);
            allocator.free_completed(gpu, block);
        }
    }
    held.into_iter().for_each(|block| allocator.free(gpu, block));
    allocator.fault().map_or(Ok(()), |fault| Err(fault.to_owned()))
}

#[test]
fn the_template_in_c_keeps_every_promise() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libmine.so");
    library("templates/first_fit.c", &file, &[]);
    let spec = load(&file).unwrap();
    assert_eq!(spec.name, "first-fit");
    let mut gpu = SimDevice::new(8 * GIB);
    let mut allocator = start(spec);
    assert_eq!(exercise(&mut allocator, &mut gpu), Ok(()));
    let (peak, now) = (allocator.peak(), allocator.usage());
    assert_eq!((now.requested, now.active), (0, 0));
    assert!(peak.reserved >= peak.active && peak.active > 40 * MIB, "{peak:?}");
    assert_eq!(gpu.used(), now.reserved, "it holds what the device gave");
}

#[test]
fn the_template_in_rust_keeps_every_promise_and_empties_its_cache() {
    let spec = load(&in_rust()).unwrap();
    assert_eq!(spec.name, "size-classes");
    let mut gpu = SimDevice::new(8 * GIB);
    let mut allocator = start(spec);
    assert_eq!(exercise(&mut allocator, &mut gpu), Ok(()));
    allocator.trim(&mut gpu);
    assert_eq!((allocator.usage().reserved, allocator.fault()), (0, None));
    assert!(gpu.is_pristine());
}

#[test]
fn memory_that_is_short_is_no_mistake() {
    let spec = load(&in_rust()).unwrap();
    let (mut allocator, mut gpu) = (start(spec), SimDevice::new(10 * MIB));
    let first = allocator.malloc(&mut gpu, request(8 * MIB, 0)).unwrap();
    assert!(allocator.malloc(&mut gpu, request(4 * MIB, 0)).is_err());
    assert_eq!(allocator.fault(), None);
    // A free that waits for a stream is waited for.
    allocator.free_requested(first.block, &[]);
    assert!(allocator.malloc(&mut gpu, request(4 * MIB, 0)).is_ok());
    assert_eq!((allocator.fault(), allocator.retries()), (None, 1));
}

#[test]
fn every_flaw_is_one_line() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, (flaw, expected)) in FLAWS.iter().enumerate() {
        let file = folder.path().join(format!("lib{number}.so"));
        let name = format!("-DNAME=\"flaw-{number}\"");
        library("tests/data/flawed.c", &file, &[format!("-DFLAW={flaw}"), name]);
        let (mut allocator, mut gpu) = (start(load(&file).unwrap()), SimDevice::new(GIB));
        for stream in [0, 1] {
            if let Ok(given) = allocator.malloc(&mut gpu, request(MIB, stream)) {
                // The overlapping one needs two blocks at once.
                if *flaw != "OVERLAP" {
                    allocator.free(&mut gpu, given.block);
                }
            }
        }
        let fault = allocator.fault().unwrap_or_else(|| panic!("{flaw} passed"));
        assert!(fault.contains(expected) && !fault.contains('\n'), "{flaw}: {fault}");
        assert!(allocator.malloc(&mut gpu, request(MIB, 0)).is_err(), "{flaw} goes on");
    }
}

#[test]
fn a_file_that_is_no_plug_in_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let message = |file: &Path| load(file).unwrap_err().to_string();
    assert!(message(&text).contains("text.so: cannot be loaded"), "{}", message(&text));
    assert!(message(Path::new("none.so")).starts_with("none.so: cannot be loaded: No such file"));
    if !has_compiler() {
        return;
    }
    for (number, (flaw, name, expected)) in [
        ("VERSION", "a", "made for version 99 of gmlake_allocator.h; expected 1"),
        ("NAMELESS", "b", "its name must be 1 to 24 characters of a-z, 0-9, - and _"),
        ("NO_FUNCTION", "c", "its table has no free"),
        ("NONE", "lake-of-mine-with-a-long-name", "its name must be"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path().join(format!("lib{number}.so"));
        let flags = [format!("-DFLAW={flaw}"), format!("-DNAME=\"{name}\"")];
        library("tests/data/flawed.c", &file, &flags);
        assert!(message(&file).contains(expected), "{flaw}: {}", message(&file));
    }
    let other = folder.path().join("other.so");
    let flags = ["-Dgmlake_allocator_entry=other".to_owned(), "-DNAME=\"d\"".to_owned()];
    library("tests/data/flawed.c", &other, &flags);
    assert!(message(&other).contains("does not export gmlake_allocator_entry"));
}

#[test]
fn names_are_unique_and_a_file_is_loaded_once() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    library("tests/data/flawed.c", &file("a.so"), &["-DNAME=\"twice\"".to_owned()]);
    library("tests/data/flawed.c", &file("b.so"), &["-DNAME=\"twice\"".to_owned()]);
    library("tests/data/flawed.c", &file("c.so"), &["-DNAME=\"lake\"".to_owned()]);
    let first = load(&file("a.so")).unwrap();
    assert!(std::ptr::eq(first, load(&file("a.so")).unwrap()));
    let taken = load(&file("b.so")).unwrap_err().to_string();
    assert!(taken.ends_with("b.so: there is an allocator \"twice\" already"), "{taken}");
    assert!(load(&file("c.so")).unwrap_err().to_string().contains("\"lake\" already"));
    assert!(gmlake_allocators::allocator::names().contains(&"twice"));
}

#[test]
fn a_plug_in_that_does_not_start_says_so() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libpicky.so");
    library("tests/data/flawed.c", &file, &["-DNAME=\"picky\"".to_owned()]);
    let mut options = Options::default();
    options.set("colour", "blue");
    let environment = Environment::new(AllocConf::default());
    let error = load(&file).unwrap().build(&options, &environment).err().unwrap();
    assert_eq!(error.to_string(), "the plug-in did not start with the options colour=blue");
}

#[test]
fn the_header_and_its_twin_agree() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("layout");
    compile("tests/data/layout.c", &program, &[]);
    let said = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let ours = [
        size_of::<abi::HostTable>(),
        std::mem::offset_of!(abi::HostTable, event_destroy),
        size_of::<abi::RawBlock>(),
        std::mem::offset_of!(abi::RawBlock, tag),
        size_of::<abi::AllocatorTable>(),
        std::mem::offset_of!(abi::AllocatorTable, name),
        std::mem::offset_of!(abi::AllocatorTable, empty_cache),
        abi::VERSION as usize,
    ];
    assert_eq!(said.trim(), ours.map(|number| number.to_string()).join(" "));
}

#[test]
fn the_templates_are_short() {
    for template in ["templates/first_fit.c", "examples/size_classes.rs"] {
        let lines = std::fs::read_to_string(here(template)).unwrap().lines().count();
        assert!(lines <= 60, "{template} has {lines} lines");
    }
}
