//! Guests: allocators of other people, which decide where memory comes from and know nothing of us.
//!
//! A guest serves requests and takes memory back; ids, accounts, frees that wait for other streams and the second
//! attempt when memory is short are the [`Pool`]'s. Nothing that a guest says is believed: what it holds is what it
//! obtained from the device ([`Record`]), and what it hands out must lie in that and in nobody's hands.
//!
//! ```text
//!   Pool ──take/give──▶ Visit: is it backed? is it free? ──▶ Guest ──memory calls──▶ Record ──▶ device
//! ```

use std::collections::BTreeMap;
use std::sync::RwLock;

use super::pool::{Place, Policy, Pool};
use super::quietly::quietly;
use super::{Allocator, BlockView, Spec};
use crate::device::{Device, DeviceError, DevicePtr, Record, Result};
use crate::holes::gaps;
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, Size};

/// What a guest hands out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given {
    /// Address of the first byte.
    pub at: DevicePtr,
    /// Bytes, at least those requested.
    pub size: Bytes,
    /// A word of the guest's own, which it gets back with the free.
    pub tag: u64,
}

/// An allocator that plays by rules of its own. Each call hands it the device.
pub trait Guest: Send {
    /// Serves a request; `None`: memory is short.
    ///
    /// # Errors
    /// What the guest did wrong.
    fn allocate(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Option<Given>, String>;

    /// Takes back what it handed out; what `stream` has queued may still use it, and nothing else.
    ///
    /// # Errors
    /// What the guest did wrong.
    fn free(
        &mut self,
        device: &mut dyn Device,
        given: Given,
        stream: StreamId,
    ) -> Result<(), String>;

    /// Gives back to the device what it need not hold.
    ///
    /// # Errors
    /// What the guest did wrong.
    fn empty_cache(&mut self, _device: &mut dyn Device) -> Result<(), String> {
        Ok(())
    }
}

/// A guest as an allocator.
pub fn hosted(guest: Box<dyn Guest>) -> Box<dyn Allocator> {
    Box::new(Pool::of(Visit {
        guest,
        record: Record::default(),
        live: BTreeMap::new(),
        fault: None,
    }))
}

/// A guest, and all that it holds.
struct Visit {
    guest: Box<dyn Guest>,
    record: Record,
    /// What it handed out, by address.
    live: BTreeMap<DevicePtr, Given>,
    fault: Option<String>,
}

impl Visit {
    /// Carries out a call, unless there was a fault.
    fn call<T>(
        &mut self,
        device: &mut dyn Device,
        work: impl FnOnce(&mut dyn Guest, &mut dyn Device) -> Result<T, String>,
    ) -> Result<T> {
        let Self { guest, record, fault, .. } = self;
        if fault.is_none() {
            match quietly(|| work(guest.as_mut(), &mut record.watch(device))) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(reason)) | Err(reason) => *fault = Some(reason),
            }
        }
        Err(self.refusal())
    }

    fn refusal(&self) -> DeviceError {
        let reason = self.fault.clone().unwrap_or_default();
        DeviceError::Driver { call: "the plug-in", reason }
    }

    /// Why the guest may not hand this out.
    fn objection(&self, given: Given, size: Bytes) -> Option<String> {
        let Given { at, size: length, .. } = given;
        let what = format!("it returned {at} for {}", Size(size));
        if at == DevicePtr(0) {
            return Some(format!("{what}, which is no address"));
        }
        if length < size || at.0.checked_add(length).is_none() {
            return Some(format!(
                "{what}, with a size of {length} bytes where {size} were requested"
            ));
        }
        if let Some((other, held)) = self.live.range(..at.offset(length)).next_back()
            && other.offset(held.size) > at
        {
            return Some(format!(
                "{what}, which overlaps {other}, in use with {}",
                Size(held.size)
            ));
        }
        let why = self.record.translate(at, length).err()?;
        Some(format!("{what}, which has no memory: {why}"))
    }
}

impl Policy for Visit {
    fn round(&self, size: Bytes) -> Bytes {
        size
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let given = self.call(device, |guest, device| guest.allocate(device, size, stream))?;
        let Some(given) = given else {
            return Err(DeviceError::OutOfMemory { requested: size, free: 0 });
        };
        if let Some(reason) = self.objection(given, size) {
            self.fault = Some(reason);
            return Err(self.refusal());
        }
        self.live.insert(given.at, given);
        Ok(Place { at: given.at, size: given.size })
    }

    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId) {
        let Some(given) = self.live.remove(&place.at) else { return };
        // The fault is noted.
        let _ = self.call(device, |guest, device| guest.free(device, given, stream));
    }

    fn trim(&mut self, device: &mut dyn Device) {
        let _ = self.call(device, |guest, device| guest.empty_cache(device));
    }

    fn held(&self) -> Bytes {
        self.record.physical()
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        let ranges = self.record.ranges_until(at);
        ranges
            .filter(|&(base, size)| at < base.offset(size))
            .map(|(base, _)| base)
            .max()
            .unwrap_or(at)
    }

    /// What is mapped and in nobody's hands. Memory that is mapped nowhere has no address to show.
    fn free(&self) -> Vec<BlockView> {
        let free_in = |(base, size): (DevicePtr, Bytes)| {
            let end = base.offset(size);
            let before = self.live.range(..base).next_back();
            let met = before.into_iter().chain(self.live.range(base..end));
            gaps(base.0..end.0, met.map(|(at, given)| (at.0, given.size)))
        };
        let gaps = self.record.backed().flat_map(free_in);
        gaps.map(|gap| BlockView::gap(gap, StreamId(0))).collect()
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

/// Plug-ins that this process has loaded, in that order. They stay: their code cannot be taken out again.
static GUESTS: RwLock<Vec<&'static Spec>> = RwLock::new(Vec::new());

/// Makes a plug-in known by its name.
///
/// # Errors
/// If another allocator has the name.
pub fn admit(spec: &'static Spec) -> Result<(), String> {
    if super::find(spec.name).is_some() {
        return Err(format!("there is an allocator {:?} already", spec.name));
    }
    let mut guests = GUESTS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    guests.push(spec);
    Ok(())
}

/// The names of all that were loaded.
pub(super) fn names() -> Vec<&'static str> {
    let guests = GUESTS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    guests.iter().map(|spec| spec.name).collect()
}

/// The plug-in with this name.
pub(super) fn find(name: &str) -> Option<&'static Spec> {
    let guests = GUESTS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    guests.iter().copied().find(|spec| spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::{AllocError, Request};
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::program::PoolId;
    use gmlake_core::units::MIB;

    /// Asks the device for every request, and lies about it.
    struct Liar(fn(Given) -> Given);

    impl Guest for Liar {
        fn allocate(
            &mut self,
            device: &mut dyn Device,
            size: Bytes,
            _: StreamId,
        ) -> Result<Option<Given>, String> {
            let at = device.malloc(size).map_err(|error| error.to_string())?;
            Ok(Some(self.0(Given { at, size, tag: 0 })))
        }

        fn free(
            &mut self,
            device: &mut dyn Device,
            given: Given,
            _: StreamId,
        ) -> Result<(), String> {
            device.free(given.at);
            Ok(())
        }
    }

    fn fault_of(lie: fn(Given) -> Given) -> Option<String> {
        let mut allocator = hosted(Box::new(Liar(lie)));
        let mut gpu = SimDevice::new(64 * MIB);
        let request = Request { size: MIB, stream: StreamId(0), pool: PoolId::DEFAULT };
        for _ in 0..2 {
            match allocator.malloc(&mut gpu, request) {
                Ok(given) => allocator.free(&mut gpu, given.block),
                Err(AllocError::OutOfMemory { .. }) => panic!("memory is not short"),
                Err(AllocError::Device(_)) => {}
            }
        }
        allocator.fault().map(str::to_owned)
    }

    #[test]
    fn every_lie_is_found() {
        assert_eq!(fault_of(|given| given), None);
        for (lie, what) in [
            ((|given| Given { at: DevicePtr(0), ..given }) as fn(Given) -> Given, "no address"),
            (|given| Given { size: 5, ..given }, "a size of 5 bytes"),
            (|given| Given { size: u64::MAX, ..given }, "a size of"),
            (|given| Given { at: given.at.offset(1 << 30), ..given }, "has no memory"),
            (|given| Given { at: given.at.offset(512), ..given }, "has no memory"),
        ] {
            let fault = fault_of(lie).unwrap_or_default();
            assert!(fault.contains(what), "{what}: {fault}");
        }
    }
}
