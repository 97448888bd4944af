//! Pages of an arena of `paddle-v2`: which handle is behind each, and which growth it came with.
//!
//! All handles are of one size, the page. Memory that grew in one go is a *backing*; a handle that was moved leaves a
//! page that still belongs to its backing, and so cannot be backed anew until the backing is given back
//! (`UnderlyingAllocationRegistry::Overlaps`). The page that it was moved to is a backing of its own, and the handle
//! stays there until then (`kRemapDestinationOwned`).
//!
//! ```text
//!   backing   0    0    0    0    1    1    2    2
//!   handle    h0   -    -    h3   h4   h5   h1*  h2*       * moved: not again
//! ```

use crate::device::{Device, DeviceError, DevicePtr, HandleId, Result};
use gmlake_core::units::Bytes;

/// Memory is made accessible, and taken away from where it was, in pieces of this size.
const PIECE: Bytes = 64 << 20;

/// One page of addresses.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    handle: Option<HandleId>,
    backing: Option<usize>,
    is_moved: bool,
}

/// A growth: how many pages it had, and how many handles were moved out of it.
#[derive(Debug, Clone, Copy, Default)]
struct Backing {
    pages: usize,
    moved: usize,
}

/// Memory behind an arena.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    pages: Vec<Page>,
    backings: Vec<Backing>,
    /// Pages with a handle.
    pub(super) mapped: u64,
}

/// Why an arena could not grow: there was memory for `created` handles of the `wanted` ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    pub(super) wanted: usize,
    pub(super) created: usize,
}

/// A page range of an arena: where the arena begins, the size of a page, the first one, and how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) base: DevicePtr,
    pub(super) page: Bytes,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Span {
    fn at(&self, number: usize) -> DevicePtr {
        self.base.offset(number as u64 * self.page)
    }
}

impl Pages {
    /// New memory for a range of pages. If there is none left, what there was is given back. Errors: a driver error, or
    /// out of memory by another call than that which creates a handle; nothing has changed.
    pub(super) fn back(
        &mut self,
        device: &mut dyn Device,
        span: Span,
    ) -> Result<Result<(), Short>> {
        let mut handles = Vec::with_capacity(span.count);
        let made = create(device, span, &mut handles);
        if let Err(error) = made {
            for (number, &handle) in handles.iter().enumerate() {
                device.unmap(span.at(span.first + number), span.page);
                device.release(handle);
            }
            let short = Short { wanted: span.count, created: handles.len() };
            let is_short = matches!(error, DeviceError::OutOfMemory { .. });
            return if is_short { Ok(Err(short)) } else { Err(error) };
        }
        self.adopt(span, &handles, false);
        Ok(Ok(()))
    }

    fn adopt(&mut self, span: Span, handles: &[HandleId], is_moved: bool) {
        let end = span.first + span.count;
        self.pages.resize(self.pages.len().max(end), Page::default());
        let backing = Some(self.backings.len());
        self.backings.push(Backing { pages: span.count, moved: 0 });
        for (page, &handle) in self.pages[span.first..end].iter_mut().zip(handles) {
            *page = Page { handle: Some(handle), backing, is_moved };
        }
        self.mapped += handles.len() as u64;
    }

    /// Whether a handle is there that may be moved.
    pub(super) fn is_movable(&self, number: usize) -> bool {
        let page = &self.pages[number];
        page.handle.is_some() && !page.is_moved
    }

    /// Whether any of these pages belongs to a backing.
    pub(super) fn is_claimed(&self, first: usize, count: usize) -> bool {
        self.pages[first..first + count].iter().any(|page| page.backing.is_some())
    }

    /// Moves the handles of pages, in order of address, to a range without memory. Errors: what the driver said. The
    /// handles are back where they were, but for those whose old addresses could not be backed either: these are given
    /// back, and their pages are in the list.
    pub(super) fn move_to(
        &mut self,
        device: &mut dyn Device,
        sources: &[usize],
        target: Span,
    ) -> Result<(), (DeviceError, Vec<usize>)> {
        let handles: Vec<HandleId> =
            sources.iter().map(|&page| self.pages[page].handle.expect("it is mapped")).collect();
        for (first, count) in runs(sources, (PIECE / target.page).max(1) as usize) {
            device.unmap(target.at(first), count as u64 * target.page);
        }
        if let Err((error, mapped)) = map(device, &handles, target) {
            (0..mapped).for_each(|number| {
                device.unmap(target.at(target.first + number), target.page);
            });
            return Err((error, self.restore(device, sources, &handles, target)));
        }
        for &page in sources {
            let page = &mut self.pages[page];
            page.handle = None;
            page.backing.iter().for_each(|&backing| self.backings[backing].moved += 1);
        }
        self.mapped -= sources.len() as u64;
        self.forget_moved(target);
        self.adopt(target, &handles, true);
        Ok(())
    }

    fn restore(
        &mut self,
        device: &mut dyn Device,
        sources: &[usize],
        handles: &[HandleId],
        span: Span,
    ) -> Vec<usize> {
        let mut lost = Vec::new();
        for (&page, &handle) in sources.iter().zip(handles) {
            if device.map_for_use(span.at(page), &[handle], span.page).is_err() {
                device.release(handle);
                self.pages[page] = Page::default();
                self.mapped -= 1;
                lost.push(page);
            }
        }
        lost
    }

    /// Backings whose handles were all moved are forgotten where they would be in the way.
    fn forget_moved(&mut self, target: Span) {
        let end = (target.first + target.count).min(self.pages.len());
        let touched = self.pages.get(target.first..end).unwrap_or_default();
        let mut empty: Vec<usize> = touched.iter().filter_map(|page| page.backing).collect();
        empty.dedup();
        empty.retain(|&backing| self.backings[backing].moved == self.backings[backing].pages);
        for page in &mut self.pages {
            if page.backing.is_some_and(|backing| empty.contains(&backing)) {
                page.backing = None;
            }
        }
    }

    /// Gives the memory of a range of pages back, and the range with it.
    pub(super) fn release(&mut self, device: &mut dyn Device, span: Span) {
        for number in span.first..span.first + span.count {
            if let Some(handle) = self.pages[number].handle {
                device.unmap(span.at(number), span.page);
                device.release(handle);
                self.mapped -= 1;
            }
            self.pages[number] = Page::default();
        }
    }
}

/// Creates and maps handle after handle; those that are mapped are in `handles`, whatever comes.
fn create(device: &mut dyn Device, span: Span, handles: &mut Vec<HandleId>) -> Result<()> {
    for number in span.first..span.first + span.count {
        let handle = device.create(span.page)?;
        device.map(span.at(number), &[handle]).inspect_err(|_| device.release(handle))?;
        handles.push(handle);
    }
    let (mut at, end) = (span.at(span.first), span.at(span.first + span.count));
    let piece = PIECE.next_multiple_of(span.page);
    while at < end {
        let size = piece.min(end.0 - at.0);
        device.set_access(at, size)?;
        at = at.offset(size);
    }
    Ok(())
}

/// Maps handles side by side, and makes them accessible in one call; else how many of them are mapped.
fn map(
    device: &mut dyn Device,
    handles: &[HandleId],
    target: Span,
) -> Result<(), (DeviceError, usize)> {
    for (number, &handle) in handles.iter().enumerate() {
        let at = target.at(target.first + number);
        device.map(at, &[handle]).map_err(|error| (error, number))?;
    }
    let size = handles.len() as u64 * target.page;
    device.set_access(target.at(target.first), size).map_err(|error| (error, handles.len()))
}

/// Runs of numbers that follow on each other, none longer than `most`: the first of each, and how many.
fn runs(numbers: &[usize], most: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == number && *count < most => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}
