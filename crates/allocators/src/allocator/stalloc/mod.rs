//! `stalloc`: STAlloc, a plan from a profiled run, and what the plan does not know from elsewhere.
//!
//! The planner sees the set-up and three iterations of a job ([`profile`]) and gives each request above 512 bytes its
//! place in one static region ([`layers`]). In the run that follows, request number n gets the place of number n, and
//! after iteration 1 its places come again and again. A request of another size than planned, or whose place is taken,
//! goes to a caching allocator like PyTorch's; requests up to 512 bytes go to one of blocks of that size.
//!
//! ```text
//!   profile   set-up │ iteration 0 │ iteration 1 │ iteration 2      ──plan──▶  static region, places
//!   run       set-up │ iteration 0 │ iteration 1 │ iteration 1 again │ iteration 1 again │ ...
//!             size as planned ─▶ static region     else ─▶ what is spare there, if sizes vary ─▶ caching
//! ```
//!
//! Requests whose sizes vary are the dynamic part: they are not planned, and take the best fit among the addresses that
//! the plan leaves free for as long as they lived in the profile, and that are free now.
//!
//! From infinigence/STAlloc (Apache-2.0, 3a9f97f), the artifact of Huang et al., EuroSys 2026: `Synthesizer/`,
//! `Allocator/main.cpp`, `StaticAllocator.hpp`, `VarAllocator.hpp`, `OnlineDynamicManager.hpp`. What differs:
//!
//! - The profile is the beginning of the recording itself: the run that follows is the same one. A recording without
//!   two whole steps has no plan, and all its requests go to the caching allocator.
//! - Iterations are the steps that were found in the recording; there they are marked by hooks.
//! - Dynamic requests there are those of MoE layers, which hooks mark. A recording has no layers: here they are those
//!   of iteration 1 that have another size in iteration 2.
//! - There streams are ignored ("TODO:: process cudaStream_t"). Here the next stream waits for the last user.
//! - The caching allocator is PyTorch's as it is here. Theirs has segments of 10 MiB and more in steps of 512 bytes.
//! - Not here: the planner's group algorithm, the fusing of MLP layers, evaluation, and the choice among plans.

mod layers;
mod profile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use self::profile::{Entry, Plan, UNIT, plan};
use super::last_users::LastUsers;
use super::pool::{Place, Policy};
use super::spec::settings;
use super::{
    AllocError, Allocator, BlockId, BlockUse, BlockView, Caching, Counter, Environment, Request,
};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use crate::holes::gaps;
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::program::{Lifetime, PoolId, StreamId};
use gmlake_core::units::{Bytes, round_up};

settings! {
    StAllocOptions {
        reuse: bool = switch("reuse", "on"),
            "requests whose sizes vary use what the plan leaves free";
    }
}

/// Memory that is held from the first request on.
#[derive(Debug, Clone, Copy)]
struct Region {
    at: DevicePtr,
    size: Bytes,
}

impl Region {
    fn range(&self) -> Range<u64> {
        self.at.0..self.at.0 + self.size
    }

    fn holds(&self, at: DevicePtr) -> bool {
        self.range().contains(&at.0)
    }
}

/// Blocks of 512 bytes: those that are free, the last one first.
#[derive(Debug, Clone, Default)]
struct Small {
    regions: Vec<Region>,
    free: Vec<DevicePtr>,
}

impl Small {
    fn size(&self) -> Bytes {
        self.regions.iter().map(|region| region.size).sum()
    }

    /// Holds as much again, or `first` bytes.
    fn grow(&mut self, device: &mut dyn Device, first: Bytes) -> Result<()> {
        let size = if self.regions.is_empty() { first } else { self.size() };
        let at = device.malloc(size)?;
        self.regions.push(Region { at, size });
        self.free.extend((0..size / UNIT).map(|number| at.offset(number * UNIT)));
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.free.len() as u64 * UNIT == self.size()
    }
}

/// Where a request goes.
#[derive(Debug, Clone)]
enum Way {
    Small,
    Planned(Bytes),
    Spare(usize),
    Cached,
}

/// STAlloc's allocator, with a plan.
pub(super) struct StAlloc {
    options: StAllocOptions,
    plan: Option<Plan>,
    /// Requests above 512 bytes so far, and the entry that comes next.
    requests: usize,
    next: usize,
    /// The way of the present request; none before it is known.
    way: Option<Way>,
    region: Option<Region>,
    /// Places in the region that are taken, by address.
    taken: BTreeMap<u64, Bytes>,
    small: Small,
    caching: Caching,
    cached: BTreeMap<u64, BlockId>,
    users: LastUsers,
    planned: u64,
    spared: u64,
    unplanned: u64,
}

impl StAlloc {
    pub(super) fn new(options: StAllocOptions, environment: &Environment) -> Self {
        let Environment { version, total_memory, .. } = *environment;
        let stock = Environment::new(AllocConf::default());
        let stock = Environment { version, total_memory, ..stock };
        Self {
            options,
            plan: None,
            requests: 0,
            next: 0,
            way: None,
            region: None,
            taken: BTreeMap::new(),
            small: Small::default(),
            caching: Caching::new(&stock),
            cached: BTreeMap::new(),
            users: LastUsers::default(),
            planned: 0,
            spared: 0,
            unplanned: 0,
        }
    }

    /// Where the region of the plan and those of small requests begin.
    #[cfg(test)]
    fn segments(&self) -> Vec<DevicePtr> {
        self.region.iter().chain(&self.small.regions).map(|region| region.at).collect()
    }

    /// Gets the memory of the plan, with the first request of all.
    fn begin(&mut self, device: &mut dyn Device) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        if self.region.is_none() {
            let size = plan.size.max(UNIT);
            self.region = Some(Region { at: device.malloc(size)?, size });
        }
        if self.small.regions.is_empty() {
            self.small.grow(device, (2 * plan.small).max(UNIT))?;
        }
        Ok(())
    }

    /// The way of the next request, which counts from now on.
    fn choose(&mut self, size: Bytes) -> Way {
        let Some(plan) = &self.plan else { return Way::Cached };
        if size <= UNIT {
            return Way::Small;
        }
        self.requests += 1;
        if plan.unreleased.contains(&(self.requests - 1)) {
            return Way::Cached;
        }
        let number = self.next;
        self.next = if number + 1 == plan.entries.len() { plan.first } else { number + 1 };
        match plan.entries[number] {
            Entry::Fixed { offset, size: planned } if planned == size => Way::Planned(offset),
            Entry::Varied { .. } if self.options.reuse => Way::Spare(number),
            Entry::Fixed { .. } | Entry::Varied { .. } => Way::Cached,
        }
    }

    /// Free parts of a range of the region.
    fn free_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.taken.range(..range.start).next_back();
        let met = before.into_iter().chain(self.taken.range(range.clone()));
        gaps(range, met.map(|(&at, &size)| (at, size)))
    }

    /// Where a request is served in the region, if it is.
    fn inside(&self, way: &Way, size: Bytes) -> Option<DevicePtr> {
        let Region { at: base, size: limit } = self.region?;
        match *way {
            Way::Planned(offset) => {
                let place = base.0 + offset..base.0 + offset + size;
                let is_free = offset + size <= limit && self.free_in(place.clone()) == [place];
                is_free.then_some(base.offset(offset))
            }
            Way::Spare(number) => {
                let Entry::Varied { spare } = &self.plan.as_ref()?.entries[number] else {
                    return None;
                };
                let places = spare.iter().map(|part| base.0 + part.start..base.0 + part.end);
                let now = places.flat_map(|place| self.free_in(place));
                let fitting = now.filter(|free| free.end - free.start >= size);
                fitting.min_by_key(|free| free.end - free.start).map(|free| DevicePtr(free.start))
            }
            Way::Small | Way::Cached => None,
        }
    }

    fn take_small(&mut self, device: &mut dyn Device) -> Result<DevicePtr> {
        if self.small.free.is_empty() {
            self.small.grow(device, UNIT)?;
        }
        Ok(self.small.free.pop().expect("it has grown"))
    }

    fn take_cached(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Place> {
        let request = Request { size, stream, pool: PoolId::DEFAULT };
        let given = self.caching.malloc(device, request).map_err(|error| match error {
            AllocError::OutOfMemory { requested, .. } => {
                DeviceError::OutOfMemory { requested, free: device.memory_info().free }
            }
            AllocError::Device(error) => error,
        })?;
        self.cached.insert(given.at.0, given.block);
        self.unplanned += 1;
        Ok(Place { at: given.at, size: given.size })
    }
}

impl Policy for StAlloc {
    fn round(&self, size: Bytes) -> Bytes {
        size
    }

    fn note_request(&mut self) {
        self.way = None;
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let way = match self.way.take() {
            Some(way) => way,
            None => self.choose(size),
        };
        self.way = Some(way.clone());
        self.begin(device)?;
        let bytes = round_up(size, UNIT);
        let at = match way {
            Way::Small => self.take_small(device)?,
            _ => match self.inside(&way, bytes) {
                None => return self.take_cached(device, size, stream),
                Some(at) => {
                    self.taken.insert(at.0, bytes);
                    self.planned += u64::from(matches!(way, Way::Planned(_)));
                    self.spared += u64::from(matches!(way, Way::Spare(_)));
                    at
                }
            },
        };
        self.users.take(device, (at, bytes), stream);
        Ok(Place { at, size: bytes })
    }

    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId) {
        if let Some(block) = self.cached.remove(&place.at.0) {
            self.caching.free(device, block);
            return;
        }
        self.users.note(place.at, place.size, stream);
        if self.region.is_some_and(|region| region.holds(place.at)) {
            self.taken.remove(&place.at.0);
        } else {
            self.small.free.push(place.at);
        }
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.caching.trim(device);
        if self.taken.is_empty() && self.small.is_idle() {
            for region in self.small.regions.drain(..).chain(self.region.take()) {
                self.users.forget(region.at, region.size);
                device.free(region.at);
            }
            self.small.free.clear();
        }
    }

    fn held(&self) -> Bytes {
        let region = self.region.map_or(0, |region| region.size);
        region + self.small.size() + self.caching.usage().reserved
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        let own = self.region.iter().chain(&self.small.regions).find(|region| region.holds(at));
        own.map(|region| region.at).unwrap_or_else(|| {
            let cached = self.caching.blocks().into_iter().find(|view| view.at == at);
            cached.map_or(at, |view| view.segment)
        })
    }

    fn free(&self) -> Vec<BlockView> {
        let stream = StreamId(0);
        let region = self.region.map_or(0..0, |region| region.range());
        let planned = self.free_in(region).into_iter().map(|gap| BlockView::gap(gap, stream));
        let small = self.small.free.iter().map(|&at| BlockView::free(at, UNIT, stream));
        let cached = self.caching.blocks().into_iter();
        let cached = cached.filter(|view| view.state == BlockUse::Free);
        let cached = cached.map(|view| BlockView::free(view.at, view.size, view.stream));
        planned.chain(small).chain(cached).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            ("planned", self.planned),
            ("spare", self.spared),
            ("unplanned", self.unplanned),
            ("stream waits", self.users.waits),
        ]
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        if self.region.is_none() && self.cached.is_empty() {
            self.plan = plan(&lifetimes());
            (self.requests, self.next) = (0, 0);
        }
    }
}
