//! Memory that is given back while its program sleeps, and addresses that stay.
//!
//! ```text
//!   awake    address range ──▶ handle a ─ handle b      what an allocator knows: numbers of its own, 0, 1, ...
//!   asleep   address range     (0) (1)                  the numbers stay, the memory is gone; contents may be kept
//!   awake    address range ──▶ handle c ─ handle d      new memory, mapped where the old was, under the same numbers
//! ```
//!
//! Each handle has the label that was current when it was made: what sleeps is a label's handles. While they do, an
//! allocator may give them back (its tensors died) but not map them.

use std::collections::BTreeMap;

use gmlake_allocators::device::{Device, DevicePtr, HandleId, Result, forward};
use gmlake_core::units::Bytes;

/// Whose memory it is.
pub(super) type Label = u32;

/// Contents that were kept, as the keeper knows them.
pub(super) type Kept = u64;

/// What an allocator knows as one handle.
#[derive(Debug, Clone, Copy)]
struct Handle {
    /// The device's; `None` while it sleeps.
    awake: Option<HandleId>,
    size: Bytes,
    label: Label,
    kept: Option<Kept>,
    /// Places where it is mapped.
    mappings: u32,
    /// Given up by its allocator: it lives as long as its mappings.
    is_released: bool,
}

/// A device whose mapped memory can sleep.
#[derive(Debug)]
pub struct Sleeper<D> {
    /// The device itself.
    pub(super) device: D,
    /// The label of handles that are made from now on.
    pub(super) label: Label,
    handles: Vec<Option<Handle>>,
    vacant: Vec<HandleId>,
    mappings: BTreeMap<DevicePtr, HandleId>,
    /// Contents that are not wanted any more, for the keeper to drop.
    pub(super) unwanted: Vec<Kept>,
}

impl<D: Device> Sleeper<D> {
    /// A device of which nothing is held.
    pub(super) fn new(device: D) -> Self {
        let (handles, vacant, unwanted) = (Vec::new(), Vec::new(), Vec::new());
        Self { device, label: 0, handles, vacant, mappings: BTreeMap::new(), unwanted }
    }

    /// Bytes of memory with this label that sleep.
    pub(super) fn asleep(&self, label: Label) -> Bytes {
        let handles = self.handles.iter().flatten();
        handles.filter(|it| it.label == label && it.awake.is_none()).map(|it| it.size).sum()
    }

    /// Gives the memory of a label back. Contents go to `keep`, if there is one, before anything is taken away: where
    /// it fails, all stay awake. Nothing may be queued that still uses the memory.
    pub(super) fn sleep(
        &mut self,
        label: Label,
        mut keep: Option<&mut dyn FnMut(DevicePtr, Bytes) -> Option<Kept>>,
    ) -> bool {
        if let Some(keep) = &mut keep
            && !self.keep_all(label, *keep)
        {
            return false;
        }
        for (at, size) in self.mapped(label) {
            self.device.unmap(at, size);
        }
        for handle in self.handles.iter_mut().flatten().filter(|it| it.label == label) {
            if let Some(awake) = handle.awake.take()
                && !handle.is_released
            {
                self.device.release(awake);
            }
        }
        true
    }

    fn keep_all(
        &mut self,
        label: Label,
        keep: &mut dyn FnMut(DevicePtr, Bytes) -> Option<Kept>,
    ) -> bool {
        for (at, id) in self.mappings.clone() {
            let handle = self.handle(id);
            // A handle that is mapped twice is kept once.
            if handle.label != label || handle.awake.is_none() || handle.kept.is_some() {
                continue;
            }
            let Some(kept) = keep(at, handle.size) else {
                self.forget_kept(label);
                return false;
            };
            self.handle_mut(id).kept = Some(kept);
        }
        true
    }

    fn forget_kept(&mut self, label: Label) {
        for handle in self.handles.iter_mut().flatten().filter(|it| it.label == label) {
            self.unwanted.extend(handle.kept.take());
        }
    }

    /// Gives a label memory again, where it was, and its contents to `fill`. Fails if there is not enough memory, or
    /// the driver fails; all sleep on.
    pub(super) fn wake(
        &mut self,
        label: Label,
        fill: &mut dyn FnMut(DevicePtr, Kept),
    ) -> Result<()> {
        let sleeping: Vec<_> = (0..self.handles.len() as u32)
            .map(HandleId)
            .filter(|&id| {
                self.handles[id.0 as usize]
                    .is_some_and(|it| it.label == label && it.awake.is_none())
            })
            .collect();
        for &id in &sleeping {
            match self.device.create(self.handle(id).size) {
                Ok(awake) => self.handle_mut(id).awake = Some(awake),
                Err(error) => {
                    self.put_back(&sleeping);
                    return Err(error);
                }
            }
        }
        if let Err(error) = self.map_again(label) {
            self.put_back(&sleeping);
            return Err(error);
        }
        for &id in &sleeping {
            let Handle { awake, is_released, .. } = self.handle(id);
            if let Some(awake) = awake.filter(|_| is_released) {
                self.device.release(awake);
            }
        }
        for (&at, &id) in &self.mappings {
            let handle = self.handles[id.0 as usize].as_mut().expect("mapped handles are known");
            if handle.label == label
                && let Some(kept) = handle.kept.take()
            {
                fill(at, kept);
                self.unwanted.push(kept);
            }
        }
        Ok(())
    }

    /// Maps all handles of a label, range by range.
    fn map_again(&mut self, label: Label) -> Result<()> {
        let ranges = self.mapped(label);
        for (number, &(at, size)) in ranges.iter().enumerate() {
            let inside = self.mappings.range(at..at.offset(size));
            let handles: Vec<_> =
                inside.map(|(_, &id)| self.handle(id).awake.expect("it was made")).collect();
            if let Err(error) = self.device.map_for_use(at, &handles, size) {
                for &(at, size) in &ranges[..number] {
                    self.device.unmap(at, size);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn put_back(&mut self, handles: &[HandleId]) {
        for &id in handles {
            if let Some(awake) = self.handle_mut(id).awake.take() {
                self.device.release(awake);
            }
        }
    }

    /// The mapped ranges of a label, as long as they can be.
    fn mapped(&self, label: Label) -> Vec<(DevicePtr, Bytes)> {
        let mut ranges: Vec<(DevicePtr, Bytes)> = Vec::new();
        for (&at, &id) in &self.mappings {
            let Handle { size, label: of, .. } = self.handle(id);
            if of != label {
                continue;
            }
            match ranges.last_mut() {
                Some((start, length)) if start.offset(*length) == at => *length += size,
                _ => ranges.push((at, size)),
            }
        }
        ranges
    }

    fn handle(&self, id: HandleId) -> Handle {
        self.handles[id.0 as usize].expect("the allocator holds this handle")
    }

    fn handle_mut(&mut self, id: HandleId) -> &mut Handle {
        self.handles[id.0 as usize].as_mut().expect("the allocator holds this handle")
    }

    fn forget_if_gone(&mut self, id: HandleId) {
        let handle = self.handle_mut(id);
        if handle.is_released && handle.mappings == 0 {
            let kept = handle.kept.take();
            self.unwanted.extend(kept);
            self.handles[id.0 as usize] = None;
            self.vacant.push(id);
        }
    }

    fn is_asleep(&self, at: DevicePtr, size: Bytes) -> bool {
        let mut inside = self.mappings.range(at..at.offset(size));
        inside.any(|(_, &id)| self.handle(id).awake.is_none())
    }
}

impl<D: Device> Device for Sleeper<D> {
    forward!(memory_info, malloc, free, reserve, unreserve, set_access, streams);

    fn create(&mut self, size: Bytes) -> Result<HandleId> {
        let awake = Some(self.device.create(size)?);
        let handle = Some(Handle {
            awake,
            size,
            label: self.label,
            kept: None,
            mappings: 0,
            is_released: false,
        });
        if let Some(id) = self.vacant.pop() {
            self.handles[id.0 as usize] = handle;
            return Ok(id);
        }
        self.handles.push(handle);
        Ok(HandleId(self.handles.len() as u32 - 1))
    }

    fn release(&mut self, id: HandleId) {
        let handle = self.handle_mut(id);
        handle.is_released = true;
        if let Some(awake) = handle.awake {
            self.device.release(awake);
        }
        self.forget_if_gone(id);
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()> {
        let awake: Vec<_> = handles
            .iter()
            .map(|&id| self.handle(id).awake.expect("memory that sleeps serves no request"))
            .collect();
        self.device.map(at, &awake)?;
        let mut place = at;
        for &id in handles {
            self.mappings.insert(place, id);
            self.handle_mut(id).mappings += 1;
            place = place.offset(self.handle(id).size);
        }
        Ok(())
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        let is_asleep = self.is_asleep(at, size);
        while let Some((&place, &id)) = self.mappings.range(at..at.offset(size)).next() {
            self.mappings.remove(&place);
            self.handle_mut(id).mappings -= 1;
            self.forget_if_gone(id);
        }
        if !is_asleep {
            self.device.unmap(at, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_allocators::device::SimDevice;
    use gmlake_core::units::MIB;

    /// Two handles side by side, and the second once more elsewhere, under label 7; one more under label 0.
    fn stitched(gpu: &mut Sleeper<SimDevice>) -> ([DevicePtr; 3], [HandleId; 3]) {
        gpu.label = 7;
        let places = [4, 2, 2].map(|mib| gpu.reserve(mib * MIB).unwrap());
        let pair = [gpu.create(2 * MIB).unwrap(), gpu.create(2 * MIB).unwrap()];
        gpu.map_for_use(places[0], &pair, 4 * MIB).unwrap();
        gpu.map_for_use(places[1], &pair[1..], 2 * MIB).unwrap();
        gpu.label = 0;
        let other = gpu.create(2 * MIB).unwrap();
        gpu.map_for_use(places[2], &[other], 2 * MIB).unwrap();
        (places, [pair[0], pair[1], other])
    }

    fn give_back(gpu: &mut Sleeper<SimDevice>, places: [DevicePtr; 3], handles: [HandleId; 3]) {
        for (at, mib) in places.into_iter().zip([4, 2, 2]) {
            gpu.unmap(at, mib * MIB);
            gpu.unreserve(at, mib * MIB);
        }
        handles.into_iter().for_each(|handle| gpu.release(handle));
        assert!(gpu.device.is_pristine());
    }

    #[test]
    fn memory_comes_back_where_it_was_with_what_was_in_it() {
        let mut gpu = Sleeper::new(SimDevice::new(64 * MIB));
        let (places, handles) = stitched(&mut gpu);
        let mut kept = Vec::new();
        let mut keep = |at, size| {
            kept.push((at, size));
            Some(kept.len() as Kept)
        };
        assert!(gpu.sleep(7, Some(&mut keep)));
        assert_eq!(gpu.device.used(), 2 * MIB, "the other label is awake");
        assert_eq!(gpu.asleep(7), 4 * MIB);
        let mut filled = Vec::new();
        gpu.wake(7, &mut |at, number| filled.push((at, number))).unwrap();
        // The handle that is mapped twice was kept at the first of its addresses, and is filled there.
        assert_eq!(kept.len(), 2);
        let expected: Vec<_> = kept.iter().map(|&(at, _)| at).zip(1..).collect();
        assert_eq!(filled, expected);
        assert_eq!(gpu.unwanted, [1, 2]);
        assert_eq!((gpu.device.used(), gpu.asleep(7)), (6 * MIB, 0));
        give_back(&mut gpu, places, handles);
    }

    #[test]
    fn what_sleeps_can_be_given_back() {
        let mut gpu = Sleeper::new(SimDevice::new(64 * MIB));
        let (places, handles) = stitched(&mut gpu);
        assert!(gpu.sleep(7, Some(&mut |_, _| Some(5))));
        give_back(&mut gpu, places, handles);
        assert_eq!(gpu.unwanted, [5, 5]);
        gpu.wake(7, &mut |_, _| panic!("nothing is left")).unwrap();
    }

    #[test]
    fn whoever_cannot_wake_sleeps_on_and_whoever_cannot_be_kept_stays_awake() {
        let mut gpu = Sleeper::new(SimDevice::new(6 * MIB));
        let (places, handles) = stitched(&mut gpu);
        let mut first = true;
        let mut keep_one = |_, _| std::mem::take(&mut first).then_some(1);
        assert!(!gpu.sleep(7, Some(&mut keep_one)));
        assert_eq!((gpu.asleep(7), gpu.unwanted.as_slice()), (0, &[1][..]));
        assert!(gpu.sleep(7, None));
        let thief = gpu.create(2 * MIB).unwrap();
        assert!(gpu.wake(7, &mut |_, _| panic!("it sleeps")).is_err());
        assert_eq!((gpu.device.used(), gpu.asleep(7)), (4 * MIB, 4 * MIB));
        gpu.release(thief);
        gpu.wake(7, &mut |_, _| panic!("nothing was kept")).unwrap();
        give_back(&mut gpu, places, handles);
    }
}
