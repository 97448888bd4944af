//! The planner against the original's answers, and scripts with what follows for them from its source.

use super::layers::{Block, Period, place};
use super::profile::UNIT;
use super::{StAlloc, StAllocOptions};
use crate::allocator::pool::Pool;
use crate::allocator::{Allocation, Allocator, Environment, Request, segment_of};
use crate::device::{DevicePtr, SimDevice};
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::program::{Lifetime, PoolId, StreamId};
use gmlake_core::units::{Bytes, GIB, round_up};

const PLANS: &str = include_str!("../../../tests/data/stalloc-plans.txt");
const SCRIPTS: &str = include_str!("../../../tests/data/stalloc.txt");

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn plans_are_those_of_the_original() {
    let mut cases = 0;
    for case in PLANS.split("\n# ").skip(2) {
        let (head, rows) = case.split_once('\n').expect("a head and rows");
        let head = numbers(head);
        let rows: Vec<Vec<u64>> = rows.lines().filter(|row| !row.is_empty()).map(numbers).collect();
        let block = |row: &Vec<u64>| Block {
            start: row[0] as usize,
            end: row[1] as usize,
            size: round_up(row[2], UNIT),
        };
        let blocks: Vec<Block> = rows.iter().map(block).collect();
        let period = Period { start: head[0] as usize, length: (head[1] - head[0]) as usize };
        let (offsets, height) = place(&blocks, period);
        let expected: Vec<Bytes> = rows.iter().map(|row| row[3]).collect();
        assert_eq!((offsets, height), (expected, head[2]), "plan of {head:?}");
        cases += 1;
    }
    assert!(cases >= 8, "{cases} plans");
}

/// One line of a script: a request with what it is called, or a free.
#[derive(Debug, Clone, Copy)]
enum Line<'s> {
    Malloc { name: &'s str, size: Bytes, step: usize, whole: &'s str },
    Free { name: &'s str },
}

fn read(script: &str) -> Vec<Line<'_>> {
    let (mut lines, mut step) = (Vec::new(), 0);
    for whole in script.lines() {
        match whole.split_whitespace().collect::<Vec<_>>()[..] {
            ["i"] => step += 1,
            ["a", name, size, ..] => {
                let size = size.parse().expect("a size");
                lines.push(Line::Malloc { name, size, step, whole });
            }
            ["f", name] => lines.push(Line::Free { name }),
            [] | ["##", ..] => {}
            _ => panic!("line {whole:?}"),
        }
    }
    lines
}

fn lifetimes(lines: &[Line<'_>]) -> Vec<Lifetime> {
    let mut lives = Vec::new();
    for (lower, line) in lines.iter().enumerate() {
        let &Line::Malloc { name, size, step, .. } = line else { continue };
        let is_free =
            |line: &Line<'_>| matches!(line, Line::Free { name: other } if *other == name);
        let until = lines[lower..].iter().position(is_free);
        let upper = until.map_or(lines.len(), |length| lower + length);
        lives.push(Lifetime { lower, upper, size, step });
    }
    lives
}

fn place_of(allocator: &dyn Allocator, given: Allocation, segments: &[DevicePtr]) -> String {
    let segment = segment_of(allocator, given.at);
    match segments.iter().position(|&known| known == segment) {
        Some(0) => format!("plan+{}", given.at.0 - segment.0),
        Some(_) => format!("small+{}", given.at.0 - segment.0),
        None => "cached".to_owned(),
    }
}

#[test]
fn scripts_are_answered_as_the_source_says() {
    let mut checked = 0;
    for script in SCRIPTS.split("\n# ").skip(1) {
        let (title, script) = script.split_once('\n').expect("a title");
        let lines = read(script);
        let environment = Environment::new(AllocConf::default());
        let policy = StAlloc::new(StAllocOptions::default(), &environment);
        let (mut allocator, mut device) = (Pool::of(policy), SimDevice::new(GIB));
        allocator.foresee(&|| lifetimes(&lines));
        let mut given = Vec::new();
        for line in &lines {
            match *line {
                Line::Free { name } => {
                    let place = given.iter().position(|(known, _)| *known == name).expect("live");
                    let (_, allocation): (&str, Allocation) = given.remove(place);
                    allocator.free(&mut device, allocation.block);
                }
                Line::Malloc { name, size, whole, .. } => {
                    let request = Request { size, stream: StreamId(0), pool: PoolId::DEFAULT };
                    let allocation = allocator.malloc(&mut device, request).expect("room");
                    given.push((name, allocation));
                    let segments = allocator.policy().segments();
                    let place = place_of(&allocator, allocation, &segments);
                    assert_eq!(format!("a {name} {size} -> {place}"), whole, "{title}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 40, "{checked} requests");
}
