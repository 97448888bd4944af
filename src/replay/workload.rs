//! Making a trace fit a smaller GPU.

use crate::trace::Trace;
use crate::units::Bytes;

/// The trace with every size multiplied by `factor`, and nothing made smaller than a byte.
pub fn scaled(trace: &Trace, factor: f64) -> Trace {
    let mut scaled = trace.clone();
    for event in scaled.events.iter_mut().filter(|event| event.size > 0) {
        event.size = ((event.size as f64 * factor).round() as Bytes).max(1);
    }
    scaled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{AllocId, Event, EventKind, PoolId, StreamId, peak_live_bytes};

    fn event(kind: EventKind, alloc: u32, size: Bytes) -> Event {
        Event { size, alloc: AllocId(alloc), stream: StreamId(0), kind, pool: PoolId::DEFAULT }
    }

    #[test]
    fn the_peak_scales() {
        let events = vec![
            event(EventKind::Malloc, 0, 100),
            event(EventKind::Malloc, 1, 50),
            event(EventKind::FreeRequested, 0, 100),
            event(EventKind::FreeCompleted, 0, 100),
            event(EventKind::Attempt, 2, 1000),
            event(EventKind::Malloc, 3, 90),
            event(EventKind::Free, 1, 50),
        ];
        let trace = Trace { events, allocs: 4, ..Trace::default() };
        assert_eq!(peak_live_bytes(&trace), 150);
        assert_eq!(peak_live_bytes(&scaled(&trace, 0.5)), 75);
        assert_eq!(scaled(&trace, 0.001).events[1].size, 1);
    }
}
