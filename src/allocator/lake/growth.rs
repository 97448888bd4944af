//! Growing: new memory from the device, and how much of it is allowed before memory has to be stitched.
//!
//! The budget is the most that was ever live, and a little slack. Within it a request that finds no room gets new
//! memory; beyond it, memory that is free must be put together first. So stitching happens only where it saves memory.
//!
//! On the way up to the first peak it saves none in the end. An allocator cannot know how far up that is, but while
//! live memory is at its record, what it takes now will likely be needed a little later anyway. So it grows then, if
//! that takes no more than a fair *price* for each mapping that it saves: a fifth of a handle. Who knows about how much
//! a job will need at least can say so (`headstart`).
//!
//! ```text
//!   live        ▁▂▃▄▅▆▇█▇▅▃▂▁▂▃▅▆▇█▇▅▃▂▁
//!               ├──────┤                   at its record: grow, if that is cheap
//!                       ├────────┤         below it: stitch
//!                                 ├┤       at it again: what was stitched on the way fits by now
//! ```

use super::Lake;
use super::compose::Recipe;
use super::fit::Reach;
use super::handle_size::SMALL;
use crate::allocator::{NIL, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, HandleId};
use crate::trace::StreamId;
use crate::units::{Bytes, MIB, round_up};

/// The least growth within the budget: requests of a few MiB come in numbers.
const STEP: Bytes = 32 * MIB;

/// Per cent of the most bytes ever live, from which on live memory counts as being at its record.
const AT_RECORD: Bytes = 99;

/// Per cent of the most bytes ever live, that growth at a record may come to.
const BEYOND_RECORD: Bytes = 105;

impl Lake {
    /// Grows for a request as long as reserved memory stays within the budget; `false` if it would not.
    ///
    /// # Errors
    /// A driver error. Out of memory is none: `false`.
    pub(super) fn grow_within(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<bool, DeviceError> {
        let needed = (self.live_peak as f64 * (1.0 + self.options.slack)) as Bytes;
        let budget = needed.max(self.options.headstart);
        let reserved = self.ledger.now().reserved;
        if reserved >= budget {
            return Ok(false);
        }
        let missing = self.missing_at_tail(device, stream, size)?;
        for amount in [missing.max(STEP.min(self.options.handle)), missing] {
            if reserved + amount <= budget.min(self.limit) {
                return self.grow_at_tail(device, stream, amount, size);
            }
        }
        Ok(false)
    }

    /// Bytes by which the arena must grow for a request, beside what is free at its end and the stream may use at once.
    fn missing_at_tail(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<Bytes, DeviceError> {
        let at = self.arena.addresses.place(device, round_up(size, GRANULE).max(STEP))?;
        let mut handle = self.arena.before(at).unwrap_or(NIL);
        let mut free = 0;
        while handle != NIL && free < size && self.is_allowed(handle, stream, Reach::Own) {
            let entry = &self.pool.handles[handle];
            let last = &self.pool.pieces[entry.last];
            if last.is_free {
                free += last.size;
            }
            if !last.is_free || entry.first != entry.last {
                break;
            }
            handle = entry.left;
        }
        Ok(round_up(size - free.min(size - 1), GRANULE))
    }

    fn grow_at_tail(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        amount: Bytes,
        size: Bytes,
    ) -> Result<bool, DeviceError> {
        let new = match self.create(device, stream, (amount, size)) {
            Err(DeviceError::OutOfMemory { .. }) => return Ok(false),
            other => other?,
        };
        let last = *new.last().expect("at least one handle was made");
        let run = self.pool.handles[last].run_to;
        if self.pool.runs[run].size < size {
            return Ok(false);
        }
        self.tally.growths += 1;
        self.route_from_left(run, size);
        Ok(true)
    }

    /// Grows at a record of live memory instead of stitching what a recipe says, if that is worth its price.
    ///
    /// # Errors
    /// A driver error. Out of memory is none: `false`.
    pub(super) fn grow_at_record(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        (size, recipe): (Bytes, &Recipe),
    ) -> Result<bool, DeviceError> {
        let live = self.ledger.now().active + size;
        let is_short = self.largest <= SMALL;
        if self.options.price <= 0.0 || is_short || live < self.live_peak / 100 * AT_RECORD {
            return Ok(false);
        }
        let amount = self.missing_at_tail(device, stream, size)?;
        let most = (self.live_peak / 100 * BEYOND_RECORD).min(self.limit);
        if self.ledger.now().reserved + amount > most {
            return Ok(false);
        }
        // What is missing would be new in any case, and mapped twice: in the arena and in the view.
        let missing = round_up(size.saturating_sub(recipe.size), GRANULE);
        let each = self.handle_size(size);
        let stitched = recipe.handles() + 2 * missing.div_ceil(each);
        let saved = stitched.saturating_sub(amount.div_ceil(each));
        let price = self.options.price * self.largest as f64;
        if amount.saturating_sub(missing) as f64 > price * saved as f64 {
            return Ok(false);
        }
        self.grow_at_tail(device, stream, amount, size)
    }

    /// New handles of nearly equal sizes, `amount` bytes for a request of `size` bytes, at the end of the arena.
    ///
    /// # Errors
    /// Out of memory, or a driver error; nothing has changed.
    pub(super) fn create(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        (amount, size): (Bytes, Bytes),
    ) -> Result<Vec<SlabIndex>, DeviceError> {
        let reserved = self.ledger.now().reserved;
        if amount > self.limit.saturating_sub(reserved) {
            let free = self.limit.saturating_sub(reserved);
            return Err(DeviceError::OutOfMemory { requested: amount, free });
        }
        let free = device.memory_info().free;
        if amount > free {
            return Err(DeviceError::OutOfMemory { requested: amount, free });
        }
        self.capacity = (reserved + free).min(self.limit);
        self.largest = self.largest_handle();
        let count = amount.div_ceil(self.handle_size(size));
        let each = round_up(amount.div_ceil(count), GRANULE);
        let at = self.arena.addresses.place(device, amount)?;
        let mut made: Vec<(HandleId, Bytes)> = Vec::new();
        let mut left = amount;
        let mut outcome = Ok(());
        while left > 0 && outcome.is_ok() {
            let size = each.min(left);
            outcome = device.create(size).map(|id| made.push((id, size)));
            left -= size;
        }
        let ids: Vec<_> = made.iter().map(|&(id, _)| id).collect();
        if let Err(error) = outcome.and_then(|()| device.map_for_use(at, &ids, amount)) {
            device.release_each(&ids);
            return Err(error);
        }
        self.ledger.grow(amount);
        Ok(self.adopt(stream, at, &made))
    }

    fn adopt(
        &mut self,
        stream: StreamId,
        mut at: DevicePtr,
        made: &[(HandleId, Bytes)],
    ) -> Vec<SlabIndex> {
        let mut new = Vec::with_capacity(made.len());
        for &(id, size) in made {
            let (left, right) = self.arena.fill(at, size);
            let neighbours = (left.unwrap_or(NIL), right.unwrap_or(NIL));
            let handle = self.pool.add(id, (at, size), stream, neighbours);
            self.arena.note(at, handle);
            new.push(handle);
            at = at.offset(size);
        }
        new
    }
}
