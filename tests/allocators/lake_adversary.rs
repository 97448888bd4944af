//! A search for scripts that are bad for `lake`: on a tiny device, requests that another allocator serves and `lake`
//! does not; and the worst case that its design has, measured.

use crate::common::{ROOMY, build, defaults, run};
use gmlake::allocator::{Allocator, Request, find};
use gmlake::device::SimDevice;
use gmlake::trace::synthetic::{Op, Script, SplitMix64};
use gmlake::trace::{PoolId, StreamId};
use gmlake::units::{Bytes, MIB};

fn script(dice: &mut SplitMix64, capacity: Bytes) -> Vec<Op> {
    let count = 20 + dice.below(60);
    let op = |dice: &mut SplitMix64| match dice.below(5) {
        0 | 1 => Op::Free(dice.below(1000) as u32),
        _ => {
            let size = (1 + dice.below(capacity / 3 / (MIB / 2))) * MIB / 2;
            Op::Malloc(size, StreamId(0), PoolId::DEFAULT)
        }
    };
    (0..count).map(|_| op(dice)).collect()
}

/// Requests that an allocator does not serve on a device of this size.
fn ooms(name: &str, ops: &[Op], capacity: Bytes) -> usize {
    let spec = find(name).expect("it is in the list");
    let mut allocator = build(spec, &defaults(capacity));
    let mut gpu = SimDevice::new(capacity);
    run(&Script::trace_of(ops), &mut *allocator, &mut gpu, &mut ()).0.ooms.len()
}

/// Of scripts that some other allocator with real handles carries out whole, `lake` must carry out nearly all.
#[test]
fn scripts_that_others_carry_out_hardly_ever_fail() {
    let mut dice = SplitMix64::new(7);
    let (mut possible, mut failed) = (0, 0);
    for _ in 0..400 {
        let capacity = (24 + 2 * dice.below(60)) * MIB;
        let ops = script(&mut dice, capacity);
        let others = ["caching", "expandable", "gmlake", "gmlake-released"];
        if others.iter().any(|name| ooms(name, &ops, capacity) == 0) {
            possible += 1;
            failed += usize::from(ooms("lake", &ops, capacity) > 0);
        }
    }
    assert!(possible > 20, "only {possible} scripts can be carried out at all");
    println!("lake fails {failed} of {possible} scripts that another allocator carries out");
    assert!(failed * 50 <= possible, "lake fails {failed} of {possible}");
}

/// Utilization of a program of four numbers: tensors of `first` MiB, each followed by a small one of `pin` MiB; all
/// large ones freed but every `kept`-th; then tensors of `then` MiB up to the same live peak.
fn utilization(first: Bytes, pin: Bytes, kept: usize, then: Bytes) -> f64 {
    let mut lake = build(find("lake").expect("it is in the list"), &defaults(ROOMY));
    let mut gpu = SimDevice::new(ROOMY);
    let malloc = |lake: &mut dyn Allocator, gpu: &mut SimDevice, size| {
        let request = Request { size, stream: StreamId(0), pool: PoolId::DEFAULT };
        lake.malloc(gpu, request).expect("there is room").block
    };
    let mut large = Vec::new();
    for _ in 0..120 {
        large.push(malloc(&mut *lake, &mut gpu, first * MIB));
        malloc(&mut *lake, &mut gpu, pin * MIB);
    }
    let peak = lake.usage().active;
    let freed = large.iter().enumerate().filter(|&(place, _)| place % kept != 0);
    freed.for_each(|(_, &block)| lake.free(&mut gpu, block));
    while lake.usage().active + then * MIB <= peak {
        malloc(&mut *lake, &mut gpu, then * MIB);
    }
    lake.peak().active as f64 / lake.peak().reserved as f64
}

/// The worst of a few hundred such programs. Small tensors that outlive the large ones around them keep handles from
/// being whole, and of the free ends only two fit into a view.
#[test]
fn the_worst_program_found_is_known() {
    let mut worst = (1.0, (0, 0, 0, 0));
    for first in [10, 20, 34, 50, 90, 126, 200, 500] {
        for pin in [1, 2, 6, 14] {
            for kept in [2, 3, 1000] {
                for then in [40, 70, 130, 260, 500, 1000] {
                    let found = utilization(first, pin, kept, then);
                    if found < worst.0 {
                        worst = (found, (first, pin, kept, then));
                    }
                }
            }
        }
    }
    println!("worst: utilization {:.3} with {:?}", worst.0, worst.1);
    assert!(worst.0 > 0.8, "utilization {:.3} with {:?}", worst.0, worst.1);
    assert!(worst.0 < 0.95, "the search finds nothing bad any more: say so in reports/lake.md");
}
