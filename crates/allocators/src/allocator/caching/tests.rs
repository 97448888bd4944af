//! Stories: a few lines of requests, and the memory map that PyTorch makes of them.
//!
//! `a NAME BYTES [STREAM]` asks for memory, `f NAME` gives it back, `e` empties the cache. The answers are offsets from
//! the first address of the segment or reservation, and the driver calls in between.

use std::collections::BTreeMap;

use super::*;
use crate::allocator::segment_of;
use crate::device::{AddressPolicy, SimDevice};
use gmlake_core::units::{GIB, MIB};

fn environment(conf: &str, total_memory: Bytes) -> Environment {
    let conf = AllocConf::parse(conf, TorchVersion::V2_11).unwrap();
    Environment { total_memory, ..Environment::new(conf) }
}

fn request(size: Bytes) -> Request {
    Request { size, stream: StreamId(0), pool: PoolId::DEFAULT }
}

/// Checks a story: what is done in each line, where a block was placed, and what is held then.
fn check(conf: &str, capacity: Bytes, story: &str) {
    let mut model = Caching::new(&environment(conf, capacity));
    let mut device = SimDevice::with_policy(capacity, AddressPolicy::Ascending);
    let mut live = BTreeMap::new();
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let step = line[..16].trim();
        let words: Vec<&str> = step.split_whitespace().collect();
        let outcome = match words[..] {
            ["a", name, size, ..] => {
                let stream = StreamId(words.get(3).map_or(0, |stream| stream.parse().unwrap()));
                let request = request(size.parse().unwrap());
                match model.malloc(&mut device, Request { stream, ..request }) {
                    Ok(given) => {
                        live.insert(name, given.block);
                        let segment = segment_of(&model, given.at).0;
                        format!("{:#x}+{:#x} ({} B)", segment, given.at.0 - segment, given.size)
                    }
                    Err(error) => error.to_string(),
                }
            }
            ["f", name] => {
                model.free(&mut device, live.remove(name).unwrap());
                String::new()
            }
            _ => {
                model.trim(&mut device);
                String::new()
            }
        };
        let held = model.usage().reserved / MIB;
        assert_eq!(format!("{step:<16} {outcome:<36} held {held} MiB"), line);
    }
}

#[test]
fn small_requests_share_2_mib_and_larger_ones_20_mib() {
    check(
        "",
        GIB,
        "
        a a 100          0x100000000+0x0 (512 B)              held 2 MiB
        a b 1000000      0x100000000+0x200 (1000448 B)        held 2 MiB
        a c 1048577      0x100400000+0x0 (1049088 B)          held 22 MiB
        a d 12058625     0x100400000+0x100200 (12059136 B)    held 22 MiB
        f a                                                   held 22 MiB
        a e 513          0x100000000+0xf4600 (1024 B)         held 22 MiB
    ",
    );
}

#[test]
fn when_memory_is_short_the_whole_cache_goes_back() {
    check(
        "",
        100 * MIB,
        "
        a a 41943040     0x100000000+0x0 (41943040 B)         held 40 MiB
        a b 41943040     0x102a00000+0x0 (41943040 B)         held 80 MiB
        f a                                                   held 80 MiB
        f b                                                   held 80 MiB
        a c 52428800     0x105400000+0x0 (52428800 B)         held 50 MiB
        a d 62914560     out of memory: 60 MiB requested, 50 MiB in use, 50 MiB held held 50 MiB
    ",
    );
}

#[test]
fn oversize_blocks_are_neither_split_nor_used_for_less() {
    check(
        "max_split_size_mb:64",
        GIB,
        "
        a a 104857600    0x100000000+0x0 (104857600 B)        held 100 MiB
        f a                                                   held 100 MiB
        a b 31457280     0x106600000+0x0 (31457280 B)         held 130 MiB
        a c 94371840     0x100000000+0x0 (104857600 B)        held 130 MiB
        a d 73400320     0x108600000+0x0 (73400320 B)         held 200 MiB
    ",
    );
}

/// The vector of the recorded facts: pages are mapped as they are needed, and only whole free pages go back.
#[test]
fn expandable_segments_grow_by_pages() {
    check(
        "expandable_segments:True",
        80 * GIB,
        "
        a a 3145728      0x100000000+0x0 (3145728 B)          held 20 MiB
        a b 31457280     0x100000000+0x300000 (31457280 B)    held 40 MiB
        f a                                                   held 40 MiB
        a c 5242880      0x100000000+0x2100000 (5242880 B)    held 40 MiB
        f b                                                   held 40 MiB
        a d 47185920     0x100000000+0x2600000 (47185920 B)   held 100 MiB
        f c                                                   held 100 MiB
        e                                                     held 80 MiB
        a e 22020096     0x100000000+0x0 (22020096 B)         held 100 MiB
    ",
    );
}

#[test]
fn streams_do_not_share_free_memory() {
    check(
        "",
        GIB,
        "
        a a 31457280 1   0x100000000+0x0 (31457280 B)         held 30 MiB
        f a                                                   held 30 MiB
        a b 31457280 2   0x102000000+0x0 (31457280 B)         held 60 MiB
        a c 31457280 1   0x100000000+0x0 (31457280 B)         held 60 MiB
    ",
    );
}

/// A limit of memory is a limit although the device has more.
#[test]
fn a_fraction_of_the_memory_is_a_limit() {
    let limited = Environment { memory_fraction: Some(0.5), ..environment("", 100 * MIB) };
    let mut model = Caching::new(&limited);
    let mut device = SimDevice::new(GIB);
    assert!(model.malloc(&mut device, request(40 * MIB)).is_ok());
    let refused = model.malloc(&mut device, request(20 * MIB));
    assert!(matches!(refused, Err(AllocError::OutOfMemory { .. })));
    assert_eq!(model.retries(), 1);
    let whole = Environment { memory_fraction: Some(1.0), ..limited.clone() };
    assert_eq!(Caching::new(&whole).limit, None);
    let older = Environment { version: TorchVersion { major: 2, minor: 8 }, ..whole };
    assert_eq!(Caching::new(&older).limit, Some(100 * MIB));
}

/// Blocks that a flush completed are known by stale ids from then on.
#[test]
fn a_flush_completes_what_other_streams_used() {
    let mut model = Caching::new(&environment("", 100 * MIB));
    let mut device = SimDevice::new(100 * MIB);
    let first = model.malloc(&mut device, request(60 * MIB)).unwrap();
    model.free_requested(first.block, &[]);
    let second = model.malloc(&mut device, request(60 * MIB)).unwrap();
    model.free_completed(&mut device, first.block);
    assert_eq!(model.usage().active, 60 * MIB);
    model.free(&mut device, second.block);
    model.trim(&mut device);
    assert!(device.is_pristine());
}

#[test]
fn a_request_beyond_what_was_reserved_is_out_of_memory() {
    let mut model = Caching::new(&environment("expandable_segments:True", 64 * MIB));
    let mut device = SimDevice::with_policy(GIB, AddressPolicy::Ascending);
    assert!(model.malloc(&mut device, request(100 * MIB)).is_err());
}

/// The older of two segments was made first, but its free block was cut off last: which version takes which.
#[test]
fn among_equal_blocks_the_version_decides() {
    let takes_the_older = |minor: u16, policy: AddressPolicy| {
        let version = TorchVersion { major: 2, minor };
        let mut model = Caching::new(&Environment { version, ..environment("", GIB) });
        let mut device = SimDevice::with_policy(GIB, policy);
        let device = &mut device;
        let older = model.malloc(device, request(3 * MIB)).unwrap().at;
        let rest = model.malloc(device, request(17 * MIB)).unwrap();
        let newer = model.malloc(device, request(3 * MIB)).unwrap().at;
        model.free(device, rest.block);
        let cut = model.malloc(device, request(3 * MIB)).unwrap();
        model.free(device, cut.block);
        let given = model.malloc(device, request(3 * MIB)).unwrap().at;
        assert!([older.offset(3 * MIB), newer.offset(3 * MIB)].contains(&given));
        given == older.offset(3 * MIB)
    };
    let of_each = [(11, true, false), (12, false, false), (13, true, true)];
    for (minor, ascending, descending) in of_each {
        assert_eq!(takes_the_older(minor, AddressPolicy::Ascending), ascending, "2.{minor}");
        assert_eq!(takes_the_older(minor, AddressPolicy::Descending), descending, "2.{minor}");
    }
}

/// Of `no_split`: what is too much stays with the block, in the small pool, too.
#[test]
fn a_pool_that_is_not_split_hands_out_whole_segments() {
    let own = PoolId(1);
    let environment = Environment { no_split: vec![own], ..environment("", GIB) };
    let mut model = Caching::new(&environment);
    let mut device = SimDevice::new(GIB);
    let mut serves =
        |pool, size| model.malloc(&mut device, Request { pool, ..request(size) }).unwrap().size;
    assert_eq!([serves(own, 3 * MIB), serves(own, 512)], [20 * MIB, 2 * MIB]);
    assert_eq!(serves(PoolId::DEFAULT, 3 * MIB), 3 * MIB);
}

/// Of `use_on_oom`: before the cache is given up from 2.11 on, and after it up to 2.10; never for a private pool.
#[test]
fn another_pool_serves_what_the_device_refuses() {
    for (minor, retries) in [(11, 0), (10, 1)] {
        let version = TorchVersion { major: 2, minor };
        let mut model = Caching::new(&Environment { version, ..environment("", 100 * MIB) });
        let mut device = SimDevice::new(100 * MIB);
        let (own, other) = (PoolId(1), PoolId(2));
        let request = |pool, size| Request { pool, ..request(size) };
        let kept = model.malloc(&mut device, request(own, 40 * MIB)).unwrap();
        model.malloc(&mut device, request(PoolId::DEFAULT, 50 * MIB)).unwrap();
        model.free(&mut device, kept.block);
        assert!(model.malloc(&mut device, request(other, 30 * MIB)).is_err());
        assert!(model.malloc(&mut device, request(PoolId::DEFAULT, 30 * MIB)).is_err());
        model.set_use_on_oom(own);
        assert!(model.malloc(&mut device, request(other, 30 * MIB)).is_err());
        let retries_before = model.retries();
        let served = model.malloc(&mut device, request(PoolId::DEFAULT, 30 * MIB)).unwrap();
        assert_eq!((served.at, served.size), (kept.at, 30 * MIB), "2.{minor}");
        assert_eq!(model.retries() - retries_before, retries, "2.{minor}");
    }
}

/// Of `throw_on_cudamalloc_oom`: beyond the share in the settings nothing is given up for a request, unless that share
/// is the limit anyway.
#[test]
fn beyond_the_share_in_the_settings_a_request_fails_at_once() {
    let text = "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5";
    for (minor, set_later, fails) in
        [(12, None, false), (12, Some(1.0), true), (11, Some(1.0), false)]
    {
        let version = TorchVersion { major: 2, minor };
        // Up to 2.11 there is no such option.
        let text = if minor < 12 { "per_process_memory_fraction:0.5" } else { text };
        let conf = AllocConf::parse(text, version).unwrap();
        let total_memory = 100 * MIB;
        let known = Environment { memory_fraction: set_later, ..environment("", total_memory) };
        let mut model = Caching::new(&Environment { conf, version, ..known });
        let mut device = SimDevice::new(60 * MIB);
        let cached = model.malloc(&mut device, request(30 * MIB)).unwrap();
        model.free(&mut device, cached.block);
        assert_eq!(model.malloc(&mut device, request(40 * MIB)).is_err(), fails, "2.{minor}");
        assert_eq!(model.retries(), u64::from(!fails));
    }
}

/// Of `expandable_segments_reserve`: where the addresses of one segment end, another one begins.
#[test]
fn addresses_can_run_out_before_memory_does() {
    let version = TorchVersion { major: 2, minor: 15 };
    let text = "expandable_segments:True,expandable_segments_reserve:0.05";
    let conf = AllocConf::parse(text, version).unwrap();
    let mut model = Caching::new(&Environment { conf, version, ..environment("", GIB) });
    let mut device = SimDevice::with_policy(GIB, AddressPolicy::Ascending);
    let bases: Vec<DevicePtr> = (0..2)
        .map(|_| {
            let given = model.malloc(&mut device, request(40 * MIB)).unwrap();
            segment_of(&model, given.at)
        })
        .collect();
    assert_eq!(model.reservation_length(20 * MIB), 60 * MIB);
    assert!(bases[0] != bases[1]);
}
