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
mod numpy;
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

pub use walk::RECORD_HOST;

use code::Fallible;
use containers::Open;
use machine::Machine;
use room::Room;

use super::options::LoadOptions;
use super::torch::Snapshot;
use super::{Position, Records, Result, TraceError, several};
use gmlake_core::units::{Bytes, MIB};

/// The number that torch.save wrote first before it wrote zip archives, as a pickle of its own.
const TORCH_SAVE: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
/// The memory that the first block of a stream may take.
const BEGINNING: Bytes = 64 * MIB;
const AGAIN: &str =
    "write the snapshot with pickle.dump(snapshot, file), or with torch.cuda.memory._dump_snapshot";

/// Reads a pickled snapshot. Fails if the bytes are no pickle of protocol 2 to 5, need more than plain data, or are no
/// snapshot.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    if bytes.starts_with(TORCH_SAVE) {
        let problem = "a file of torch.save in its old form";
        return Err(TraceError::new(Position::File, problem, AGAIN));
    }
    if let Some(number) = options.snapshot {
        return chosen(bytes, options, room, number.get());
    }
    let mut begin = 0;
    let mut last: Option<Vec<Records>> = None;
    let mut count = 0_u64;
    loop {
        let read = one(&bytes[begin..], options, room, None);
        let One { records, end, .. } = match (read, &last) {
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
    several::note_the_others(&mut records, count, (bytes.len() - begin) as u64);
    Ok(records)
}

/// Reads snapshot number `number` of the file, from 1 on.
fn chosen(bytes: &[u8], options: &LoadOptions, room: Bytes, number: usize) -> Result<Vec<Records>> {
    let (mut begin, mut before) = (0, 0);
    while bytes[begin..].iter().any(|&byte| byte != 0) {
        let read = match one(&bytes[begin..], options, room, Some(number - 1 - before)) {
            Err(error) if before == 0 => return Err(error),
            // What stands behind a snapshot is none.
            Err(_) => break,
            Ok(read) => read,
        };
        if number <= before + read.count {
            return Ok(read.records);
        }
        (begin, before) = (begin + read.end, before + read.count);
    }
    Err(several::beyond(number, before))
}

/// One of several pickles.
struct One {
    /// What the snapshot says that was chosen in it; nothing, if it has fewer.
    records: Vec<Records>,
    /// Snapshots in it.
    count: usize,
    /// Where it ends.
    end: usize,
}

/// Reads the pickle that begins here. `place`: which of the snapshots in it; `None`: the only one.
fn one(bytes: &[u8], options: &LoadOptions, room: Bytes, place: Option<usize>) -> Result<One> {
    let mut machine = Machine::new(bytes, options.stacks, Room::new(room));
    let root = match start(&mut machine, bytes, options.stacks, Room::new(room)) {
        Ok(root) => root,
        Err(error) if error.problem == code::ENDS => {
            let Some((root, open)) = machine.recovered() else { return Err(*error) };
            let found = records(root, machine, bytes, options, (Some(open), place));
            let found = found.ok().filter(|(records, _)| !records.is_empty());
            let whole = |(records, count)| One { records, count, end: bytes.len() };
            return found.map(whole).ok_or(*error);
        }
        Err(error) => return Err(*error),
    };
    let end = machine.code.at;
    let (records, count) = records(root, machine, bytes, options, (None, place))?;
    Ok(One { records, count, end })
}

/// What is wrong with the beginning of a pickle that has more than these bytes, if anything is.
pub(super) fn check_beginning(bytes: &[u8], options: &LoadOptions) -> Result<()> {
    let room = Room::new(BEGINNING);
    let mut machine = Machine::new(bytes, options.stacks, room);
    let started = start(&mut machine, bytes, options.stacks, room);
    // What random bytes go on as, if as anything.
    let is_one_text = machine.is_bare() && machine.code.at < bytes.len() / 2;
    match started {
        Err(error) if error.position != Position::Byte(bytes.len() as u64) => Err(*error),
        Err(_) if is_one_text => {
            Err(*machine.code.damaged("begins a long text where a snapshot has a dict"))
        }
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

/// What the snapshot in this place of a document says, and how many there are.
fn records(
    root: value::Value,
    mut machine: Machine,
    bytes: &[u8],
    options: &LoadOptions,
    (open, place): (Option<Open>, Option<usize>),
) -> Result<(Vec<Records>, usize)> {
    let numbers = std::mem::take(&mut machine.numbers);
    let heap = machine.heap;
    let mut snapshot =
        Snapshot::with_rest(options.torch_version, heap.room.left(), heap.room.limit());
    (snapshot.numbers, snapshot.is_host) = (numbers, options.host);
    let mut document = document::Document::new(bytes, heap, options.stacks);
    let found = document.snapshots(root);
    let root = match (place, &found[..]) {
        (None, &[only]) => only,
        (None, all) => return Err(several::choose(all.len())),
        (Some(place), all) => match all.get(place) {
            Some(&chosen) => chosen,
            None => return Ok((Vec::new(), all.len())),
        },
    };
    document.snapshot(root, &mut snapshot)?;
    if let Some(open) = open {
        document.note_the_end(root, &open, &mut snapshot);
    }
    // The heap goes before the records are finished.
    drop(document);
    Ok((snapshot.finish()?, found.len()))
}
