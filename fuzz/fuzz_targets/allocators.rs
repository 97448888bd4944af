//! Random request scripts under random options, through every allocator, under supervision: no promise may break.
//!
//! The first bytes choose allocator, memory and options; each operation then takes as many bytes as it needs. A crash
//! prints the script, ready for a test.
#![no_main]

use arbitrary::{Result, Unstructured};
use gmlake::alloc_conf::{AllocConf, TorchVersion};
use gmlake::allocator::{ALL, Allocator, Checked, Environment, Options, Spec, Usage};
use gmlake::device::SimDevice;
use gmlake::drive::{OnOom, Replay};
use gmlake::trace::synthetic::{Op, Script};
use gmlake::trace::{PoolId, StreamId};
use gmlake::units::{Bytes, GIB, KIB, MIB};
use libfuzzer_sys::fuzz_target;

const SIZES: [Bytes; 12] = [
    1,
    512,
    100 * KIB,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB,
    7 * MIB,
    10 * MIB,
    20 * MIB - 1,
    20 * MIB,
    150 * MIB,
];

const CONF: [&[&str]; 6] = [
    &["large_segment_size_mb:12", "large_segment_size_mb:32"],
    &["max_split_size_mb:32", "max_split_size_mb:64", "max_split_size_mb:200"],
    &["max_non_split_rounding_mb:32", "max_non_split_rounding_mb:100"],
    &["garbage_collection_threshold:0.1", "garbage_collection_threshold:0.8"],
    &["roundup_power2_divisions:2", "roundup_power2_divisions:[16:2,64:4,>:8]"],
    &["per_process_memory_fraction:0.4", "per_process_memory_fraction:0.9"],
];

const OPTIONS: [&str; 10] =
    ["on", "off", "0", "1", "3", "2MiB", "16MiB", "64MiB", "512MiB", "1GiB"];

fuzz_target!(|data: &[u8]| {
    // Input that ends in the middle of a choice is no script.
    let _ = run(&mut Unstructured::new(data));
});

fn run(data: &mut Unstructured<'_>) -> Result<()> {
    let spec = data.choose(ALL)?;
    let capacity = *data.choose(&[22 * MIB, 64 * MIB, 100_000_001, 300 * MIB, 2 * GIB])?;
    let environment = environment(data, capacity)?;
    let options = options(data, spec)?;
    let Ok(allocator) = spec.build(&options, &environment) else { return Ok(()) };
    let mut ops = Vec::new();
    while !data.is_empty() && ops.len() < 1000 {
        ops.push(op(data)?);
    }
    let setting = format!("{} {:?} {:?}", spec.name, options.rows(), environment.conf.text);
    check(Checked::new(allocator, spec), &ops, capacity, &setting);
    Ok(())
}

fn check(mut allocator: Checked, ops: &[Op], capacity: Bytes, setting: &str) {
    let _tell = Tell(format!("{setting} on {capacity} bytes: {ops:?}"));
    let trace = Script::trace_of(ops);
    let mut gpu = SimDevice::new(capacity);
    let mut replay = Replay::new(&trace, OnOom::Skip);
    let outcome = replay.advance(0..trace.events.len(), &mut allocator, &mut gpu, &mut ());
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(allocator.usage(), Usage::default());
    assert!(gpu.is_pristine(), "left behind: {gpu:?}");
}

/// Prints what was run when a panic unwinds past it.
struct Tell(String);

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

fn environment(data: &mut Unstructured<'_>, total_memory: Bytes) -> Result<Environment> {
    let mut pairs = Vec::new();
    for values in CONF {
        if data.arbitrary()? {
            pairs.push(*data.choose(values)?);
        }
    }
    let version = TorchVersion::V2_11;
    // PyTorch refuses some combinations.
    let conf = AllocConf::parse(&pairs.join(","), version).unwrap_or_default();
    let memory_fraction = conf.memory_fraction;
    let no_split = Vec::new();
    Ok(Environment { conf, version, total_memory, memory_fraction, limit: None, no_split })
}

fn options(data: &mut Unstructured<'_>, spec: &Spec) -> Result<Options> {
    let mut options = Options::default();
    for option in spec.options {
        if data.arbitrary()? {
            options.set(option.name, data.choose(&OPTIONS)?);
        }
    }
    Ok(options)
}

fn op(data: &mut Unstructured<'_>) -> Result<Op> {
    let pick = u32::from(data.arbitrary::<u8>()?);
    let stream = StreamId((pick % 3) as u16);
    Ok(match data.int_in_range(0..=15)? {
        0..=5 => Op::Malloc(*data.choose(&SIZES)?, stream, PoolId::DEFAULT),
        6 => Op::Malloc(u64::from(data.arbitrary::<u32>()?).max(1) / 8 + 1, stream, PoolId(1)),
        7 => Op::Malloc(data.int_in_range(1..=64 * MIB)?, stream, PoolId::DEFAULT),
        8..=10 => Op::Free(pick),
        11 => Op::FreeRequested(pick),
        12 => Op::FreeCompleted(pick),
        13 => Op::Attempt(*data.choose(&SIZES)?, stream),
        14 => Op::Trim,
        _ => Op::ReleasePool(PoolId(1)),
    })
}
