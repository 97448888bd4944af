//! The stream of driver calls: one wrapper makes each call, and tells those who watch.
//!
//! ```text
//!   allocator ──malloc, map, ...──▶ Watched ──▶ the device
//!                                     │ before, after: which call, where, how much, which handles, how it ended
//!                                     ├──▶ Counted
//!                                     ├──▶ Priced      a tuple of watchers; the last one stands next to the device
//!                                     └──▶ ...
//! ```
//!
//! The sizes of what is freed or mapped are no arguments of the calls. If a watcher wants them, the wrapper keeps the
//! one [`Book`] of what is mapped where.

use std::cell::Cell;

use super::book::Book;
use super::call::{Call, DriverCall, Ending};
use super::{Device, DevicePtr, Fence, HandleId, MemoryInfo, Result, forward};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Learns of driver calls. It is a type parameter, so that watching nothing costs nothing.
pub trait Watch {
    /// Whether calls in a row may be told as one.
    const ROWS: bool = false;

    /// Whether it needs amounts that the arguments of the calls do not say.
    fn wants_amounts(&self) -> bool {
        false
    }

    /// A call is about to be made.
    #[inline]
    fn before(&mut self, _call: &DriverCall<'_>) {}

    /// It was made.
    fn after(&mut self, call: &DriverCall<'_>);

    /// A fence was given back.
    #[inline]
    fn dropped(&mut self, _fence: Fence) {}

    /// This many nanoseconds have passed between calls.
    #[inline]
    fn elapsed(&mut self, _ns: u64) {}
}

/// Watches nothing.
impl Watch for () {
    const ROWS: bool = true;

    #[inline]
    fn after(&mut self, _: &DriverCall<'_>) {}
}

/// Several watchers, told in order before a call, and the other way round after it.
macro_rules! several {
    ($($watch:ident $place:tt),+; $($back:tt),+) => {
        impl<$($watch: Watch),+> Watch for ($($watch),+) {
            const ROWS: bool = $($watch::ROWS)&&+;

            fn wants_amounts(&self) -> bool {
                $(self.$place.wants_amounts())||+
            }

            #[inline(always)]
            fn before(&mut self, call: &DriverCall<'_>) {
                $(self.$place.before(call);)+
            }

            #[inline(always)]
            fn after(&mut self, call: &DriverCall<'_>) {
                $(self.$back.after(call);)+
            }

            #[inline]
            fn dropped(&mut self, fence: Fence) {
                $(self.$place.dropped(fence);)+
            }

            #[inline]
            fn elapsed(&mut self, ns: u64) {
                $(self.$place.elapsed(ns);)+
            }
        }
    };
}
several!(A 0, B 1; 1, 0);
several!(A 0, B 1, C 2; 2, 1, 0);

/// Somebody else's watcher.
impl<W: Watch> Watch for &mut W {
    const ROWS: bool = W::ROWS;

    fn wants_amounts(&self) -> bool {
        (**self).wants_amounts()
    }

    #[inline]
    fn before(&mut self, call: &DriverCall<'_>) {
        (**self).before(call);
    }

    #[inline]
    fn after(&mut self, call: &DriverCall<'_>) {
        (**self).after(call);
    }

    #[inline]
    fn dropped(&mut self, fence: Fence) {
        (**self).dropped(fence);
    }

    #[inline]
    fn elapsed(&mut self, ns: u64) {
        (**self).elapsed(ns);
    }
}

/// Somebody watches, or nobody.
impl<W: Watch> Watch for Option<W> {
    const ROWS: bool = W::ROWS;

    fn wants_amounts(&self) -> bool {
        self.as_ref().is_some_and(W::wants_amounts)
    }

    #[inline(always)]
    fn before(&mut self, call: &DriverCall<'_>) {
        if let Some(watch) = self {
            watch.before(&{ *call });
        }
    }

    #[inline(always)]
    fn after(&mut self, call: &DriverCall<'_>) {
        if let Some(watch) = self {
            watch.after(&{ *call });
        }
    }

    #[inline]
    fn dropped(&mut self, fence: Fence) {
        self.iter_mut().for_each(|watch| watch.dropped(fence));
    }

    #[inline]
    fn elapsed(&mut self, ns: u64) {
        self.iter_mut().for_each(|watch| watch.elapsed(ns));
    }
}

/// A device whose calls are watched.
#[derive(Debug, Clone)]
pub struct Watched<D, W> {
    /// The device itself.
    pub device: D,
    /// Who watches.
    pub watch: W,
    book: Option<Book>,
    inquiries: Cell<u64>,
}

impl<D, W: Watch> Watched<D, W> {
    /// A device of which nothing is held.
    pub fn new(device: D, watch: W) -> Self {
        let book = watch.wants_amounts().then(Book::default);
        Self { device, watch, book, inquiries: Cell::new(0) }
    }

    /// Keeps the book from now on, whoever watches.
    pub fn keep_book(&mut self) {
        self.book.get_or_insert_default();
    }

    /// Bytes of memory that are held, if a book is kept.
    pub fn held(&self) -> Bytes {
        self.book.as_ref().map_or(0, |book| book.held)
    }

    /// Times that somebody asked how much memory there is. Who never asks learns of it by refusals only.
    pub fn inquiries(&self) -> u64 {
        self.inquiries.get()
    }

    /// Makes a call, and tells of it. What is told is put together in registers: the book gets a copy.
    #[inline(always)]
    fn make<T: Answer>(&mut self, call: DriverCall<'_>, make: impl FnOnce(&mut D) -> T) -> T {
        let call = self.begin(call);
        let answer = make(&mut self.device);
        self.end(answer.noted(call));
        answer
    }

    #[inline(always)]
    fn begin<'a>(&mut self, mut call: DriverCall<'a>) -> DriverCall<'a> {
        if let Some(book) = &mut self.book {
            call.amount = book.before(call);
        }
        self.watch.before(&call);
        call
    }

    #[inline(always)]
    fn end(&mut self, call: DriverCall<'_>) {
        if let Some(book) = &mut self.book {
            book.after(call);
        }
        self.watch.after(&call);
    }
}

/// What a call answers, entered into what is told of it.
trait Answer {
    fn noted<'a>(&'a self, call: DriverCall<'a>) -> DriverCall<'a>;
}

macro_rules! answers {
    ($($type:ty: |$answer:ident, $call:ident| $noted:expr;)+) => {$(
        impl Answer for $type {
            #[inline(always)]
            fn noted<'a>(&'a self, $call: DriverCall<'a>) -> DriverCall<'a> {
                let $answer = self;
                $noted
            }
        }
    )+};
}
answers! {
    (): |_nothing, call| call;
    bool: |reached, call| DriverCall { reached: *reached, ..call };
    Fence: |fence, call| DriverCall { fence: Some(*fence), ..call };
    DevicePtr: |at, call| DriverCall { at: *at, ..call };
    HandleId: |handle, call| DriverCall { handles: std::slice::from_ref(handle), ..call };
}

impl<T: Answer> Answer for Result<T> {
    #[inline(always)]
    fn noted<'a>(&'a self, call: DriverCall<'a>) -> DriverCall<'a> {
        let call = DriverCall { ending: Ending::of(self), ..call };
        self.as_ref().map_or(call, |answer| answer.noted(call))
    }
}

const NOWHERE: DevicePtr = DevicePtr(0);

impl<D: Device, W: Watch> Device for Watched<D, W> {
    fn memory_info(&self) -> MemoryInfo {
        self.inquiries.set(self.inquiries.get() + 1);
        self.device.memory_info()
    }

    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr> {
        let call = DriverCall::new(Call::MemAlloc, NOWHERE, 1, size);
        self.make(call, |device| device.malloc(size))
    }

    fn free(&mut self, at: DevicePtr) {
        self.make(DriverCall::new(Call::MemFree, at, 1, 0), |device| device.free(at));
    }

    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr> {
        let call = DriverCall::new(Call::AddressReserve, NOWHERE, 0, size);
        self.make(call, |device| device.reserve(size))
    }

    fn unreserve(&mut self, at: DevicePtr, size: Bytes) {
        let call = DriverCall::new(Call::AddressFree, at, 0, size);
        self.make(call, |device| device.unreserve(at, size));
    }

    fn create(&mut self, size: Bytes) -> Result<HandleId> {
        let call = DriverCall::new(Call::Create, NOWHERE, 1, size);
        self.make(call, |device| device.create(size))
    }

    fn release(&mut self, handle: HandleId) {
        let call = DriverCall::new(Call::Release, NOWHERE, 1, 0);
        self.make(DriverCall { handles: &[handle], ..call }, |device| device.release(handle));
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()> {
        let call = DriverCall::new(Call::Map, at, handles.len() as u64, 0);
        self.make(DriverCall { handles, ..call }, |device| device.map(at, handles))
    }

    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<()> {
        let call = DriverCall::new(Call::SetAccess, at, 0, size);
        self.make(call, |device| device.set_access(at, size))
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        let call = DriverCall::new(Call::Unmap, at, 0, size);
        self.make(call, |device| device.unmap(at, size));
    }

    fn create_each(
        &mut self,
        size: Bytes,
        count: usize,
        handles: &mut Vec<HandleId>,
    ) -> Result<()> {
        if !W::ROWS {
            return (0..count).try_for_each(|_| self.create(size).map(|id| handles.push(id)));
        }
        let before = handles.len();
        let call = DriverCall::new(Call::Create, NOWHERE, 1, size);
        let call = self.begin(DriverCall { row: Some(count), ..call });
        let outcome = self.device.create_each(size, count, handles);
        let handles = &handles[before..];
        let row = Some(handles.len() + usize::from(outcome.is_err()));
        self.end(DriverCall { row, handles, ending: Ending::of(&outcome), ..call });
        outcome
    }

    fn release_each(&mut self, handles: &[HandleId]) {
        if !W::ROWS {
            return handles.iter().for_each(|&handle| self.release(handle));
        }
        let rows = self.book.as_ref().map_or(vec![handles.len()], |book| book.rows(handles));
        let mut rest = handles;
        for length in rows {
            let row;
            (row, rest) = rest.split_at(length);
            let call = DriverCall::new(Call::Release, NOWHERE, 1, 0);
            let call = DriverCall { handles: row, row: Some(length), ..call };
            self.make(call, |device| device.release_each(row));
        }
    }

    fn set_access_each(&mut self, at: DevicePtr, size: Bytes, count: usize) -> Result<()> {
        let is_row = |book: &Book| book.are_side_by_side(at, size, count);
        if !W::ROWS || !self.book.as_ref().is_none_or(is_row) {
            let mut each = (0..count as u64).map(|number| at.offset(number * size));
            return each.try_for_each(|at| self.set_access(at, size));
        }
        let call = DriverCall::new(Call::SetAccess, at, 1, size);
        let call = DriverCall { row: Some(count), ..call };
        self.make(call, |device| device.set_access_each(at, size, count))
    }

    fn synchronize(&mut self) {
        self.make(DriverCall::new(Call::Synchronize, NOWHERE, 0, 0), D::synchronize);
    }

    fn fence(&mut self, stream: StreamId) -> Fence {
        let call = DriverCall::new(Call::EventRecord, NOWHERE, 0, 0);
        self.make(DriverCall { stream: Some(stream), ..call }, |device| device.fence(stream))
    }

    fn reached(&mut self, fence: Fence) -> bool {
        let call = DriverCall::new(Call::EventQuery, NOWHERE, 0, 0);
        self.make(DriverCall { fence: Some(fence), ..call }, |device| device.reached(fence))
    }

    fn stream_wait(&mut self, stream: StreamId, fence: Fence) {
        let call = DriverCall::new(Call::StreamWait, NOWHERE, 0, 0);
        let call = DriverCall { stream: Some(stream), fence: Some(fence), ..call };
        self.make(call, |device| device.stream_wait(stream, fence));
    }

    fn drop_fence(&mut self, fence: Fence) {
        self.watch.dropped(fence);
        self.device.drop_fence(fence);
    }

    fn elapse(&mut self, events: u64, ns: u64) {
        self.watch.elapsed(ns);
        self.device.elapse(events, ns);
    }
}

/// A device that somebody else owns.
pub struct Lent<'a> {
    /// The device itself.
    pub device: &'a mut dyn Device,
}

impl Device for Lent<'_> {
    forward!(
        memory_info,
        malloc,
        free,
        reserve,
        unreserve,
        create,
        release,
        map,
        set_access,
        unmap,
        streams
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::units::MIB;

    /// Notes what it is told.
    #[derive(Default)]
    struct Notes<const AT_ONCE: bool>(Vec<String>);

    impl<const AT_ONCE: bool> Watch for Notes<AT_ONCE> {
        const ROWS: bool = AT_ONCE;

        fn wants_amounts(&self) -> bool {
            true
        }

        fn after(&mut self, call: &DriverCall<'_>) {
            let (name, count, mib) = (call.call.name(), call.count(), call.amount.size / MIB);
            self.0.push(format!("{name} x{count} of {mib}: {:?}", call.ending));
        }
    }

    fn rows<W: Watch>(watch: W) -> W {
        let mut gpu = Watched::new(SimDevice::new(8 * MIB), watch);
        let mut handles = Vec::new();
        gpu.create_each(2 * MIB, 5, &mut handles).unwrap_err();
        let at = gpu.reserve(8 * MIB).unwrap();
        gpu.map(at, &handles).unwrap();
        gpu.set_access_each(at, 2 * MIB, 4).unwrap();
        gpu.unmap(at, 8 * MIB);
        gpu.release_each(&handles);
        assert_eq!(gpu.held(), 0);
        gpu.watch
    }

    #[test]
    fn rows_are_told_as_one_call_only_to_those_who_can_tell() {
        let expected = [
            "create x5 of 2: OutOfMemory",
            "address_reserve x1 of 8: Done",
            "map x4 of 8: Done",
            "set_access x4 of 2: Done",
            "unmap x1 of 8: Done",
            "release x4 of 2: Done",
        ];
        assert_eq!(rows(Notes::<true>::default()).0, expected);
        let each = rows((Notes::<true>::default(), Notes::<false>::default()));
        let created = each.0.0.iter().filter(|note| note.starts_with("create x1"));
        assert_eq!((created.count(), each.0.0.len()), (5, 16));
        assert_eq!(each.0.0, each.1.0);
    }
}
