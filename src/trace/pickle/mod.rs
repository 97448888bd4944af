//! PyTorch's snapshot as a pickle, protocols 2 to 5, read without executing anything.
//!
//! A snapshot of 300,000 entries is 28 MB of pickle, most of it references to shared objects: the keys of the dicts,
//! the stack frames, the lists of frames. General readers copy or count what is shared (the crates that we tried need
//! 0.6 to 2 s, or fail). Here a reference is a number, and a trace entry becomes 32 bytes as soon as its dict is full:
//!
//! ```text
//!  bytes ──Machine──▶ stack, memo ──▶ Heap: entries (32 B each)      ──Walk──▶ Snapshot ──▶ Records
//!         one pass    of 16-byte            dicts, lists, tuples       by path: device_traces[*][*],
//!         no copies   values                (numbers into tables)      segments[*].blocks[*], ...
//! ```
//!
//! Nothing recurses, so no nesting and no cycle can exhaust the call stack; every table has a limit; and what is
//! unfolded from shared objects is bounded by the length of the file.

mod code;
mod containers;
mod document;
mod entry;
mod machine;
mod memo;
mod opcode;
mod refusal;
mod room;
mod run;
mod scan;
mod stacks;
mod texts;
mod traces;
#[cfg(test)]
mod twins;
mod value;
mod walk;
mod write;

pub(super) use write::{Pickler, Value};

use code::Fallible;
use machine::Machine;
use room::Room;

use super::options::LoadOptions;
use super::torch::Snapshot;
use super::{Position, Records, TraceError};
use crate::units::{Bytes, MIB};

/// The number that torch.save wrote first before it wrote zip archives, as a pickle of its own.
const TORCH_SAVE: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
/// The memory that the first block of a stream may take.
const BEGINNING: Bytes = 64 * MIB;
const AGAIN: &str =
    "write the snapshot with pickle.dump(snapshot, file), or with torch.cuda.memory._dump_snapshot";

/// Reads a pickled snapshot.
///
/// # Errors
/// If the bytes are no pickle of protocol 2 to 5, need more than plain data, or are no snapshot.
pub(super) fn read(
    bytes: &[u8],
    options: &LoadOptions,
    room: Bytes,
) -> Result<Vec<Records>, TraceError> {
    if bytes.starts_with(TORCH_SAVE) {
        let problem = "a file of torch.save in its old form";
        return Err(TraceError::new(Position::File, problem, AGAIN));
    }
    let (root, machine) = run(bytes, options.stacks, Room::new(room))?;
    records(root, machine, bytes, options)
}

/// What is wrong with the beginning of a pickle that has more than these bytes, if anything is.
pub(super) fn check_beginning(bytes: &[u8], options: &LoadOptions) -> Result<(), TraceError> {
    match run(bytes, options.stacks, Room::new(BEGINNING)) {
        Err(error) if error.position != Position::Byte(bytes.len() as u64) => Err(*error),
        _ => Ok(()),
    }
}

/// The value that a pickle makes, and the machine that made it.
fn run(bytes: &[u8], stacks: bool, room: Room) -> Fallible<(value::Value, Machine<'_>)> {
    let mut machine = Machine::new(bytes, stacks, room);
    let mut root = machine.run();
    if machine.was_misled {
        machine = Machine::new(bytes, stacks, room).without_runs();
        root = machine.run();
    }
    Ok((root?, machine))
}

fn records(
    root: value::Value,
    mut machine: Machine,
    bytes: &[u8],
    options: &LoadOptions,
) -> Result<Vec<Records>, TraceError> {
    let numbers = std::mem::take(&mut machine.numbers);
    let heap = machine.into_heap();
    let mut snapshot =
        Snapshot::with_rest(options.torch_version, heap.room.left(), heap.room.limit());
    snapshot.numbers = numbers;
    let mut document = document::Document::new(bytes, heap, options.stacks);
    document.snapshot(root, &mut snapshot)?;
    // The heap goes before the records are finished.
    drop(document);
    snapshot.finish()
}
