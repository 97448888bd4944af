//! Random scripts under random options: whatever a program does, every promise of every allocator holds.
//!
//! All runs draw the same cases unless `PROPTEST_RNG_SEED` says otherwise; `PROPTEST_CASES` sets their number. A
//! failure is printed as the smallest script that was found, ready for [`Script::trace_of`].

use crate::common::{ROOMY, checked, defaults, run_checked};
use gmlake::alloc_conf::{AllocConf, TorchVersion};
use gmlake::allocator::{
    ALL, Checked, Choice, Environment, OptionSpec, Options, Role, Spec, quietly,
};
use gmlake::trace::synthetic::{Op, Script};
use gmlake::trace::{PoolId, StreamId};
use gmlake::units::{Bytes, GIB, KIB, MIB};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestError, TestRunner};

/// Sizes at and around every threshold of PyTorch's allocator and of the driver.
const BOUNDARIES: [Bytes; 21] = [
    1,
    511,
    512,
    513,
    4 * KIB,
    MIB - 512,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB - 1,
    2 * MIB,
    2 * MIB + 1,
    10 * MIB - 1,
    10 * MIB,
    10 * MIB + 1,
    20 * MIB - 1,
    20 * MIB,
    20 * MIB + 1,
    64 * MIB,
    200 * MIB + 3,
    3 * GIB + 12_345,
];

const CAPACITIES: [Bytes; 6] = [22 * MIB, 64 * MIB, 100_000_001, 300 * MIB, 2 * GIB, ROOMY];

fn sizes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => select(&BOUNDARIES[..]),
        2 => 1..4 * MIB,
        3 => 1..48 * MIB,
        1 => 1..400 * MIB,
    ]
}

fn streams() -> impl Strategy<Value = StreamId> {
    prop_oneof![4 => Just(0), 2 => Just(1), 1 => Just(2)].prop_map(StreamId)
}

fn pools() -> impl Strategy<Value = PoolId> {
    prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(2)].prop_map(PoolId)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        40 => (sizes(), streams(), pools()).prop_map(|(size, stream, pool)| {
            Op::Malloc(size, stream, pool)
        }),
        2 => (sizes(), streams()).prop_map(|(size, stream)| Op::Attempt(size, stream)),
        26 => any::<u16>().prop_map(|pick| Op::Free(pick.into())),
        8 => any::<u16>().prop_map(|pick| Op::FreeRequested(pick.into())),
        7 => any::<u16>().prop_map(|pick| Op::FreeCompleted(pick.into())),
        2 => Just(Op::Trim),
        1 => (1..3_u8).prop_map(|pool| Op::ReleasePool(PoolId(pool))),
    ];
    prop::collection::vec(op, 1..160)
}

/// Values of every kind that options have.
const OF_ANY_KIND: [&str; 18] = [
    "on",
    "off",
    "0",
    "1",
    "3",
    "32",
    "64",
    "400",
    "0.005",
    "0.2",
    "0.95",
    "2MiB",
    "6MiB",
    "20MiB",
    "64MiB",
    "200MiB",
    "1GiB",
    "[64:8,256:4,>:1]",
];

/// Values that have a meaning of their own.
const NAMED: [&str; 3] = ["fast", "balanced", "tight"];

/// Values worth trying for an option: those that its allocator takes, sizes where the default is one. To round to less
/// than the alignment is to give that up.
fn values(spec: &Spec, option: &OptionSpec) -> Vec<&'static str> {
    let (is_rounding, is_size) = (option.name == "rounding", option.default.ends_with('B'));
    let fits = |value: &&str| match value.ends_with('B') {
        true => true,
        false => !is_rounding && (!is_size || *value == "0"),
    };
    let is_taken = |value: &&str| {
        let mut options = Options::default();
        options.set(option.name, value);
        spec.build(&options, &environment("", GIB)).is_ok()
    };
    let all = OF_ANY_KIND.into_iter().chain(NAMED);
    all.filter(fits).filter(is_taken).collect()
}

#[test]
fn every_option_is_tried_with_other_values_than_its_default() {
    for spec in ALL {
        for option in spec.options {
            let values = values(spec, option);
            let others = values.iter().filter(|&&value| value != option.default).count();
            let (allocator, name) = (spec.name, option.name);
            assert!(others > 0, "{allocator}.{name}: none of the values above is one of its own");
        }
    }
}

fn options(spec: &'static Spec) -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let each: Vec<_> = spec
        .options
        .iter()
        .map(|option| select(values(spec, option)).prop_map(|value| (option.name, value)))
        .collect();
    (each, any::<u64>()).prop_map(|(all, kept)| {
        let is_kept = |(index, _): &(usize, _)| kept >> index & 1 == 1;
        all.into_iter().enumerate().filter(is_kept).map(|(_, pair)| pair).collect()
    })
}

/// A configuration text that PyTorch accepts: each option left out, or one of a few values.
fn conf() -> impl Strategy<Value = String> {
    let large = select(vec![None, None, Some(12), Some(32)]);
    let split = select(vec![None, None, Some(32), Some(64), Some(128)]);
    let rounding = select(vec![None, None, Some(32), Some(64)]);
    let gc = select(vec![None, None, Some("0.05"), Some("0.6"), Some("0.9")]);
    let divisions =
        select(vec![None, None, Some("2"), Some("8"), Some("16"), Some("[16:2,64:4,>:8]")]);
    let fraction = select(vec![None, None, Some("0.3"), Some("0.8"), Some("1.0")]);
    let all = (large, split, rounding, gc, divisions, fraction, any::<bool>());
    all.prop_map(|(large, split, rounding, gc, divisions, fraction, is_expandable)| {
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let text = |t: Option<&str>| t.map(str::to_owned);
        let pairs = [
            ("large_segment_size_mb", number(large)),
            ("max_split_size_mb", number(split)),
            ("max_non_split_rounding_mb", number(rounding)),
            ("garbage_collection_threshold", text(gc)),
            ("roundup_power2_divisions", text(divisions)),
            ("per_process_memory_fraction", text(fraction)),
            ("expandable_segments", is_expandable.then(|| "True".to_owned())),
        ];
        let pairs = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}:{}", value?)));
        pairs.collect::<Vec<_>>().join(",")
    })
}

fn environment(text: &str, total_memory: Bytes) -> Environment {
    let version = TorchVersion::V2_11;
    let conf = AllocConf::parse(text, version).expect("PyTorch accepts it");
    let memory_fraction = conf.memory_fraction;
    Environment { conf, version, total_memory, memory_fraction, limit: None, no_split: Vec::new() }
}

/// Checks a property of every allocator, and tells of each allocator that fails, with its smallest script.
fn for_all<S: Strategy>(
    strategy: impl Fn(&'static Spec) -> S,
    check: impl Fn(&'static Spec, S::Value),
) {
    let mut failures = Vec::new();
    for spec in ALL {
        let mut config = Config { max_shrink_iters: 20_000, ..Config::default() };
        config.failure_persistence = None;
        // A generator is made for each value: one that is made at once takes a third of the time off.
        config.rng_algorithm = RngAlgorithm::XorShift;
        if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
            config.rng_seed = RngSeed::Fixed(0x6c61_6b65);
        }
        let mut runner = TestRunner::new(config);
        let keeps_it = |value| {
            check(spec, value);
            Ok(())
        };
        // The search for a small script makes hundreds of panics: without a word about each.
        let run =
            quietly(|| runner.run(&strategy(spec), keeps_it)).expect("the runner catches them");
        failures.extend(run.err().map(|failure| match failure {
            TestError::Fail(why, smallest) => format!("{}: {why}\n  by {smallest:?}", spec.name),
            TestError::Abort(why) => format!("{}: {why}", spec.name),
        }));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn promises_hold_under_default_options() {
    let strategy = |_| (select(&CAPACITIES[..]), ops());
    for_all(strategy, |spec, (capacity, ops)| {
        run_checked(checked(spec, &defaults(capacity)), &Script::trace_of(&ops), capacity);
    });
}

#[test]
fn promises_hold_under_random_options() {
    let strategy = |spec| (options(spec), conf(), select(&CAPACITIES[..]), ops());
    for_all(strategy, |spec, (pairs, conf, capacity, ops)| {
        let mut options = Options::default();
        pairs.iter().for_each(|(name, value)| options.set(name, value));
        let trace = Script::trace_of(&ops);
        let (choice, environment) = (Choice { spec, options }, environment(&conf, capacity));
        // PyTorch refuses some of its settings together.
        let Ok(allocator) = choice.build(&environment, trace.has_private_pools()) else {
            assert_eq!(spec.role, Role::PyTorch);
            return;
        };
        run_checked(Checked::new(allocator, spec), &trace, capacity);
    });
}
