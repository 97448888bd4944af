//! Refusals: what is said about an operation that a snapshot has no use for.
//!
//! Pickle can import any function and call it. Whoever sends a snapshot that does so learns what it would have called.

use super::super::TraceError;
use super::super::error::excerpt;
use super::code::Code;
use super::opcode as op;
use super::value::{Value, text};

/// What to do about a pickle that is too old.
pub(super) const SAVE_AGAIN: &str = "save it again with pickle.dump(snapshot, file, protocol=4)";

/// What to do about a file with tensors.
const CHECKPOINT: &str = "give the file of torch.cuda.memory._dump_snapshot";

/// What to do about a dict of another class.
const PLAIN_DICT: &str = "write it as a plain dict, with pickle.dump(dict(snapshot), file)";

/// The error for an operation that a snapshot has no use for.
#[cold]
pub(super) fn refusal(operation: u8, code: &Code, stack: &[Value]) -> Box<TraceError> {
    let at = code.at - 1;
    let objects = |what: String| {
        if what.starts_with("torch.") || what.starts_with("torch_") {
            let problem = format!("a checkpoint with tensors ({what}), not a recording of memory");
            return code.fail(at, problem, CHECKPOINT);
        }
        let remedy = match what.as_str() {
            "collections.OrderedDict" | "collections.defaultdict" => PLAIN_DICT,
            _ => "a snapshot is plain data: nothing in this file was executed",
        };
        code.fail(at, format!("contains Python objects: {what}"), remedy)
    };
    match operation {
        op::GLOBAL | op::INST => {
            let mut lines = code.bytes[code.at..].split(|&b| b == b'\n').map(excerpt);
            let module = lines.next().unwrap_or_default();
            objects(format!("{module}.{}", lines.next().unwrap_or_default()))
        }
        op::STACK_GLOBAL => {
            let name = |value: Option<&Value>| {
                excerpt(value.and_then(|&v| text(code.bytes, v)).unwrap_or(b"?"))
            };
            let last = stack.len().wrapping_sub(1);
            let module = name(stack.get(last.wrapping_sub(1)));
            objects(format!("{module}.{}", name(stack.get(last))))
        }
        _ => match OBJECT_OPERATIONS.iter().find(|(byte, _)| *byte == operation) {
            Some((_, name)) => objects((*name).to_owned()),
            None if b"ILSVFpg".contains(&operation) => {
                let problem = format!("text operation {:?} of protocol 0", char::from(operation));
                code.fail(at, problem, SAVE_AGAIN)
            }
            None => {
                let problem = format!("{operation:#04x} is no pickle operation");
                code.fail(at, problem, "the file is damaged, or no pickle")
            }
        },
    }
}

/// Operations that make or fetch objects, with their names.
const OBJECT_OPERATIONS: [(u8, &str); 12] = [
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'o', "OBJ"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];
