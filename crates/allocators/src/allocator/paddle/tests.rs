//! The scripts of `tests/data/paddle.txt`, with what follows for them from Paddle's source.

use std::fmt::Write;

use crate::allocator::{Allocation, Allocator, Environment, Options, Request, find, segment_of};
use crate::device::{CallCounts, Counted, DevicePtr, SimDevice, Watched};
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::program::{PoolId, StreamId};
use gmlake_core::units::{Bytes, KIB, MIB};

const GOLDEN: &str = include_str!("../../../tests/data/paddle.txt");

/// An allocator that goes through a script.
struct Actor {
    allocator: Box<dyn Allocator>,
    device: Watched<SimDevice, Counted>,
    given: Vec<Option<Allocation>>,
    /// Arenas in the order in which they came.
    arenas: Vec<DevicePtr>,
}

impl Actor {
    fn new(head: &str) -> Self {
        let mut words = head.split_whitespace();
        let name = words.next().expect("an allocator");
        let memory = bytes(words.next().expect("the device's memory"));
        let mut device = SimDevice::new(memory);
        let mut options = Options::default();
        for (option, value) in words.filter_map(|word| word.split_once('=')) {
            match option {
                "lag" => device = device.lagging(value.parse().expect("a number of events")),
                _ => options.set(option, value),
            }
        }
        let environment = Environment::new(AllocConf::default());
        let spec = find(name).expect("an allocator");
        let allocator = spec.build(&options, &environment).expect("options");
        let device = Watched::new(device, Counted::default());
        Self { allocator, device, given: Vec::new(), arenas: Vec::new() }
    }

    /// Does what a line says, and writes the line with our own answer.
    fn answer(&mut self, line: &str) -> String {
        let before = self.device.watch.calls;
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut text = match words[0] {
            "waits" => {
                let (_, waits) = self.allocator.counters().pop().expect("a counter");
                return format!("waits {waits}");
            }
            "m" => self.malloc(words[1], words[2]),
            "f" => {
                let place = words[1].parse::<usize>().expect("a number");
                let given = self.given[place].take().expect("it was served");
                self.allocator.free(&mut self.device, given.block);
                format!("f {place}")
            }
            "t" => {
                self.allocator.trim(&mut self.device);
                "t".to_owned()
            }
            other => panic!("operation {other}"),
        };
        let CallCounts { create, map, set_access, unmap, release, .. } =
            self.device.watch.calls - before;
        let held = size(self.allocator.usage().reserved);
        write!(text, " | {held} | {create} {map} {set_access} {unmap} {release}").unwrap();
        text
    }

    fn malloc(&mut self, stream: &str, wanted: &str) -> String {
        let stream_id = StreamId(stream.parse().expect("a stream"));
        let request = Request { size: bytes(wanted), stream: stream_id, pool: PoolId::DEFAULT };
        let given = self.allocator.malloc(&mut self.device, request).ok();
        self.given.push(given);
        let place = given.map_or("-".to_owned(), |given| self.place(given));
        format!("m {stream} {wanted} -> {place}")
    }

    fn place(&mut self, given: Allocation) -> String {
        let segment = segment_of(&*self.allocator, given.at);
        let known = self.arenas.iter().position(|&other| other == segment);
        let number = known.unwrap_or_else(|| {
            self.arenas.push(segment);
            self.arenas.len() - 1
        });
        format!("{number}+{} {}", size(given.at.0 - segment.0), size(given.size))
    }
}

fn bytes(text: &str) -> Bytes {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'G') => (&text[..text.len() - 1], 1024 * MIB),
        Some(b'M') => (&text[..text.len() - 1], MIB),
        Some(b'K') => (&text[..text.len() - 1], KIB),
        _ => (text, 1),
    };
    number.parse::<Bytes>().expect("a size") * unit
}

fn size(bytes: Bytes) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(MIB) => format!("{}M", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{}K", bytes / KIB),
        _ => bytes.to_string(),
    }
}

#[test]
fn every_script_is_answered_as_the_source_says() {
    let (mut actor, mut checked) = (None, 0);
    for (number, line) in (1..).zip(GOLDEN.lines()) {
        if let Some(head) = line.strip_prefix("# ") {
            actor = Some(Actor::new(head));
        } else if let Some(actor) =
            actor.as_mut().filter(|_| !line.is_empty() && !line.starts_with('#'))
        {
            assert_eq!(actor.answer(line), line, "paddle.txt, line {number}");
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked} lines");
}
