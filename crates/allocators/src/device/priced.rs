//! A device whose calls are priced by a profile, and the bill.

use serde::Serialize;

use super::call::{Call, PerCall};
use super::extents::{Amount, Extents};
use super::profile::Profile;
use super::zeroing::Zeroing;
use super::{Device, DeviceError, DevicePtr, Fence, HandleId, forward};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// What a run's driver calls cost by a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Bill {
    /// Nanoseconds by call.
    pub nanos: PerCall<u64>,
    /// Times that a call waited for work queued on the GPU.
    pub stream_waits: u64,
}

/// A device whose calls are priced by a profile. A call that fails costs as much as one that does not.
#[derive(Debug, Clone)]
pub struct Priced<D> {
    /// The device itself.
    pub device: D,
    /// What the calls so far have cost.
    pub bill: Bill,
    profile: Option<Profile>,
    extents: Extents,
    zeroing: Zeroing,
    /// Time that passed between the calls, in nanoseconds.
    elapsed_ns: u64,
}

impl<D> Priced<D> {
    /// A device that has cost nothing yet; without a profile it never will, and nothing is kept of its calls.
    pub fn new(device: D, profile: Option<Profile>) -> Self {
        let zeroing = profile.as_ref().map(|p| Zeroing::new(p.zeroing_ns_per_mib, p.memory));
        let (bill, extents) = (Bill::default(), Extents::default());
        let zeroing = zeroing.unwrap_or_default();
        Self { device, bill, profile, extents, zeroing, elapsed_ns: 0 }
    }

    /// Now, on the clock by which memory is zeroed.
    fn now(&self) -> f64 {
        (self.elapsed_ns + self.bill.nanos.total()) as f64
    }

    /// Waits for clean memory.
    fn take(&mut self, call: Call, size: Bytes) {
        if self.profile.is_some() {
            let wait = self.zeroing.take(size, self.now());
            self.bill.nanos[call] += wait.round() as u64;
        }
    }

    fn give(&mut self, size: Bytes) {
        if self.profile.is_some() {
            self.zeroing.give(size, self.now());
        }
    }

    fn charge(&mut self, call: Call, amount: Amount) {
        self.charge_each(call, amount, 1);
    }

    fn charge_each(&mut self, call: Call, amount: Amount, count: usize) {
        let Some(profile) = &self.profile else { return };
        let mut price = profile.price(call, amount);
        if matches!(call, Call::MemFree | Call::Synchronize) {
            self.bill.stream_waits += count as u64;
            price += profile.stream_wait_ns;
        }
        self.bill.nanos[call] += price.round() as u64 * count as u64;
    }
}

impl<D: Device> Device for Priced<D> {
    forward!(memory_info, drop_fence);

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.charge(Call::MemAlloc, Amount { handles: 1, size });
        let at = self.device.malloc(size)?;
        self.take(Call::MemAlloc, size);
        if self.profile.is_some() {
            self.extents.malloc(at, size);
        }
        Ok(at)
    }

    fn free(&mut self, at: DevicePtr) {
        if self.profile.is_some() {
            let amount = self.extents.free(at);
            self.charge(Call::MemFree, amount);
            self.give(amount.size);
        }
        self.device.free(at);
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.charge(Call::AddressReserve, Amount { handles: 0, size });
        self.device.reserve(size)
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        self.charge(Call::AddressFree, Amount { handles: 0, size });
        self.device.unreserve(at, size);
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId, DeviceError> {
        self.charge(Call::Create, Amount { handles: 1, size });
        let handle = self.device.create(size)?;
        self.take(Call::Create, size);
        if self.profile.is_some() {
            self.extents.create(handle, size);
        }
        Ok(handle)
    }

    fn release(&mut self, handle: HandleId) {
        let amount = self.extents.of(&[handle]);
        self.charge(Call::Release, amount);
        self.give(amount.size);
        self.device.release(handle);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<(), DeviceError> {
        self.charge(Call::Map, self.extents.of(handles));
        self.device.map(at, handles)?;
        if self.profile.is_some() {
            self.extents.map(at, handles);
        }
        Ok(())
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<(), DeviceError> {
        self.charge(Call::SetAccess, self.extents.within(at, size));
        self.device.set_access(at, size)
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        if self.profile.is_some() {
            let amount = self.extents.unmap(at, size);
            self.charge(Call::Unmap, amount);
        }
        self.device.unmap(at, size);
    }

    fn create_each(
        &mut self,
        size: Bytes,
        count: usize,
        handles: &mut Vec<HandleId>,
    ) -> Result<(), DeviceError> {
        let before = handles.len();
        let outcome = self.device.create_each(size, count, handles);
        if self.profile.is_some() {
            let made = &handles[before..];
            made.iter().for_each(|&handle| self.extents.create(handle, size));
            // The call that failed was made, too.
            let calls = made.len() + usize::from(outcome.is_err());
            self.take(Call::Create, size * (handles.len() - before) as u64);
            self.charge_each(Call::Create, Amount { handles: 1, size }, calls);
        }
        outcome
    }

    fn release_each(&mut self, handles: &[HandleId]) {
        if self.profile.is_some() {
            let rows: Vec<_> = self.extents.rows(handles).collect();
            for (size, count) in rows {
                self.charge_each(Call::Release, Amount { handles: 1, size }, count);
                self.give(size * count as u64);
            }
        }
        self.device.release_each(handles);
    }

    fn set_access_each(
        &mut self,
        at: DevicePtr,
        size: Bytes,
        count: usize,
    ) -> Result<(), DeviceError> {
        if self.extents.are_side_by_side(at, size, count) {
            self.charge_each(Call::SetAccess, Amount { handles: 1, size }, count);
        } else if self.profile.is_some() {
            for number in 0..count as u64 {
                let amount = self.extents.within(at.offset(number * size), size);
                self.charge(Call::SetAccess, amount);
            }
        }
        self.device.set_access_each(at, size, count)
    }

    fn synchronize(&mut self) {
        self.charge(Call::Synchronize, Amount::default());
        self.device.synchronize();
    }

    fn fence(&mut self, stream: StreamId) -> Fence {
        self.charge(Call::EventRecord, Amount::default());
        self.device.fence(stream)
    }

    fn reached(&mut self, fence: Fence) -> bool {
        self.charge(Call::EventQuery, Amount::default());
        self.device.reached(fence)
    }

    fn stream_wait(&mut self, stream: StreamId, fence: Fence) {
        self.charge(Call::StreamWait, Amount::default());
        self.device.stream_wait(stream, fence);
    }

    fn elapse(&mut self, events: u64, ns: u64) {
        self.elapsed_ns += ns;
        self.device.elapse(events, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Line, SimDevice};
    use gmlake_core::units::{GIB, MIB};

    #[test]
    fn the_bill_is_the_sum_of_what_each_call_was_about() {
        let line = |call, handle, mib| Line {
            up_to: None,
            per_call_ns: call,
            per_handle_ns: handle,
            per_mib_ns: mib,
            fit_error: None,
        };
        let mut profile = Profile { stream_wait_ns: 7e6, ..Profile::default() };
        profile.calls.set_access = vec![line(1.0, 100.0, 10.0)];
        profile.calls.unmap = vec![line(0.0, 1.0, 0.0)];
        profile.calls.mem_free = vec![line(0.0, 0.0, 3.0)];
        let mut gpu = Priced::new(SimDevice::new(GIB), Some(profile));
        let at = gpu.reserve(8 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(6 * MIB).unwrap()];
        gpu.map(at, &handles).unwrap();
        gpu.set_access(at, 8 * MIB).unwrap();
        gpu.set_access(at, 2 * MIB).unwrap();
        gpu.unmap(at, 8 * MIB);
        let block = gpu.malloc(4 * MIB).unwrap();
        gpu.free(block);
        assert_eq!(gpu.bill.nanos.set_access, (1 + 200 + 80) + (1 + 100 + 20));
        assert_eq!(gpu.bill.nanos.unmap, 2);
        assert_eq!(gpu.bill.nanos.mem_free, 12 + 7_000_000);
        assert_eq!(gpu.bill.stream_waits, 1);
        assert_eq!(gpu.bill.nanos.total(), 281 + 121 + 2 + 7_000_012);
    }

    #[test]
    fn calls_made_at_once_cost_what_they_cost_one_by_one() {
        let bill = |at_once: bool| {
            let mut gpu = Priced::new(SimDevice::new(8 * MIB), Profile::built_in("h200"));
            let at = gpu.reserve(8 * MIB).unwrap();
            let mut handles = Vec::new();
            if at_once {
                gpu.create_each(2 * MIB, 5, &mut handles).unwrap_err();
            } else {
                handles.extend((0..4).map(|_| gpu.create(2 * MIB).unwrap()));
                gpu.create(2 * MIB).unwrap_err();
            }
            gpu.map(at, &handles).unwrap();
            if at_once {
                gpu.set_access_each(at, 2 * MIB, 4).unwrap();
            } else {
                (0..4).for_each(|i| gpu.set_access(at.offset(i * 2 * MIB), 2 * MIB).unwrap());
            }
            gpu.unmap(at, 8 * MIB);
            if at_once {
                gpu.release_each(&handles);
            } else {
                handles.into_iter().for_each(|handle| gpu.release(handle));
            }
            gpu.bill
        };
        assert_eq!(bill(true), bill(false));
        assert!(bill(true).nanos.total() > 0);
    }
}
