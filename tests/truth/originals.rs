//! XLA's and RAPIDS' allocators, compared with what the originals answered to the same scripts.
//!
//! `tests/data/originals/NAME.txt` holds scripts of our own, and where the original of allocator NAME served each
//! request: compiled from its source, on a device that counts addresses upwards.
//!
//! ```text
//!   # 33554432 size=33554432    a new allocator, on a device with this memory, with these options
//!   m 1 3000 2 1024             a request on stream 1 for 3000 bytes: segment 2 (in the order they came), byte 1024
//!   m 0 9000000 -               no memory for that
//!   f 7                         request number 7 is freed, if it was served
//! ```

use std::path::Path;

use gmlake::alloc_conf::AllocConf;
use gmlake::allocator::{Allocation, Allocator, Environment, Options, Request, find};
use gmlake::device::{DevicePtr, SimDevice};
use gmlake::trace::{PoolId, StreamId};

/// An allocator that goes through a script.
struct Actor {
    allocator: Box<dyn Allocator>,
    device: SimDevice,
    given: Vec<Option<Allocation>>,
    /// Segments in the order in which they came.
    segments: Vec<DevicePtr>,
}

impl Actor {
    fn new(name: &str, head: &str) -> Self {
        let mut words = head.split_whitespace();
        let memory = words.next().and_then(|word| word.parse().ok()).expect("the device's memory");
        let mut options = Options::default();
        for (option, value) in words.filter_map(|word| word.split_once('=')) {
            options.set(option, value);
        }
        let environment = Environment::new(AllocConf::default());
        let spec = find(name).expect("an allocator of this name");
        let allocator = spec.build(&options, &environment).expect("options that it has");
        Self { allocator, device: SimDevice::new(memory), given: vec![], segments: vec![] }
    }

    /// Does what a line says, and writes the line with our own answer.
    fn answer(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words[place].parse::<u64>().expect("a number");
        if words[0] == "f" {
            if let Some(given) = self.given[number(1) as usize].take() {
                self.allocator.free(&mut self.device, given.block);
            }
            return line.to_owned();
        }
        let (stream, size) = (StreamId(number(1) as u16), number(2));
        let request = Request { size, stream, pool: PoolId::DEFAULT };
        let given = self.allocator.malloc(&mut self.device, request).ok();
        self.given.push(given);
        let place = given.map_or("-".to_owned(), |given| self.place(given.at));
        format!("m {} {size} {place}", stream.0)
    }

    /// Number of the segment, and where in it.
    fn place(&mut self, at: DevicePtr) -> String {
        let found = self.allocator.blocks().into_iter().find(|view| view.at == at);
        let segment = found.expect("a block begins there").segment;
        let known = self.segments.iter().position(|&other| other == segment);
        let number = known.unwrap_or_else(|| {
            self.segments.push(segment);
            self.segments.len() - 1
        });
        format!("{number} {}", at.0 - segment.0)
    }
}

fn compare(name: &str) {
    let path = format!("{}/tests/data/originals/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(Path::new(&path)).expect("the original's answers");
    let (mut actor, mut served, mut refused) = (None, 0, 0);
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(head) = line.strip_prefix("# ") {
            actor = Some(Actor::new(name, head));
            continue;
        }
        let answer = actor.as_mut().expect("a script begins with its device").answer(line);
        assert_eq!(answer, line, "{name}, line {number}");
        let is_refused = line.ends_with('-');
        refused += usize::from(is_refused);
        served += usize::from(line.starts_with('m') && !is_refused);
    }
    assert!(served > 300 && refused > 10, "{name}: {served} served, {refused} refused");
}

#[test]
fn xla_bfc_decides_as_the_original() {
    compare("xla-bfc");
}

#[test]
fn rmm_pool_decides_as_the_original() {
    compare("rmm-pool");
}

#[test]
fn rmm_arena_decides_as_the_original() {
    compare("rmm-arena");
}
