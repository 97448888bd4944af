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
