//! Messages of NCCL: sends and receives between two ranks, alone or in groups.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use crate::Work;

use crate::exports::collectives::{limit, read, set_known, write};
use crate::exports::communicators::{
    INVALID_ARGUMENT, Result_, SUCCESS, connect_to, failed, post, with,
};
use crate::exports::reduction::Kind;
use crate::exports::state::{self, Stream, number, pointer};

/// The name of the next message between two ranks, counted at both ends.
fn message(on: *mut c_void, peer: usize, is_sent: bool) -> Option<String> {
    connect_to(on, peer, is_sent);
    with(on, |it| {
        let count = if is_sent { &mut it.sent } else { &mut it.received }.entry(peer).or_insert(0);
        *count += 1;
        let (from, to) = if is_sent { (it.rank, peer) } else { (peer, it.rank) };
        format!("{}.{from}to{to}.{count}", it.name)
    })
}

thread_local! {
    /// Receives of a group that has not ended: they wait until its sends were made.
    static OPEN: RefCell<(u32, Vec<Receive>)> = const { RefCell::new((0, Vec::new())) };
}

struct Receive {
    to: u64,
    bytes: usize,
    name: String,
    peer: usize,
}

impl Receive {
    fn finish(self) -> Result_ {
        match post().get(&self.name, self.peer) {
            Ok(parcel) => {
                // SAFETY: `ncclRecv` was handed a place for this many bytes.
                unsafe { write(pointer(self.to), self.bytes, &parcel) };
                post().drop(&self.name);
                SUCCESS
            }
            Err(error) => failed(&error),
        }
    }
}

skins! {
    /// Sends do not wait: the data is left for the other rank to take.
    ncclSend(
        from: *const c_void, count: usize, kind: c_int, peer: c_int, on: *mut c_void, stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        state::work(stream, Work::Link(bytes as u64));
        let Some(name) = message(on, peer as usize, true) else { return INVALID_ARGUMENT };
        if bytes > limit(kind) {
            return SUCCESS;
        }
        let parcel = read(from, bytes);
        match post().put(&name, &parcel) {
            Ok(()) => SUCCESS,
            Err(error) => failed(&error),
        }
    };
    ncclRecv(
        to: *mut c_void, count: usize, kind: c_int, peer: c_int, on: *mut c_void, stream: Stream
    ) = {
        let kind = Kind::of(kind);
        let bytes = count * kind.size();
        state::work(stream, Work::Link(bytes as u64));
        let peer = peer as usize;
        let Some(name) = message(on, peer, false) else { return INVALID_ARGUMENT };
        if bytes > limit(kind) || post().is_alone() {
            set_known(to, bytes, false);
            return SUCCESS;
        }
        let receive = Receive { to: number(to), bytes, name, peer };
        OPEN.with_borrow_mut(|(depth, open)| {
            if *depth > 0 {
                open.push(receive);
                return SUCCESS;
            }
            receive.finish()
        })
    };
    ncclGroupEnd() = {
        let open = OPEN.with_borrow_mut(|(depth, open)| {
            *depth = depth.saturating_sub(1);
            if *depth == 0 { std::mem::take(open) } else { Vec::new() }
        });
        open.into_iter().map(Receive::finish).max().unwrap_or(SUCCESS)
    };
    ncclGroupStart() = { OPEN.with_borrow_mut(|(depth, _)| *depth += 1); SUCCESS };
}
