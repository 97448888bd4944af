//! Twins: runs of entries next to the machine that reads them operation by operation, on made-up pickles.
//!
//! The writer here writes what picklers write, and what none would: keys in any order, with and without numbers, shared
//! lists, frames in the middle of an entry, lists that are fetched and appended to later, bytes that are damaged.

use proptest::prelude::*;

use super::super::Action;
use super::super::options::LoadOptions;
use super::super::synthetic::SplitMix64;
use super::machine::Machine;
use super::opcode as op;
use super::room::Room;
use super::{records as records_of, start};
use gmlake_core::units::MIB;

/// What the file says, or what is wrong with it.
fn read(bytes: &[u8], stacks: bool, host: bool, has_runs: bool) -> String {
    let options = LoadOptions { stacks, host, ..LoadOptions::default() };
    let room = Room::new(64 * MIB);
    let mut machine = Machine::new(bytes, stacks, room);
    if !has_runs {
        machine = machine.without_runs();
    }
    let root = start(&mut machine, bytes, stacks, room).map_err(|error| *error);
    let records = root.and_then(|root| records_of(root, machine, bytes, &options, (None, None)));
    records.map_or_else(|error| error.to_string(), |(records, _)| format!("{records:?}"))
}

fn assert_twins(bytes: &[u8]) {
    for (stacks, host) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(read(bytes, stacks, host, true), read(bytes, stacks, host, false));
    }
}

/// How a pickle is written.
#[derive(Debug, Clone, Copy)]
struct Style {
    protocol: u8,
    /// Dicts, lists and texts get numbers.
    is_numbered: bool,
    /// Texts that have one are fetched; otherwise every one is written out.
    fetches: bool,
    /// Of a hundred entries, how many are odd in some way.
    odd: u64,
    /// Entries between two marks; 0: all.
    batch: usize,
    /// Some entries begin with a frame of protocol 4.
    has_frames: bool,
    stacks: u64,
}

struct Writer {
    style: Style,
    random: SplitMix64,
    out: Vec<u8>,
    texts: Vec<(String, u32)>,
    next: u32,
    /// Numbers of stack frames, of lists of them, and of entries.
    frames: Vec<u32>,
    lists: Vec<u32>,
    entries: Vec<u32>,
    order: Vec<usize>,
}

/// The last is one of other tools.
fn names() -> [&'static str; 10] {
    let all = Action::ALL;
    std::array::from_fn(|at| all.get(at).map_or("free", |action| action.name()))
}

impl Writer {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound.max(1))
    }

    fn is_odd(&mut self) -> bool {
        self.below(100) < self.style.odd
    }

    fn put(&mut self) -> u32 {
        if self.style.is_numbered {
            match (self.style.protocol, u8::try_from(self.next)) {
                (4.., _) => self.out.push(op::MEMOIZE),
                (_, Ok(id)) => self.out.extend([op::BINPUT, id]),
                _ => self.with_u32(op::LONG_BINPUT, self.next),
            }
            self.next += 1;
        }
        self.next.wrapping_sub(1)
    }

    fn with_u32(&mut self, code: u8, number: u32) {
        self.out.push(code);
        self.out.extend(number.to_le_bytes());
    }

    fn get(&mut self, id: u32) {
        match u8::try_from(id) {
            Ok(id) => self.out.extend([op::BINGET, id]),
            Err(_) => self.with_u32(op::LONG_BINGET, id),
        }
    }

    fn text(&mut self, text: &str) {
        let known = self.texts.iter().find(|(known, _)| known == text).map(|&(_, id)| id);
        if let Some(id) = known.filter(|_| self.style.fetches && self.style.is_numbered) {
            return self.get(id);
        }
        match self.style.protocol {
            4.. => self.out.extend([op::SHORT_BINUNICODE, text.len() as u8]),
            _ => self.with_u32(op::BINUNICODE, text.len() as u32),
        }
        self.out.extend(text.bytes());
        let id = self.put();
        if known.is_none() {
            self.texts.push((text.to_owned(), id));
        }
    }

    fn int(&mut self, number: u64) {
        match (u8::try_from(number), u16::try_from(number), i32::try_from(number)) {
            (Ok(byte), ..) => self.out.extend([op::BININT1, byte]),
            (_, Ok(short), _) => {
                self.out.push(op::BININT2);
                self.out.extend(short.to_le_bytes());
            }
            (_, _, Ok(int)) => self.with_u32(op::BININT, int as u32),
            _ => {
                let wide = i128::from(number).to_le_bytes();
                let bits = 65 - number.leading_zeros() as usize;
                // PyTorch's own pickler always writes eight bytes.
                let len = if bits <= 64 && self.style.batch == 0 { 8 } else { bits.div_ceil(8) };
                self.out.extend([op::LONG1, len as u8]);
                self.out.extend(&wide[..len]);
            }
        }
    }

    fn pair(&mut self, key: &str, text: &str) {
        self.text(key);
        self.text(text);
    }

    /// One of these numbers is fetched, if there are any.
    fn get_any(&mut self, of: fn(&Self) -> &Vec<u32>) -> bool {
        let count = of(self).len() as u64;
        if count > 0 {
            let at = self.below(count) as usize;
            self.get(of(self)[at]);
        }
        count > 0
    }

    fn frame(&mut self) {
        self.out.push(op::EMPTY_DICT);
        let id = self.put();
        self.out.push(op::MARK);
        self.pair("name", "forward");
        self.pair("filename", "model.py");
        self.text("line");
        let line = self.below(300);
        self.int(line);
        self.out.push(op::SETITEMS);
        if self.style.is_numbered {
            self.frames.push(id);
        }
    }

    fn frames(&mut self) {
        let odd = self.is_odd();
        if self.below(3) == 0 && self.get_any(|it| &it.lists) {
            if odd && self.get_any(|it| &it.frames) {
                // The list that is fetched grows: that of every entry that has it.
                self.out.push(op::APPEND);
            }
            return;
        }
        self.out.push(op::EMPTY_LIST);
        let id = self.put();
        let count = self.below(5);
        if count > 1 {
            self.out.push(op::MARK);
        }
        for _ in 0..count {
            if self.below(20) == 0 || !self.get_any(|it| &it.frames) {
                self.frame();
            }
        }
        match count {
            0 => {}
            1 => self.out.push(op::APPEND),
            _ => self.out.push(op::APPENDS),
        }
        if self.style.is_numbered {
            self.lists.push(id);
        }
    }

    fn item(&mut self, which: usize, name: &str) {
        let (key, number) = match which {
            0 => return self.pair("action", name),
            1 => {
                let key = if name == "oom" { "device_free" } else { "addr" };
                (key, 0x7f00_0000_0000 + 512 * self.below(1000))
            }
            2 => {
                let bits = self.below(45);
                ("size", self.below(1 << bits))
            }
            3 => ("stream", [0, 0, 0x5555_0000, 1 << 62][self.below(4) as usize]),
            4 => ("time_us", 1_795_254_946_539_174 + self.below(1 << 20)),
            5 if self.style.stacks > 0 => {
                self.text("frames");
                return self.frames();
            }
            6 => {
                let labels = ["N/A", "", "0/1", "a rather long context"];
                let label = labels[self.below(4) as usize];
                return self.pair("compile_context", label);
            }
            7 => {
                let label = format!("epoch {}", self.below(20));
                return self.pair("user_metadata", &label);
            }
            8 if self.style.stacks > 1 => {
                self.text("pool_id");
                let pool = self.below(3);
                self.int(pool);
                self.out.extend([op::BININT1, 0, op::TUPLE2]);
                self.put();
                return;
            }
            _ => return,
        };
        self.text(key);
        self.int(number);
    }

    fn entry(&mut self) {
        if self.style.has_frames && self.below(7) == 0 {
            self.out.extend([op::FRAME, 0, 0, 1, 0, 0, 0, 0, 0]);
        }
        self.out.push(op::EMPTY_DICT);
        let id = self.put();
        self.out.push(op::MARK);
        let name = names()[self.below(if self.style.odd > 0 { 10 } else { 9 }) as usize];
        for which in self.order.clone() {
            if self.is_odd() {
                self.oddity();
            }
            self.item(which, name);
        }
        self.out.push(op::SETITEMS);
        if self.style.is_numbered {
            self.entries.push(id);
        }
        if self.is_odd() {
            self.behind();
        }
    }

    /// Something between two items.
    fn oddity(&mut self) {
        const FORMS: [(&str, &[u8]); 8] = [
            ("", &[op::BININT1, 7, op::NONE]),
            ("", &[op::FRAME, 0, 0, 1, 0, 0, 0, 0, 0]),
            ("size", &[]),
            ("extra", &[op::EMPTY_LIST, op::NONE, op::APPEND]),
            ("extra", &[op::BINFLOAT, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("stream", &[op::BININT, 0xff, 0xff, 0xff, 0xff]),
            ("frames", &[op::NONE]),
            // As long as an address, and negative.
            ("addr", &[op::LONG1, 6, 0, 0, 0, 0, 0, 0xff]),
        ];
        match FORMS.get(self.below(10) as usize) {
            Some((key, value)) => {
                if !key.is_empty() {
                    self.text(key);
                }
                self.out.extend(*value);
            }
            None if self.below(2) == 0 => self.item(2, "alloc"),
            None => self.pair("action", "invented"),
        }
    }

    /// Something between two entries.
    fn behind(&mut self) {
        match self.below(8) {
            0 => self.out.push(op::DUP),
            1 => self.out.extend([op::BININT1, 1, op::POP]),
            2 => {
                self.get_any(|it| &it.entries);
            }
            3 => {
                // The last entry is changed.
                self.text("size");
                self.out.extend([op::BININT1, 9, op::SETITEM]);
            }
            4 => self.out.push(op::POP),
            5 if self.style.is_numbered => self.out.extend([op::BINPUT, 3]),
            6 if self.get_any(|it| &it.lists) => self.out.push(op::POP),
            _ => {}
        }
    }

    fn snapshot(mut self, entries: usize) -> Vec<u8> {
        self.out.extend([op::PROTO, self.style.protocol, op::EMPTY_DICT]);
        self.put();
        self.out.push(op::MARK);
        self.text("device_traces");
        self.out.push(op::EMPTY_LIST);
        self.put();
        self.out.push(op::MARK);
        (0..2).for_each(|_| self.list(entries));
        self.out.push(op::APPENDS);
        self.text("host_traces");
        self.list(entries / 2);
        self.out.extend([op::SETITEMS, op::STOP]);
        self.out
    }

    fn list(&mut self, entries: usize) {
        self.out.push(op::EMPTY_LIST);
        self.put();
        let batch = if self.style.batch == 0 { entries } else { self.style.batch };
        for begin in (0..entries).step_by(batch.max(1)) {
            self.out.push(op::MARK);
            (begin..entries.min(begin + batch)).for_each(|_| self.entry());
            self.out.push(op::APPENDS);
        }
    }
}

fn write(style: Style, seed: u64, entries: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let mut order: Vec<usize> = (0..9).collect();
    for at in 1..9 {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let (texts, [frames, lists, entered]) = (Vec::new(), [const { Vec::new() }; 3]);
    let (out, next) = (Vec::new(), 0);
    let writer = Writer { style, random, out, texts, next, frames, lists, entries: entered, order };
    writer.snapshot(entries)
}

fn styles() -> impl Strategy<Value = Style> {
    let numbers = (2_u8..=5, any::<bool>(), any::<bool>(), 0_u64..3, any::<bool>());
    let parts = (prop::sample::select(vec![0, 0, 1, 5]), prop::sample::select(vec![0, 1, 7, 1000]));
    (numbers, parts).prop_map(|((protocol, is_numbered, fetches, stacks, frames), (odd, batch))| {
        let has_frames = frames && protocol >= 4;
        Style { protocol, is_numbered, fetches, odd, batch, has_frames, stacks }
    })
}

proptest! {
    #[test]
    fn runs_and_the_machine_read_the_same(style in styles(), seed: u64, entries in 0_usize..60) {
        assert_twins(&write(style, seed, entries));
    }

    #[test]
    fn they_say_the_same_of_damage(
        style in styles(),
        seed: u64,
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut bytes = write(style, seed, 20);
        assert_twins(&bytes[..cut.index(bytes.len())]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        assert_twins(&bytes);
        bytes.remove(at);
        assert_twins(&bytes);
    }
}

/// The tests above would hold if runs read nothing.
#[test]
fn runs_read_what_picklers_write() {
    for protocol in 2..=5 {
        for (is_numbered, fetches, stacks) in
            [(true, true, 0), (true, true, 2), (true, false, 0), (false, false, 0)]
        {
            let (odd, batch, has_frames) = (0, 1000, false);
            let style = Style { protocol, is_numbered, fetches, odd, batch, has_frames, stacks };
            let bytes = write(style, 7, 2000);
            let mut machine = Machine::new(&bytes, false, Room::new(64 * MIB));
            machine.run().unwrap();
            let (dicts, entries) = machine.dicts_and_entries();
            assert_eq!(entries, 5000, "{style:?}");
            // Those that have new frames in them, and the frames.
            assert!(
                dicts < if stacks > 0 { 800 } else { 20 },
                "{dicts} dicts were read by the machine: {style:?}"
            );
        }
    }
}
