//! The log of device calls in a form that is the same on every device.
//!
//! Handles, allocations and reservations are numbered in the order in which they came to be, and an address is the
//! number of its reservation and an offset. Two runs that decide alike have equal logs, wherever their memory lies:
//!
//! ```text
//!   simulation   reserve 0x1_0000_0000   ┐
//!   GPU          reserve 0x7f3a_4000_0000┴▶  address_reserve 6 MiB = r0
//!                                            map r0+2 MiB h4 h1
//! ```
//!
//! The real answers are kept next to it, so that a simulation can be given the same ones: allocators break ties by
//! address.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;

use super::call::{Call, DriverCall, Ending};
use super::watched::Watch;
use super::{DevicePtr, Fence, HandleId};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, Size};

/// Where a call acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere, as `cuMemCreate`; or at an address that was never given out.
    Nowhere,
    /// In the allocation of this number.
    Malloc(u32),
    /// In the reservation of this number, this many bytes from its beginning.
    Reserved(u32, Bytes),
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Which call.
    pub call: Call,
    /// Where it acts, or what it gave.
    pub place: Place,
    /// Bytes, where the call has a size.
    pub size: Bytes,
    /// Numbers of the handles that it names or gave.
    pub handles: Box<[u32]>,
    /// The stream and the fence that it is about.
    pub order: Option<(Option<StreamId>, Fence)>,
    /// How it ended.
    pub ending: Ending,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.name())?;
        match self.place {
            Place::Nowhere => {}
            Place::Malloc(number) => write!(f, " m{number}")?,
            Place::Reserved(number, 0) => write!(f, " r{number}")?,
            Place::Reserved(number, offset) => write!(f, " r{number}+{}", Size(offset))?,
        }
        if self.size > 0 {
            write!(f, " {}", Size(self.size))?;
        }
        self.handles.iter().try_for_each(|handle| write!(f, " h{handle}"))?;
        if let Some((stream, fence)) = self.order {
            stream.map_or(Ok(()), |stream| write!(f, " s{}", stream.0))?;
            write!(f, " f{}", fence.0)?;
        }
        match self.ending {
            Ending::Done => Ok(()),
            Ending::OutOfMemory => f.write_str(": out of memory"),
            Ending::Failed => f.write_str(": failed"),
        }
    }
}

/// Calls, and the addresses that the device gave.
#[derive(Debug, Clone, Default)]
pub struct CallLog {
    /// The calls in order.
    pub entries: Vec<LogEntry>,
    /// Address and size of each allocation and reservation, in order.
    pub answers: Vec<(DevicePtr, Bytes)>,
    /// Whether the GPU had got to the fence, each time it was asked.
    pub reached: Vec<bool>,
    handles: Vec<u32>,
    handles_made: u32,
    mallocs: FxHashMap<DevicePtr, u32>,
    mallocs_made: u32,
    reservations: BTreeMap<DevicePtr, (u32, Bytes)>,
    reservations_made: u32,
}

impl CallLog {
    /// The first place where two logs differ: its index, and what each says there.
    pub fn first_difference(&self, other: &Self) -> Option<(usize, String, String)> {
        let length = self.entries.len().max(other.entries.len());
        let index = (0..length).find(|&at| self.entries.get(at) != other.entries.get(at))?;
        let shown =
            |log: &Self| log.entries.get(index).map_or("nothing".to_owned(), ToString::to_string);
        Some((index, shown(self), shown(other)))
    }

    fn place(&self, at: DevicePtr) -> Place {
        match self.reservations.range(..=at).next_back() {
            Some((base, &(number, size))) if at.0 - base.0 < size => {
                Place::Reserved(number, at.0 - base.0)
            }
            _ => Place::Nowhere,
        }
    }

    fn numbers(&self, handles: &[HandleId]) -> Box<[u32]> {
        let number = |handle: &HandleId| self.handles.get(handle.0 as usize).copied();
        handles.iter().map(|handle| number(handle).unwrap_or(u32::MAX)).collect()
    }

    /// Where a call acts, or what it gave, which gets the next number.
    fn place_of(&mut self, done: &DriverCall<'_>) -> Place {
        let (at, size) = (done.at, done.amount.size);
        match done.call {
            Call::MemAlloc | Call::AddressReserve if !done.is_done() => Place::Nowhere,
            Call::MemAlloc => {
                self.answers.push((at, size));
                self.mallocs.insert(at, self.mallocs_made);
                self.mallocs_made += 1;
                Place::Malloc(self.mallocs_made - 1)
            }
            Call::AddressReserve => {
                self.answers.push((at, size));
                self.reservations.insert(at, (self.reservations_made, size));
                self.reservations_made += 1;
                Place::Reserved(self.reservations_made - 1, 0)
            }
            Call::MemFree => self.mallocs.remove(&at).map_or(Place::Nowhere, Place::Malloc),
            Call::AddressFree => {
                let place = self.place(at);
                self.reservations.remove(&at);
                place
            }
            Call::Map | Call::SetAccess | Call::Unmap => self.place(at),
            _ => Place::Nowhere,
        }
    }
}

impl Watch for CallLog {
    fn after(&mut self, done: &DriverCall<'_>) {
        let place = self.place_of(done);
        if done.call == Call::Create {
            for handle in done.handles {
                let slot = handle.0 as usize;
                self.handles.resize(self.handles.len().max(slot + 1), u32::MAX);
                self.handles[slot] = self.handles_made;
                self.handles_made += 1;
            }
        }
        if done.call == Call::EventQuery {
            self.reached.push(done.reached);
        }
        let has_size = !matches!(done.call, Call::MemFree | Call::Release | Call::Map);
        self.entries.push(LogEntry {
            call: done.call,
            place,
            size: if has_size { done.amount.size } else { 0 },
            handles: self.numbers(done.handles),
            order: done.fence.map(|fence| (done.stream, fence)),
            ending: done.ending,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AddressPolicy, Device, SimDevice, Watched};
    use gmlake_core::units::MIB;

    fn stitch(policy: AddressPolicy) -> CallLog {
        let mut gpu = Watched::new(SimDevice::with_policy(8 * MIB, policy), CallLog::default());
        let block = gpu.malloc(512).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(4 * MIB).unwrap()];
        let at = gpu.reserve(6 * MIB).unwrap();
        gpu.map(at, &handles[1..]).unwrap();
        gpu.map(at.offset(4 * MIB), &handles[..1]).unwrap();
        gpu.set_access(at, 6 * MIB).unwrap();
        assert!(gpu.create(4 * MIB).is_err());
        gpu.unmap(at, 6 * MIB);
        gpu.unreserve(at, 6 * MIB);
        handles.into_iter().for_each(|handle| gpu.release(handle));
        gpu.free(block);
        gpu.watch
    }

    #[test]
    fn the_log_does_not_depend_on_addresses() {
        let (up, down) = (stitch(AddressPolicy::Ascending), stitch(AddressPolicy::Descending));
        assert_ne!(up.answers, down.answers);
        assert_eq!(up.first_difference(&down), None);
        let lines: Vec<_> = up.entries.iter().map(ToString::to_string).collect();
        let expected = [
            "mem_alloc m0 512 B",
            "create 2 MiB h0",
            "create 4 MiB h1",
            "address_reserve r0 6 MiB",
            "map r0 h1",
            "map r0+4 MiB h0",
            "set_access r0 6 MiB",
            "create 4 MiB: out of memory",
            "unmap r0 6 MiB",
            "address_free r0 6 MiB",
            "release h0",
            "release h1",
            "mem_free m0",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_simulation_can_be_given_the_answers_of_another_device() {
        let down = stitch(AddressPolicy::Descending);
        let again = stitch(AddressPolicy::Answers(down.answers.clone().into()));
        assert_eq!(again.answers, down.answers);
    }

    #[test]
    fn the_first_difference_is_shown() {
        let (whole, mut cut) = (stitch(AddressPolicy::Ascending), stitch(AddressPolicy::Ascending));
        cut.entries.truncate(12);
        let found = whole.first_difference(&cut).unwrap();
        assert_eq!(found, (12, "mem_free m0".to_owned(), "nothing".to_owned()));
        cut.entries[4].handles = Box::new([0]);
        assert_eq!(whole.first_difference(&cut).unwrap().2, "map r0 h0");
    }
}
