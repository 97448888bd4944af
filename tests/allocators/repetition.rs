//! A job that runs again and again in one process: `lake` settles. Each recording is run several times in a row,
//! and from some round on everything goes where it went the round before.

use crate::common::{ROOMY, build, defaults, recordings};
use gmlake::allocator::find;
use gmlake::device::{Counted, SimDevice, Watched};
use gmlake::drive::{OnOom, Replay};
use gmlake::trace::{Labels, LoadOptions, Trace, choose_device, ingest, load};
use gmlake::units::Bytes;

const ROUNDS: u32 = 6;

/// Rounds after which nothing changes any more. In the first one memory grows; in the second one it is all there, and
/// requests go where it is best then; the next ones settle what came into each other's way.
const LEARNING: usize = 4;

/// Driver calls and the most memory held, after one more round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    calls: u64,
    reserved: Bytes,
}

fn rounds(trace: &Trace) -> Vec<Held> {
    let long = trace.repeated(ROUNDS);
    let each = long.events.len() / ROUNDS as usize;
    let mut lake = build(find("lake").expect("it is in the list"), &defaults(ROOMY));
    let mut gpu = Watched::new(SimDevice::new(ROOMY), Counted::default());
    let mut replay = Replay::new(&long, OnOom::Skip);
    let round = |number: usize| {
        let range = number * each..(number + 1) * each;
        let result = replay.advance(range, &mut *lake, &mut gpu, &mut ());
        assert!(result.is_ok_and(|flow| flow.is_continue()), "the simulated driver does not fail");
        assert_eq!(lake.usage().active, 0, "all is freed at the end of a round");
        Held { calls: gpu.watch.calls.total(), reserved: lake.peak().reserved }
    };
    (0..ROUNDS as usize).map(round).collect()
}

#[test]
fn a_job_that_runs_again_comes_to_rest() {
    for (name, path) in recordings::all() {
        let records = load(&path, &LoadOptions::default()).expect("a good recording");
        let records = choose_device(records, None, &path).expect("one device");
        let held = rounds(&ingest(&records, &Labels::default()));
        let (first, settled) = (held[0], held[LEARNING - 1]);
        assert!(first.calls > 0, "{name}: {held:?}");
        for later in &held[LEARNING..] {
            assert_eq!(*later, settled, "{name}: {held:?}");
        }
    }
}
