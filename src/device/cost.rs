//! What the driver's calls cost: the model, the measured profiles, and a device that adds them up.
//!
//! A call on an idle GPU is taken to cost a fixed time, plus a time for each handle, plus a time for each MiB:
//!
//! ```text
//!   cuMemSetAccess over 3 handles, 12 MiB  =  per_call + 3 x per_handle + 12 x per_mib
//! ```
//!
//! On an H200 that is within a few per cent (`gmlake-replay calibrate` fits it and states the error). Two things are
//! beside the line. Small `cuMemAlloc`s share pages, and have costs of their own. And `cuMemFree` waits until the GPU
//! has done all that was queued: how long depends on the program, not on the driver, so these waits are counted, and
//! priced only by a stated `stream_wait_ns` for each. None of the other calls waits.

use serde::{Deserialize, Serialize};

use super::call::{Call, PerCall};
use super::extents::{Amount, Extents};
use super::{Device, DeviceError, DevicePtr, Fence, HandleId, MemoryInfo};
use crate::trace::StreamId;
use crate::units::{Bytes, MIB};

/// Time that a call takes on an idle GPU, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallCost {
    /// For each call.
    #[serde(default)]
    pub per_call_ns: f64,
    /// For each handle that it is about.
    #[serde(default)]
    pub per_handle_ns: f64,
    /// For each MiB that it is about.
    #[serde(default)]
    pub per_mib_ns: f64,
    /// How far the measurements lie from this line, relative to them: root of the mean square; `None` if not fitted.
    #[serde(default)]
    pub fit_error: Option<f64>,
}

impl CallCost {
    /// The price of one call in nanoseconds.
    #[inline]
    #[must_use]
    pub fn of(&self, amount: Amount) -> f64 {
        let mib = amount.size as f64 / MIB as f64;
        self.per_call_ns + self.per_handle_ns * amount.handles as f64 + self.per_mib_ns * mib
    }
}

/// The prices of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name, in every output that rests on it.
    pub name: String,
    /// The GPU and its driver.
    pub device: String,
    /// Where the numbers come from.
    pub source: String,
    /// Prices on an idle GPU.
    pub calls: PerCall<CallCost>,
    /// Up to this many bytes, a `cuMemAlloc` and its `cuMemFree` have prices of their own.
    #[serde(default)]
    pub small_limit: Bytes,
    /// A `cuMemAlloc` of at most `small_limit`.
    #[serde(default)]
    pub small_mem_alloc: CallCost,
    /// A `cuMemFree` of at most `small_limit`.
    #[serde(default)]
    pub small_mem_free: CallCost,
    /// Added each time that a call waits for work queued on the GPU; zero if not stated.
    #[serde(default)]
    pub stream_wait_ns: f64,
}

/// Why a profile was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("profile {name:?} is neither {} nor a file that can be read", Profile::built_in_names().join(" nor "))]
    Read {
        /// What was asked for.
        name: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The content is none.
    #[error("not a device profile: {0}; write one with `gmlake-replay calibrate --out FILE`")]
    Content(String),
}

/// Name and content of each profile that comes with this program.
const BUILT_IN: [(&str, &str); 2] = [
    ("h200", include_str!("profiles/h200.json")),
    ("a100-paper", include_str!("profiles/a100-paper.json")),
];

impl Profile {
    /// Names of the profiles that come with this program.
    #[must_use]
    pub fn built_in_names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|&(name, _)| name).collect()
    }

    /// A profile that comes with this program.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(other, _)| *other == name)?;
        Some(Self::from_json(text).expect("a test reads every profile that we ship"))
    }

    /// The built-in profile of this name, or the one in the file of this name.
    ///
    /// # Errors
    /// If it is neither.
    pub fn open(name: &str) -> Result<Self, ProfileError> {
        if let Some(profile) = Self::built_in(name) {
            return Ok(profile);
        }
        let text = std::fs::read_to_string(name)
            .map_err(|source| ProfileError::Read { name: name.to_owned(), source })?;
        Self::from_json(&text).map_err(|error| match error {
            ProfileError::Content(problem) => ProfileError::Content(format!("{name}: {problem}")),
            read @ ProfileError::Read { .. } => read,
        })
    }

    /// Reads a profile from JSON.
    ///
    /// # Errors
    /// If it is not JSON, lacks a call, or holds a price that is negative or not a number.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let profile: Self =
            serde_json::from_str(text).map_err(|error| ProfileError::Content(error.to_string()))?;
        let costs = profile.calls.rows().map(|(call, cost)| (call.name(), cost)).chain([
            ("small_mem_alloc", &profile.small_mem_alloc),
            ("small_mem_free", &profile.small_mem_free),
        ]);
        for (name, cost) in costs {
            let prices = [cost.per_call_ns, cost.per_handle_ns, cost.per_mib_ns];
            if prices.iter().any(|price| !price.is_finite() || *price < 0.0) {
                let problem = format!("price of {name} is negative or not a number");
                return Err(ProfileError::Content(problem));
            }
        }
        if !profile.stream_wait_ns.is_finite() || profile.stream_wait_ns < 0.0 {
            let problem = "stream_wait_ns is negative or not a number".to_owned();
            return Err(ProfileError::Content(problem));
        }
        Ok(profile)
    }

    /// The price of one call in nanoseconds, waiting for the GPU not included. A `map` is one call for each handle.
    #[inline]
    #[must_use]
    pub fn price(&self, call: Call, amount: Amount) -> f64 {
        match call {
            Call::MemAlloc if amount.size <= self.small_limit => self.small_mem_alloc.of(amount),
            Call::MemFree if amount.size <= self.small_limit => self.small_mem_free.of(amount),
            _ => self.calls[call].of(amount),
        }
    }
}

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
}

impl<D> Priced<D> {
    /// A device that has cost nothing yet; without a profile it never will, and nothing is kept of its calls.
    pub fn new(device: D, profile: Option<Profile>) -> Self {
        Self { device, bill: Bill::default(), profile, extents: Extents::default() }
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
    fn memory_info(&self) -> MemoryInfo {
        self.device.memory_info()
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr, DeviceError> {
        self.charge(Call::MemAlloc, Amount { handles: 1, size });
        let at = self.device.malloc(size)?;
        if self.profile.is_some() {
            self.extents.malloc(at, size);
        }
        Ok(at)
    }

    fn free(&mut self, at: DevicePtr) {
        if self.profile.is_some() {
            let amount = self.extents.free(at);
            self.charge(Call::MemFree, amount);
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
        if self.profile.is_some() {
            self.extents.create(handle, size);
        }
        Ok(handle)
    }

    fn release(&mut self, handle: HandleId) {
        self.charge(Call::Release, self.extents.of(&[handle]));
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
            self.charge_each(Call::Create, Amount { handles: 1, size }, calls);
        }
        outcome
    }

    fn release_each(&mut self, handles: &[HandleId]) {
        if self.profile.is_some() {
            let rows: Vec<_> = self.extents.rows(handles).collect();
            for (size, count) in rows {
                self.charge_each(Call::Release, Amount { handles: 1, size }, count);
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

    fn drop_fence(&mut self, fence: Fence) {
        self.device.drop_fence(fence);
    }

    fn elapse(&mut self, events: u64) {
        self.device.elapse(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
    use crate::units::GIB;

    #[test]
    fn every_profile_that_we_ship_can_be_read_and_names_itself() {
        for name in Profile::built_in_names() {
            let profile = Profile::built_in(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(!profile.source.is_empty() && !profile.device.is_empty());
            for (call, cost) in profile.calls.rows() {
                let amount = Amount { handles: 1, size: 2 * MIB };
                let is_for_memory = call < Call::Synchronize;
                assert!(!is_for_memory || cost.of(amount) > 0.0, "{name}: {call:?}");
            }
            let again = serde_json::to_string(&profile).unwrap();
            assert_eq!(Profile::from_json(&again).unwrap(), profile);
        }
    }

    #[test]
    fn a_bad_profile_is_refused_with_a_reason() {
        let negative = include_str!("profiles/h200.json").replacen(
            "\"per_call_ns\": ",
            "\"per_call_ns\": -",
            1,
        );
        for text in ["", "{}", "{\"name\": 3}", negative.as_str()] {
            let error = Profile::from_json(text).unwrap_err().to_string();
            assert!(error.starts_with("not a device profile: ") && !error.contains('\n'));
        }
    }

    #[test]
    fn the_bill_is_the_sum_of_what_each_call_was_about() {
        let cost = |call, handle, mib| CallCost {
            per_call_ns: call,
            per_handle_ns: handle,
            per_mib_ns: mib,
            fit_error: None,
        };
        let mut profile = Profile { stream_wait_ns: 7e6, ..Profile::default() };
        profile.calls.set_access = cost(1.0, 100.0, 10.0);
        profile.calls.unmap = cost(0.0, 1.0, 0.0);
        profile.calls.mem_free = cost(0.0, 0.0, 3.0);
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

    /// The paper's Table 1 (2 GiB in chunks of 2 and 128 MiB), which its profile is made to follow.
    #[test]
    fn the_paper_profile_follows_the_papers_table() {
        let profile = Profile::built_in("a100-paper").unwrap();
        let unit = profile.price(Call::MemAlloc, Amount { handles: 1, size: 2 * GIB });
        let total = |chunk: Bytes| {
            let handles = 2 * GIB / chunk;
            let one = Amount { handles: 1, size: chunk };
            let all = Amount { handles, size: 2 * GIB };
            let create = profile.price(Call::Create, one) * handles as f64;
            (create + profile.price(Call::Map, all) + profile.price(Call::SetAccess, all)) / unit
        };
        assert!((total(2 * MIB) / 115.4 - 1.0).abs() < 0.1, "{}", total(2 * MIB));
        assert!(total(128 * MIB) < 12.0 && total(128 * MIB) > 3.0, "{}", total(128 * MIB));
    }
}
