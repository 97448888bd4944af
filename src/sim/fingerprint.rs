//! The fingerprint of a program: equal ones make the same requests in the same order, whenever and at whatever
//! addresses.

use std::collections::VecDeque;

use twox_hash::XxHash3_128;

use crate::device::DevicePtr;
use crate::trace::{Event, Step, Trace};
use crate::units::Bytes;

/// A number that stands for all of a recording that runs depend on: another one has another, as good as certainly.
pub(crate) fn fingerprint(trace: &Trace, limits: (Option<Bytes>, Option<Bytes>)) -> u128 {
    let mut bytes = Vec::with_capacity(trace.events.len() * 20);
    for &Event { size, alloc, stream, kind, pool } in &trace.events {
        bytes.extend(size.to_le_bytes());
        bytes.extend(alloc.0.to_le_bytes());
        bytes.extend(u32::from(stream.0).to_le_bytes());
        bytes.extend(u32::from(pool.0).to_le_bytes());
        bytes.push(kind as u8);
    }
    for &Step { start, end } in &trace.steps {
        bytes.extend((start as u64).to_le_bytes());
        bytes.extend((end as u64).to_le_bytes());
    }
    let settings = trace.settings.as_ref().map(|conf| &conf.text);
    let (streams, start_events) = (&trace.streams, trace.start_events);
    let whole = trace.no_split.iter().map(|pool| format!(" {pool:?}")).collect::<String>();
    let version = trace.version;
    let rest = format!("{streams:?} {settings:?} {limits:?} {start_events} {version:?}{whole}");
    bytes.extend(rest.bytes());
    XxHash3_128::oneshot(&bytes)
}

/// Addresses that the simulator makes up do not come near this one. Lower ones, as some drivers hand them out, are
/// taken as they are.
const FAR: u64 = 1 << 46;

/// A number that stands for where memory lay, one piece relative to the other: allocators compare addresses, and do not
/// mind how large they are.
pub(crate) fn relative_places(places: &VecDeque<(DevicePtr, Bytes)>) -> u128 {
    let lowest = places.iter().map(|(at, _)| at.0).min().filter(|&lowest| lowest > FAR);
    let relative = |at: &DevicePtr| at.0 - lowest.unwrap_or(0);
    let numbers = places.iter().flat_map(|(at, size)| [relative(at), *size]);
    XxHash3_128::oneshot(&numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
}
