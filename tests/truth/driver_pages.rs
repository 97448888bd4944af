//! Pages of the driver, against what an H200's driver reported for small allocations: replays of `native`
//! (`reports/vmm/README.md`), each from the first event to the one at which it was stopped, at the recorded sizes or
//! at a fiftieth.

use std::path::PathBuf;

use gmlake::allocator::Native;
use gmlake::device::{GRANULE, SimDevice};
use gmlake::drive::{OnOom, Replay};
use gmlake::replay::scaled;
use gmlake::sim::open;
use gmlake::trace::{LoadOptions, Trace};
use gmlake::units::{Bytes, TIB};

/// Trace, events, factor of all sizes, and the most that the driver missed.
const MEASURED: [(&str, usize, f64, Bytes); 9] = [
    ("opt-1.3b-LR-var", 18_010, 1.0, 19_132_317_696),
    ("opt-1.3b-LR", 8_369, 1.0, 37_836_816_384),
    ("opt-1.3b-N", 38_875, 1.0, 60_192_456_704),
    ("opt-1.3b-RO", 9_108, 1.0, 37_610_323_968),
    ("streams", 546, 1.0, 10_745_806_848),
    ("zero3-opt-13b-LR-w4.r0", 58_767, 1.0, 39_237_713_920),
    ("opt-1.3b-LR-var", 207_407, 0.02, 576_716_800),
    ("opt-1.3b-N", 61_274, 0.02, 1_254_096_896),
    ("zero3-opt-13b-LR-w4.r0", 153_920, 0.02, 838_860_800),
];

fn trace(name: &str) -> Trace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.pickle.xz"));
    open(&path, &LoadOptions::default()).expect("a trace of ours").trace
}

fn peak(trace: &Trace, events: usize) -> Bytes {
    let mut gpu = SimDevice::new(TIB).packing();
    let mut replay = Replay::new(trace, OnOom::Skip);
    let _ =
        replay.advance(0..events, &mut Native::new(), &mut gpu, &mut ()).expect("memory enough");
    gpu.peak_used()
}

/// The last three were checked byte by byte meanwhile, by a counter of eight bytes that was there before: small
/// requests found room in its page, which is the one page by which they are off. One other is, too.
#[test]
fn pages_are_packed_as_an_h200_does_to_a_page() {
    for (name, events, factor, driver) in MEASURED {
        let found = peak(&scaled(&trace(name), factor), events);
        let pages = (found as i64 - driver as i64) / GRANULE as i64;
        println!("{name} x {factor}: {} pages, {pages:+} of the driver's", found / GRANULE);
        assert!((0..=1).contains(&pages), "{name} x {factor}: {found} for {driver}");
    }
}
