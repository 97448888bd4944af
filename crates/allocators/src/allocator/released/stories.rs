//! The golden stories: small scripts with what the published code answered, statement by statement.
//!
//! After every operation the returned block, the driver calls, the statistics and all pools are printed in the
//! syntax of `tests/data/gmlake_golden_traces.txt` and compared with its lines. There, a chunk is named by its number
//! in order of creation; nothing in the stories creates memory after giving some back, so these are the device's
//! handle numbers plus one.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::{Place, Released, ReleasedOptions};
use crate::allocator::vm_pool::{BlockState, Extent, VmPool};
use crate::allocator::{AllocError, Allocator, BlockId, BlockUse, Request, SlabIndex};
use crate::device::{CallCounts, Counted, SimDevice, Watched};
use gmlake_core::program::{PoolId, StreamId};
use gmlake_core::units::{Bytes, GIB, MIB};

const GOLDEN: &str = include_str!("../../../tests/data/gmlake_golden_traces.txt");

struct Stage {
    allocator: Released,
    device: Watched<SimDevice, Counted>,
    live: FxHashMap<String, BlockId>,
}

impl Stage {
    fn new(re_alloc: bool, memory: Bytes) -> Self {
        let options = ReleasedOptions { re_alloc, ..ReleasedOptions::default() };
        Self {
            allocator: Released::new(options, Bytes::MAX),
            device: Watched::new(SimDevice::new(memory), Counted::default()),
            live: FxHashMap::default(),
        }
    }

    /// Carries out one operation, and tells what the file tells about it.
    fn play(&mut self, operation: &str) -> String {
        let before = self.device.watch.calls;
        let words: Vec<_> = operation.split_whitespace().collect();
        let answer = match words[..] {
            ["a", name, size] => self.malloc(name, size, "0"),
            ["a", name, size, stream] => self.malloc(name, size, stream),
            ["f", name] => {
                let block = self.live.remove(name).expect("the story frees what it got");
                self.allocator.free(&mut self.device, block);
                "ok".to_owned()
            }
            ["e"] => {
                self.allocator.trim(&mut self.device);
                "ok".to_owned()
            }
            _ => panic!("operation {operation:?}"),
        };
        let mut text = format!("{operation:<16} -> {answer}\n");
        calls_line(&mut text, self.device.watch.calls - before);
        self.describe(&mut text);
        text
    }

    fn malloc(&mut self, name: &str, size: &str, stream: &str) -> String {
        let size = size.parse::<Bytes>().unwrap() * MIB;
        let stream = StreamId(stream.parse().unwrap());
        let request = Request { size, stream, pool: PoolId::DEFAULT };
        match self.allocator.malloc(&mut self.device, request) {
            Err(AllocError::OutOfMemory { .. }) => "OOM".to_owned(),
            Err(error) => panic!("{error}"),
            Ok(given) => {
                self.live.insert(name.to_owned(), given.block);
                self.block_text(given.block)
            }
        }
    }

    fn block_text(&self, block: BlockId) -> String {
        let pool = &self.allocator.front.pool;
        match self.allocator.front.place(block) {
            Place::Primitive(index) => {
                format!("pBlock({}) chunks[{}]", mib(pool.block(index).len), chunks(pool, index))
            }
            Place::Stitched(index) => {
                let sblock = pool.sblock(index);
                let (size, used) = (mib(sblock.len), mib(sblock.used));
                format!("sBlock({size},used {used}) chunks[{}]", runs(pool, &sblock.extents))
            }
            Place::Small(_) => panic!("the stories have no small requests"),
        }
    }

    fn describe(&self, text: &mut String) {
        let pool = &self.allocator.front.pool;
        let usage = self.allocator.usage();
        let split = |&index: &SlabIndex| !pool.is_whole(index);
        let inactive: u32 =
            pool.free_blocks().filter(split).map(|index| pool.block(index).len).sum();
        let retries = self.allocator.retries();
        writeln!(
            text,
            "    stats: allocated {} active {} reserved {} inactive_split {} segments {} retries {retries} | device {}",
            usage.allocated / MIB,
            usage.active / MIB,
            usage.reserved / MIB,
            inactive * 2,
            self.allocator.segments,
            self.device.device.used() / MIB,
        )
        .unwrap();
        *text += "    free pBlocks:";
        for index in pool.free_blocks() {
            let mark = if split(&index) { "s" } else { "" };
            write!(text, " {}[{}]{mark}", mib(pool.block(index).len), chunks(pool, index)).unwrap();
        }
        *text += "\n    busy pBlocks:";
        for index in pool.blocks() {
            let mark = match pool.block(index).state {
                BlockState::Used => "",
                BlockState::Held => "*",
                BlockState::Free | BlockState::Gone => continue,
            };
            write!(text, " {}[{}]{mark}", mib(pool.block(index).len), chunks(pool, index)).unwrap();
        }
        self.describe_sblocks(text);
    }

    fn describe_sblocks(&self, text: &mut String) {
        let pool = &self.allocator.front.pool;
        *text += "\n    sBlocks idle-usable:";
        let mut usable = self.allocator.idle(true);
        usable.sort_by_key(|&index| (pool.sblock(index).len, pool.sblock(index).at));
        for index in usable {
            let sblock = pool.sblock(index);
            write!(text, " {}[{}]", mib(sblock.len), runs(pool, &sblock.extents)).unwrap();
        }
        *text += " | idle-blocked:";
        for index in self.allocator.idle(false) {
            let sblock = pool.sblock(index);
            let free: u32 =
                sblock.extents.iter().map(|extent| extent.len - pool.busy_chunks(*extent)).sum();
            let all = runs(pool, &sblock.extents);
            write!(text, " {}[{all}]free={}", mib(sblock.len), mib(free)).unwrap();
        }
        *text += " | active:";
        for (_, sblock) in pool.sblocks().filter(|(_, sblock)| sblock.used > 0) {
            write!(text, " {} used {}", mib(sblock.len), mib(sblock.used)).unwrap();
        }
        *text += "\n";
    }
}

fn calls_line(text: &mut String, calls: CallCounts) {
    let CallCounts { create, release, address_reserve, address_free, .. } = calls;
    let CallCounts { map, set_access, unmap, .. } = calls;
    writeln!(
        text,
        "    calls: create {create} release {release} reserve {address_reserve} addrfree {address_free} \
         map {map} setaccess {set_access} unmap {unmap}"
    )
    .unwrap();
}

fn mib(chunks: u32) -> String {
    format!("{}M", chunks * 2)
}

fn chunks(pool: &VmPool, block: SlabIndex) -> String {
    runs(pool, &[pool.block(block).extent()])
}

/// Chunk numbers in order, runs of consecutive ones as `first-last`.
fn runs(pool: &VmPool, extents: &[Extent]) -> String {
    let handles = extents.iter().flat_map(|&extent| pool.handles(extent));
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in handles.map(|handle| handle.0 + 1) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Splits the file into its stories: title, and operations with the expected result of each.
fn stories() -> Vec<(String, Vec<(String, String)>)> {
    let mut stories: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for line in GOLDEN.lines().filter(|line| !line.is_empty()) {
        let title = line.strip_prefix("# T").filter(|rest| rest.starts_with(char::is_numeric));
        if let Some(title) = title {
            stories.push((title.to_owned(), Vec::new()));
        } else if let Some((operation, _)) = line.split_once(" -> ") {
            let (_, story) = stories.last_mut().expect("a story has a title");
            story.push((operation.trim().to_owned(), format!("{line}\n")));
        } else if let Some((_, result)) = stories.last_mut().and_then(|(_, story)| story.last_mut())
        {
            *result += line;
            result.push('\n');
        }
    }
    stories
}

fn check(title: &str, stage: &mut Stage, story: &[(String, String)]) {
    let bare = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    for (operation, result) in story {
        assert_eq!(bare(&stage.play(operation)), bare(result), "in story T{title}");
    }
}

#[test]
fn every_golden_story_is_reproduced_line_by_line() {
    let stories = stories();
    assert_eq!(stories.len(), 10);
    assert_eq!(stories.iter().map(|(_, story)| story.len()).sum::<usize>(), 80);
    for (title, story) in &stories {
        let is_tight = title.starts_with('5');
        let memory = if is_tight { 2000 * MIB } else { 80 * GIB };
        let is_sequel = title.starts_with("5b");
        let mut stage = Stage::new(is_sequel, memory);
        if is_sequel {
            // T5b is T5 once more under `reAlloc=1`, of which the file tells the last operation only.
            let (_, first) = stories.iter().find(|(title, _)| title.starts_with("5 ")).unwrap();
            first[..first.len() - 1].iter().for_each(|(operation, _)| drop(stage.play(operation)));
        }
        check(title, &mut stage, story);
        drain(stage);
    }
}

/// Whatever a story did, everything can be given back in the end.
fn drain(mut stage: Stage) {
    for (_, block) in stage.live.drain() {
        stage.allocator.free(&mut stage.device, block);
    }
    assert!(stage.allocator.blocks().iter().all(|view| view.state != BlockUse::Allocated));
    stage.allocator.trim(&mut stage.device);
    assert!(stage.device.device.is_pristine());
}
