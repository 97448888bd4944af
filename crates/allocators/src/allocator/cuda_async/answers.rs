//! Answers of an H200: scripts of our own, and where its driver served each request.
//!
//! ```text
//!   # 33554432 lag=1000         a new pool on a device with this memory, whose streams are this many events behind
//!   m 1 3000 0 1024             a request on stream 1 for 3000 bytes: at byte 1024 of the pool
//!   f 7 1                       request number 7 is freed on stream 1 (0, if none is given)
//!   t                           cuMemPoolTrimTo, after a synchronisation
//!   h 67108864                  what the pool holds from now on
//! ```

use super::*;
use crate::device::SimDevice;

struct Actor {
    pool: CudaAsync,
    device: SimDevice,
    given: Vec<Place>,
}

impl Actor {
    fn new(head: &str) -> Self {
        let (memory, rest) = head.split_once(' ').unwrap_or((head, "lag=0"));
        let lag = rest.strip_prefix("lag=").and_then(|lag| lag.parse().ok()).expect("a lag");
        let memory = memory.parse().expect("the device's memory");
        let device = SimDevice::new(memory).lagging(lag);
        Self { pool: CudaAsync::default(), device, given: vec![] }
    }

    /// Does what a line says, and writes the line with our own answer.
    fn answer(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words.get(place).map_or(0, |word| word.parse().unwrap());
        match words[0] {
            "m" => {
                let (stream, size) = (StreamId(number(1) as u16), number(2));
                let taken = self.pool.take(&mut self.device, self.pool.round(size), stream);
                let place = taken.expect("memory");
                self.given.push(place);
                let offset = place.at.0 - self.pool.segment(place.at).0;
                return format!("m {} {size} 0 {offset}", stream.0);
            }
            "f" => {
                let place = self.given[number(1) as usize];
                self.pool.give(&mut self.device, place, StreamId(number(2) as u16));
            }
            "t" => self.pool.trim(&mut self.device),
            _ => return format!("h {}", self.pool.held()),
        }
        line.to_owned()
    }
}

#[test]
fn every_request_is_served_where_the_driver_served_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cuda-async.txt");
    let text = std::fs::read_to_string(path).expect("the driver's answers");
    let (mut actor, mut scripts, mut served) = (None, 0, 0);
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(head) = line.strip_prefix("# ") {
            actor = Some(Actor::new(head));
            scripts += 1;
            continue;
        }
        let answer = actor.as_mut().expect("a script begins with its device").answer(line);
        assert_eq!(answer, line, "script {scripts}, line {number}");
        served += usize::from(line.starts_with('m'));
    }
    assert!(scripts > 20 && served > 2000, "{scripts} scripts, {served} requests");
}

#[test]
fn nothing_is_left_when_everything_was_freed() {
    let mut actor = Actor::new("200000000 lag=10");
    let sizes = ["1", "70000000", "512", "33554432"];
    sizes.iter().for_each(|size| drop(actor.answer(&format!("m 1 {size}"))));
    (0..4).for_each(|number| drop(actor.answer(&format!("f {number} 2"))));
    actor.answer("t");
    assert!(actor.pool.held() == 0 && actor.device.is_pristine());
}

/// 65,536 chunks. A look at all of them for each would be 4 billion.
#[test]
fn a_huge_request_takes_time_in_proportion_to_its_size() {
    let begin = std::time::Instant::now();
    let mut actor = Actor::new(&format!("{}", 3_u64 << 40));
    for line in ["m 1 2199023255552", "f 0 1", "m 1 1099511627776", "m 2 1099511627776", "f 1 1"] {
        actor.answer(line);
    }
    actor.answer("f 2 2");
    actor.answer("t");
    assert!(actor.pool.held() == 0 && actor.device.is_pristine());
    let seconds = begin.elapsed().as_secs();
    assert!(seconds < 30, "{seconds} s");
}
