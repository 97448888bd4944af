//! Classes: those of others that are plain data in other clothes. Nothing is imported and nothing is called: a dict of
//! the standard library is a dict, and one of numpy's numbers is a number ([`super::numpy`]).

use super::code::Fallible;
use super::machine::Machine;
use super::opcode as op;
use super::value::{Callable, Value, text};

/// What is known, by module and name.
const KNOWN: [(&[u8], &[u8], Callable); 10] = [
    (b"collections", b"OrderedDict", Callable::Dict),
    (b"collections", b"defaultdict", Callable::Dict),
    // A `defaultdict` takes these as an argument.
    (b"builtins", b"list", Callable::Dict),
    (b"builtins", b"dict", Callable::Dict),
    (b"__builtin__", b"list", Callable::Dict),
    (b"__builtin__", b"dict", Callable::Dict),
    (b"numpy", b"dtype", Callable::Dtype),
    (b"numpy.core.multiarray", b"scalar", Callable::Scalar),
    (b"numpy._core.multiarray", b"scalar", Callable::Scalar),
    (b"_codecs", b"encode", Callable::Encode),
];

fn known(module: &[u8], name: &[u8]) -> Option<Value> {
    let found = KNOWN.iter().find(|known| (known.0, known.1) == (module, name));
    found.map(|&(.., callable)| Value::Callable(callable))
}

impl Machine<'_> {
    /// Does the operation if it is about such a class; otherwise nothing, and returns `false`.
    pub(super) fn known_object(&mut self, operation: u8) -> Fallible<bool> {
        match operation {
            op::GLOBAL => self.global(),
            op::STACK_GLOBAL => self.stack_global(),
            op::REDUCE => self.call(),
            _ => self.build(),
        }
    }

    fn global(&mut self) -> Fallible<bool> {
        let mut lines = self.code.bytes[self.code.at..].splitn(3, |&b| b == b'\n');
        let (Some(module), Some(name)) = (lines.next(), lines.next()) else { return Ok(false) };
        let Some(callable) = known(module, name) else { return Ok(false) };
        self.code.at += module.len() + name.len() + 2;
        self.push(callable).map(|()| true)
    }

    fn stack_global(&mut self) -> Fallible<bool> {
        let [.., module, name] = self.stack[self.floor..] else { return Ok(false) };
        let named = |value| text(self.code.bytes, value).unwrap_or_default();
        let Some(callable) = known(named(module), named(name)) else { return Ok(false) };
        self.stack.truncate(self.stack.len() - 2);
        self.push(callable).map(|()| true)
    }

    fn call(&mut self) -> Fallible<bool> {
        let [.., Value::Callable(callable), Value::Tuple(arguments)] = self.stack[self.floor..]
        else {
            return Ok(false);
        };
        let made = match callable {
            // Called with whatever arguments: the items come later.
            Callable::Dict => self.heap.dict()?,
            Callable::Dtype => self.dtype(arguments)?,
            Callable::Scalar => self.scalar_of(arguments)?,
            Callable::Encode => self.encoded(arguments)?,
        };
        self.stack.truncate(self.stack.len() - 2);
        self.push(made).map(|()| true)
    }

    fn build(&mut self) -> Fallible<bool> {
        let [.., Value::Dtype(_), Value::Tuple(state)] = self.stack[self.floor..] else {
            return Ok(false);
        };
        self.check_order(state)?;
        self.stack.truncate(self.stack.len() - 1);
        Ok(true)
    }
}
