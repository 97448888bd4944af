//! Classes: those of the standard library that are plain dicts in other clothes. Nothing is imported and nothing is
//! called: a dict is a dict.

use super::machine::Machine;
use super::opcode as op;
use super::value::{Value, text};

/// Dicts; and `list`, which a `defaultdict` takes as an argument.
const PLAIN: [(&[u8], &[u8]); 6] = [
    (b"collections", b"OrderedDict"),
    (b"collections", b"defaultdict"),
    (b"builtins", b"list"),
    (b"builtins", b"dict"),
    (b"__builtin__", b"list"),
    (b"__builtin__", b"dict"),
];

impl Machine<'_> {
    /// Does the operation if it is about such a class; otherwise nothing.
    pub(super) fn plain_class(&mut self, operation: u8) -> bool {
        let is_plain = |name: (&[u8], &[u8])| PLAIN.contains(&name);
        match operation {
            op::GLOBAL => {
                let mut lines = self.code.bytes[self.code.at..].splitn(3, |&b| b == b'\n');
                let (Some(module), Some(name)) = (lines.next(), lines.next()) else { return false };
                let len = module.len() + name.len() + 2;
                is_plain((module, name)) && {
                    self.code.at += len;
                    self.push(Value::DictClass).is_ok()
                }
            }
            op::STACK_GLOBAL => {
                let [.., module, name] = self.stack[self.floor..] else { return false };
                let named = |value| text(self.code.bytes, value).unwrap_or_default();
                is_plain((named(module), named(name))) && {
                    self.stack.truncate(self.stack.len() - 2);
                    self.push(Value::DictClass).is_ok()
                }
            }
            // Called with whatever arguments: the items come later.
            _ => {
                let [.., Value::DictClass, Value::Tuple(_)] = self.stack[self.floor..] else {
                    return false;
                };
                self.stack.truncate(self.stack.len() - 2);
                let dict = self.heap.dict();
                dict.and_then(|dict| self.push(dict)).is_ok()
            }
        }
    }
}
