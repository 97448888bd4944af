//! Composing: free memory from here and there, mapped side by side in a new view.

use super::Lake;
use super::fit::Reach;
use super::views::Slot;
use crate::allocator::{NIL, SlabIndex};
use crate::device::{Device, DeviceError};
use crate::trace::StreamId;
use crate::units::Bytes;

/// Partial pieces that are looked at, from the largest down, for one that ends at its handle's end, or begins at its
/// beginning.
pub(super) const PARTIALS: usize = 64;

/// What a request is to be composed of: the last piece of one handle, whole handles, the first piece of another one.
#[derive(Debug, Clone, Default)]
pub(super) struct Recipe {
    suffix: Option<SlabIndex>,
    wholes: Vec<SlabIndex>,
    prefix: Option<SlabIndex>,
    /// Bytes, all together.
    pub(super) size: Bytes,
}

impl Recipe {
    /// How many handles it takes.
    pub(super) fn handles(&self) -> u64 {
        let ends = [self.suffix, self.prefix].into_iter().flatten();
        (self.wholes.len() + ends.count()) as u64
    }
}

impl Lake {
    /// Collects free memory for `size` bytes, whole handles from the largest down; it may come to less.
    pub(super) fn collect(&self, stream: StreamId, size: Bytes, reach: Reach) -> Recipe {
        let mut recipe = Recipe::default();
        let mut idle = Vec::new();
        for owner in self.owners(stream, reach) {
            self.add_partials(&mut recipe, stream, owner, reach);
            self.add_idle(&mut idle, stream, owner, reach);
        }
        for &(bytes, piece) in &idle {
            if recipe.size >= size {
                break;
            }
            recipe.wholes.push(piece);
            recipe.size += bytes;
        }
        if recipe.size >= size {
            self.thin_out(&mut recipe, &idle, size);
        }
        recipe
    }

    /// The request's own stream first.
    fn owners(&self, stream: StreamId, reach: Reach) -> Vec<StreamId> {
        let others = (0..self.streams.count()).map(StreamId).filter(|&other| other != stream);
        let others = others.filter(|_| reach != Reach::Own);
        std::iter::once(stream).chain(others).collect()
    }

    fn add_partials(&self, recipe: &mut Recipe, stream: StreamId, owner: StreamId, reach: Reach) {
        let handle_of =
            |piece: Option<SlabIndex>| piece.map(|piece| self.pool.pieces[piece].handle);
        for piece in self.pool.partial.smaller_than(owner, Bytes::MAX).take(PARTIALS) {
            if recipe.suffix.is_some() && recipe.prefix.is_some() {
                return;
            }
            let entry = self.pool.pieces[piece];
            if !self.is_allowed(entry.handle, stream, reach) {
                continue;
            }
            let other = Some(entry.handle);
            if entry.next == NIL && recipe.suffix.is_none() && handle_of(recipe.prefix) != other {
                recipe.suffix = Some(piece);
                recipe.size += entry.size;
            } else if entry.previous == NIL
                && recipe.prefix.is_none()
                && handle_of(recipe.suffix) != other
            {
                recipe.prefix = Some(piece);
                recipe.size += entry.size;
            }
        }
    }

    /// Leaves out what is not needed, and takes the smallest whole handle that will do for the last one.
    fn thin_out(&self, recipe: &mut Recipe, idle: &[(Bytes, SlabIndex)], size: Bytes) {
        let bytes =
            |piece: Option<SlabIndex>| piece.map_or(0, |piece| self.pool.pieces[piece].size);
        if recipe.size - bytes(recipe.prefix) >= size {
            recipe.size -= bytes(recipe.prefix);
            recipe.prefix = None;
        }
        if recipe.size - bytes(recipe.suffix) >= size {
            recipe.size -= bytes(recipe.suffix);
            recipe.suffix = None;
        }
        let Some(&last) = recipe.wholes.last() else { return };
        let rest = recipe.size - self.pool.pieces[last].size;
        let needed = size - rest;
        let fits = |&&(bytes, piece): &&(Bytes, SlabIndex)| {
            bytes >= needed && !recipe.wholes.contains(&piece)
        };
        let smallest = idle.iter().filter(fits).min_by_key(|&&(bytes, _)| bytes);
        if let Some(&(bytes, piece)) = smallest
            && bytes < self.pool.pieces[last].size
        {
            recipe.wholes.pop();
            recipe.wholes.push(piece);
            recipe.size = rest + bytes;
        }
    }

    /// Adds the idle handles of an owner that a stream may use, by their pieces, the largest first.
    fn add_idle(
        &self,
        idle: &mut Vec<(Bytes, SlabIndex)>,
        stream: StreamId,
        owner: StreamId,
        reach: Reach,
    ) {
        let begin = idle.len();
        for run in self.pool.runs_by_size.smaller_than(owner, Bytes::MAX) {
            let run = self.pool.runs[run];
            let mut handle = run.first;
            loop {
                let entry = &self.pool.handles[handle];
                if self.pool.is_idle(handle) && self.is_allowed(handle, stream, reach) {
                    idle.push((entry.size, entry.first));
                }
                if handle == run.last {
                    break;
                }
                handle = entry.right;
            }
        }
        idle[begin..].sort_by_key(|&(size, _)| std::cmp::Reverse(size));
    }

    /// Maps what the recipe says, and new handles behind its whole ones, and makes it the route.
    ///
    /// # Errors
    /// A driver error; nothing has changed.
    pub(super) fn compose(
        &mut self,
        device: &mut dyn Device,
        recipe: &Recipe,
        new: &[SlabIndex],
        size: Bytes,
    ) -> Result<(), DeviceError> {
        let handle_of = |piece: SlabIndex| self.pool.pieces[piece].handle;
        let mut handles: Vec<SlabIndex> = recipe.suffix.map(handle_of).into_iter().collect();
        handles.extend(recipe.wholes.iter().map(|&piece| handle_of(piece)));
        handles.extend(new);
        handles.extend(recipe.prefix.map(handle_of));
        if let [handle] = handles[..] {
            let piece = recipe.prefix.unwrap_or(self.pool.handles[handle].last);
            let entry = &self.pool.pieces[piece];
            let skip = if recipe.prefix.is_some() { entry.size - size } else { 0 };
            self.route.set(piece, skip, entry.at.offset(skip));
            return Ok(());
        }
        let view = self.stitch(device, &handles)?;
        let offset = recipe.suffix.map_or(0, |piece| {
            let entry = &self.pool.pieces[piece];
            self.pool.handles[entry.handle].size - entry.size
        });
        self.route.at = self.views.all[view].at.offset(offset);
        self.route.view = view;
        self.route.piece = NIL;
        self.route.skip = 0;
        self.route.pieces.clear();
        for (place, handle) in handles.into_iter().enumerate() {
            let entry = &self.pool.handles[handle];
            self.route.pieces.push(if place == 0 { entry.last } else { entry.first });
        }
        Ok(())
    }

    /// A new view over these handles.
    fn stitch(
        &mut self,
        device: &mut dyn Device,
        handles: &[SlabIndex],
    ) -> Result<SlabIndex, DeviceError> {
        self.bound_views(device);
        let mut slots = Vec::with_capacity(handles.len());
        let mut size = 0;
        for &handle in handles {
            slots.push(Slot { handle, offset: size });
            size += self.pool.handles[handle].size;
        }
        let ids: Vec<_> = handles.iter().map(|&handle| self.pool.handles[handle].id).collect();
        let at = self.views.addresses.place(device, size)?;
        if let Err(error) = device.map_for_use(at, &ids, size) {
            self.views.addresses.drop_empty(device);
            return Err(error);
        }
        self.views.addresses.take(at, size);
        let view = self.views.add(at, slots, size);
        for &handle in handles {
            self.pool.handles[handle].views.push(view);
        }
        self.tally.views_made += 1;
        self.tally.handles_stitched += handles.len() as u64;
        Ok(view)
    }
}
