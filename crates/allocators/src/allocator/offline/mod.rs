//! `offline`: a plan made from the whole trace, before it runs, as compilers make it for a program that is known.
//!
//! Every request of the trace has its place in one region, which comes from the device with the first of them. It is a
//! bound that is reached: no allocator that learns of a request when it comes can be expected to do better, and
//! `bound` says how much better any could do. What is not in the plan goes to `cuMemAlloc`: all requests where
//! what is to come is not known, and all if the device has no room for the region.
//!
//! ```text
//!   trace ──lifetimes──▶ plan: request 0 at 0, request 1 at 6 MiB, ...      one region, as high as the plan
//! ```
//!
//! The idea is STAlloc's and minimalloc's (Moffitt, ASPLOS 2023). It cannot run inside PyTorch, which does not know the
//! future.

mod busy;
mod crowds;
mod plan;
mod search;
mod span;

use std::collections::BTreeMap;

use self::plan::{Plan, plan};
use super::last_users::LastUsers;
use super::pool::{Place, Policy};
use super::spec::settings;
use super::{BlockView, Counter};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use crate::holes::gaps;
use gmlake_core::program::{Lifetime, StreamId};
use gmlake_core::units::{Bytes, round_up};

settings! {
    OfflineOptions {
        /// By default the alignment that PyTorch relies on.
        rounding: Bytes = size("rounding", "512"), "sizes are rounded up to this";
        nodes: u64 = whole("nodes", "0"),
            "nodes of a search for lower plans, such as 100000, for a few hundred blocks";
    }
}

/// Serves requests as planned.
#[derive(Debug, Clone, Default)]
pub(super) struct Offline {
    options: OfflineOptions,
    plan: Plan,
    /// Requests so far.
    requests: usize,
    region: Option<DevicePtr>,
    /// Places in the region that are taken, by address.
    taken: BTreeMap<u64, Bytes>,
    /// Bytes held outside of the region.
    unplanned: Bytes,
    users: LastUsers,
    planned: u64,
}

impl Offline {
    pub(super) fn new(options: OfflineOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The region. If the device has no room for it, there is no plan.
    fn region(&mut self, device: &mut dyn Device) -> Result<Option<DevicePtr>> {
        if self.region.is_none() {
            match device.malloc(self.plan.height) {
                Ok(at) => self.region = Some(at),
                Err(DeviceError::OutOfMemory { .. }) => self.plan = Plan::default(),
                Err(error) => return Err(error),
            }
        }
        Ok(self.region)
    }

    /// Where the plan has the present request, if it is in the plan and nothing is there.
    fn planned(&mut self, device: &mut dyn Device, size: Bytes) -> Result<Option<DevicePtr>> {
        let offset = self.requests.checked_sub(1).and_then(|number| self.plan.places.get(number));
        let Some(offset) = offset.copied().flatten() else { return Ok(None) };
        let Some(region) = self.region(device)? else { return Ok(None) };
        let at = region.offset(offset);
        let last = self.taken.range(..at.0 + size).next_back();
        let is_free = last.is_none_or(|(&start, &its_size)| start + its_size <= at.0);
        Ok(Some(at).filter(|_| is_free && offset + size <= self.plan.height))
    }

    fn is_inside(&self, at: DevicePtr) -> bool {
        self.region.is_some_and(|region| region <= at && at.0 < region.0 + self.plan.height)
    }
}

impl Policy for Offline {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, self.options.rounding.max(1))
    }

    fn note_request(&mut self) {
        self.requests += 1;
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        if let Some(at) = self.planned(device, size)? {
            self.users.take(device, (at, size), stream);
            self.taken.insert(at.0, size);
            self.planned += 1;
            return Ok(Place { at, size });
        }
        let at = device.malloc(size)?;
        self.unplanned += size;
        Ok(Place { at, size })
    }

    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId) {
        if self.is_inside(place.at) {
            self.taken.remove(&place.at.0);
            self.users.note(place.at, place.size, stream);
        } else {
            self.unplanned -= place.size;
            device.free(place.at);
        }
    }

    fn trim(&mut self, device: &mut dyn Device) {
        if self.taken.is_empty()
            && let Some(region) = self.region.take()
        {
            self.users.forget(region, self.plan.height);
            device.free(region);
        }
    }

    fn held(&self) -> Bytes {
        self.unplanned + if self.region.is_some() { self.plan.height } else { 0 }
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.region.filter(|_| self.is_inside(at)).unwrap_or(at)
    }

    fn free(&self) -> Vec<BlockView> {
        let region = self.region.map_or(0..0, |region| region.0..region.0 + self.plan.height);
        let gaps = gaps(region, self.taken.iter().map(|(&at, &size)| (at, size)));
        gaps.into_iter().map(|gap| BlockView::gap(gap, StreamId(0))).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("planned", self.planned), ("stream waits", self.users.waits)]
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        if self.region.is_some() {
            return;
        }
        let mut lives = lifetimes();
        for life in &mut lives {
            life.size = self.round(life.size);
            // What failed in the recording is tried, and given back at once.
            life.upper = life.upper.max(life.lower + 1);
        }
        self.plan = plan(&lives, self.options.nodes);
        self.requests = 0;
    }
}
