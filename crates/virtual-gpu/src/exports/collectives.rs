//! Collectives of NCCL. Small data really goes from rank to rank, and of whole numbers also what is large, if it is
//! known: ids, lengths, pickled objects. A rank that runs alone receives what it sends.

use std::ffi::{c_int, c_void};

use crate::{Parcel, Work};

use crate::exports::communicators::{
    INVALID_ARGUMENT, SUCCESS, SYSTEM_ERROR, connect, connect_to, exchange, with, world_of,
};
use crate::exports::reduction::{Kind, reduce};
use crate::exports::state::{self, Stream, gpu, is_device, number, put};

/// Bytes up to which data goes from rank to rank, whether it is known or not.
const SMALL: usize = 1 << 20;

/// Bytes of these elements up to which data goes from rank to rank. Larger data stays where it is.
pub fn limit(kind: Kind) -> usize {
    if kind.is_whole() { 1 << 30 } else { SMALL }
}

/// What lies at an address of the device; nothing in place of much that is not known.
///
/// # Safety
/// `at` has `bytes` bytes.
pub unsafe fn read(at: *const c_void, bytes: usize) -> Parcel {
    if bytes == 0 {
        // The address of nothing may be null: a rank has nothing for another one.
        return Parcel { bytes: Vec::new(), is_known: true };
    }
    let is_known = !is_device(number(at)) || gpu().known.holds(number(at), bytes as u64);
    if !is_known && bytes > SMALL {
        return Parcel { bytes: Vec::new(), is_known };
    }
    // SAFETY: as the caller promises; device addresses are memory of this process.
    let content = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), bytes) };
    Parcel { bytes: content.to_vec(), is_known }
}

/// Writes data for `bytes` bytes to an address of the device.
///
/// # Safety
/// `at` has room for it.
pub unsafe fn write(at: *mut c_void, bytes: usize, parcel: &Parcel) {
    let there = parcel.bytes.len().min(bytes);
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy(parcel.bytes.as_ptr(), at.cast::<u8>(), there) };
    set_known(at, bytes, parcel.is_known && there == bytes);
}

/// Marks the bytes at an address as known or not.
pub fn set_known(at: *const c_void, bytes: usize, is_known: bool) {
    let mut gpu = gpu();
    if is_known {
        gpu.known.add(number(at), bytes as u64);
    } else {
        gpu.known.remove(number(at), bytes as u64);
    }
}

/// A collective whose result is larger than its [`limit`], or on a captured stream: time, and no data. Where nothing is
/// sent, in a world of one rank, NCCL copies.
fn is_moved(bytes: usize, sent: usize, to: *const c_void, (kind, on): (Kind, Stream)) -> bool {
    let work = if sent == 0 { Work::Bytes(bytes as u64) } else { Work::Link(sent as u64) };
    state::work(on, work);
    let on = state::stream(on);
    let is_captured = gpu().graphs.of(on).is_some();
    if bytes > limit(kind) || is_captured {
        set_known(to, bytes, false);
        return false;
    }
    bytes > 0
}

skins! {
    /// `ncclAllGather`: all ranks' data, one after the other.
    ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, on: *mut c_void,
        stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        let Some((world, rank, is_whole)) = with(on, |it| (it.world, it.rank, it.is_whole)) else {
            return INVALID_ARGUMENT;
        };
        let slots = if is_whole { 0..world } else { rank..rank + 1 };
        let total = bytes * slots.end;
        connect(on);
        if !is_moved(total, total - total / world, to, (kind, stream)) {
            return SUCCESS;
        }
        let mine = read(from, bytes);
        let Some((_, _, all)) = exchange(on, &mine) else { return SYSTEM_ERROR };
        for slot in slots {
            write(to.byte_add(slot * bytes), bytes, all.get(slot).unwrap_or(&mine));
        }
        SUCCESS
    };
    /// `ncclReduceScatter`: each rank's part of the reduction of all.
    ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, operation: c_int,
        on: *mut c_void, stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        let Some((world, rank, is_whole)) = with(on, |it| (it.world, it.rank, it.is_whole)) else {
            return INVALID_ARGUMENT;
        };
        connect(on);
        let is_moved = is_moved(bytes, bytes * (world - 1), to, (kind, stream));
        if !is_moved || bytes * world > SMALL || !is_whole {
            set_known(to, bytes, false);
            return SUCCESS;
        }
        let mine = read(from, bytes * world);
        let Some((_, _, all)) = exchange(on, &mine) else { return SYSTEM_ERROR };
        let part = rank * bytes..(rank + 1) * bytes;
        write(to, bytes, &reduce(&all, part, kind, (operation, world)));
        SUCCESS
    };
    ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, operation: c_int,
        on: *mut c_void, stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        let sent = 2 * (bytes - bytes / world_of(on));
        connect(on);
        if !is_moved(bytes, sent, to, (kind, stream)) {
            return SUCCESS;
        }
        let mine = read(from, bytes);
        let Some((_, _, all)) = exchange(on, &mine) else { return SYSTEM_ERROR };
        write(to, bytes, &reduce(&all, 0..bytes, kind, (operation, world_of(on))));
        SUCCESS
    };
    /// `ncclReduce`: the reduction of all, for one rank.
    ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, operation: c_int,
        root: c_int, on: *mut c_void, stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        let Some(rank) = with(on, |it| it.rank) else { return INVALID_ARGUMENT };
        connect(on);
        let result = if rank == root as usize { to } else { from };
        if !is_moved(bytes, bytes, result, (kind, stream)) {
            return SUCCESS;
        }
        let mine = read(from, bytes);
        let Some((_, _, all)) = exchange(on, &mine) else { return SYSTEM_ERROR };
        if rank == root as usize {
            write(to, bytes, &reduce(&all, 0..bytes, kind, (operation, world_of(on))));
        }
        SUCCESS
    };
    /// `ncclBroadcast`: one rank's data, for all.
    ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, root: c_int,
        on: *mut c_void, stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        connect(on);
        if !is_moved(bytes, bytes, to, (kind, stream)) {
            return SUCCESS;
        }
        let mine = read(from, bytes);
        let Some((_, _, all)) = exchange(on, &mine) else { return SYSTEM_ERROR };
        write(to, bytes, all.get(root as usize).unwrap_or(&mine));
        SUCCESS
    };
    /// `ncclAlltoAll`: the part for this rank of every rank's data.
    ncclAlltoAll(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, on: *mut c_void,
        stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        let Some((world, rank, is_whole)) = with(on, |it| (it.world, it.rank, it.is_whole)) else {
            return INVALID_ARGUMENT;
        };
        for peer in 0..world {
            connect_to(on, peer, true);
            connect_to(on, peer, false);
        }
        if !is_moved(bytes * world, bytes * (world - 1), to, (kind, stream)) || !is_whole {
            return SUCCESS;
        }
        let mine = read(from, bytes * world);
        let Some((_, _, all)) = exchange(on, &mine) else { return SYSTEM_ERROR };
        for slot in 0..world {
            let parcel = all.get(slot).unwrap_or(&mine);
            let part = parcel.bytes.get(rank * bytes..(rank + 1) * bytes).unwrap_or_default();
            let part = Parcel { bytes: part.to_vec(), is_known: parcel.is_known };
            write(to.byte_add(slot * bytes), bytes, &part);
        }
        SUCCESS
    };
    ncclBcast(
        at: *mut c_void, count: usize, kind: c_int, root: c_int, on: *mut c_void, stream: Stream
    ) = ncclBroadcast(at, at, count, kind, root, on, stream);
    /// Custom scalings are sums here: what they scale was made by kernels.
    ncclRedOpCreatePreMulSum(to: *mut c_int) = put(to, 0);
}
