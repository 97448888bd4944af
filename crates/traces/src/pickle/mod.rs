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

mod classes;
mod code;
mod containers;
mod document;
mod entry;
mod machine;
mod memo;
mod opcode;
mod recovery;
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
use containers::Open;
use machine::Machine;
use room::Room;

use super::options::LoadOptions;
use super::torch::Snapshot;
use super::{Position, Records, TraceError};
use super::{Warning, WarningKind};
use gmlake_core::units::{Bytes, MIB};

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
    let mut begin = 0;
    let mut last: Option<Vec<Records>> = None;
    let mut count = 0_u64;
    loop {
        let read = one(&bytes[begin..], options, room);
        let (records, end) = match (read, &last) {
            (Ok(read), _) => read,
            (Err(error), None) => return Err(error),
            // What stands behind a snapshot is none.
            (Err(_), Some(_)) => break,
        };
        let is_cut = records.iter().any(|one| one.cut_off.is_some());
        if is_cut && last.is_some() {
            break;
        }
        (last, count) = (Some(records), count + 1);
        begin += end;
        if bytes[begin..].iter().all(|&byte| byte == 0) {
            begin = bytes.len();
            break;
        }
    }
    let mut records = last.unwrap_or_default();
    note_the_others(&mut records, count, (bytes.len() - begin) as u64);
    Ok(records)
}

/// Warns of what a file has besides the snapshot that is read.
fn note_the_others(records: &mut [Records], count: u64, rest: u64) {
    let mut warn = |kind, count, first: String| {
        let warning = Warning { kind, count, first };
        records.iter_mut().for_each(|one| one.warnings.push(warning.clone()));
    };
    if count > 1 {
        let first = format!("this is number {count} of {count}, the last");
        warn(WarningKind::SeveralSnapshots, count, first);
    }
    if rest > 0 {
        warn(WarningKind::Trailing, 1, format!("{rest} bytes behind the snapshot"));
    }
}

/// Reads the snapshot that begins here, and says where it ends.
fn one(
    bytes: &[u8],
    options: &LoadOptions,
    room: Bytes,
) -> Result<(Vec<Records>, usize), TraceError> {
    let mut machine = Machine::new(bytes, options.stacks, Room::new(room));
    let root = match start(&mut machine, bytes, options.stacks, Room::new(room)) {
        Ok(root) => root,
        Err(error) if error.problem == code::ENDS => {
            let found = machine.recovered().map(|(root, open)| {
                records(root, machine, bytes, options, Some(open)).unwrap_or_default()
            });
            let found = found.filter(|records| !records.is_empty());
            return found.map(|records| (records, bytes.len())).ok_or(*error);
        }
        Err(error) => return Err(*error),
    };
    let end = machine.code.at;
    Ok((records(root, machine, bytes, options, None)?, end))
}

/// What is wrong with the beginning of a pickle that has more than these bytes, if anything is.
pub(super) fn check_beginning(bytes: &[u8], options: &LoadOptions) -> Result<(), TraceError> {
    let room = Room::new(BEGINNING);
    let mut machine = Machine::new(bytes, options.stacks, room);
    match start(&mut machine, bytes, options.stacks, room) {
        Err(error) if error.position != Position::Byte(bytes.len() as u64) => Err(*error),
        _ => Ok(()),
    }
}

/// Runs a pickle, again without runs if it needs that.
fn start<'a>(
    machine: &mut Machine<'a>,
    bytes: &'a [u8],
    stacks: bool,
    room: Room,
) -> Fallible<value::Value> {
    let root = machine.run();
    if !machine.was_misled {
        return root;
    }
    *machine = Machine::new(bytes, stacks, room).without_runs();
    machine.run()
}

fn records(
    root: value::Value,
    mut machine: Machine,
    bytes: &[u8],
    options: &LoadOptions,
    open: Option<Open>,
) -> Result<Vec<Records>, TraceError> {
    let numbers = std::mem::take(&mut machine.numbers);
    let heap = machine.into_heap();
    let mut snapshot =
        Snapshot::with_rest(options.torch_version, heap.room.left(), heap.room.limit());
    snapshot.numbers = numbers;
    let mut document = document::Document::new(bytes, heap, options.stacks);
    document.snapshot(root, &mut snapshot)?;
    if let Some(open) = open {
        document.note_the_end(root, &open, &mut snapshot);
    }
    // The heap goes before the records are finished.
    drop(document);
    snapshot.finish()
}
