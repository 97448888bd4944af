//! The model of pinned memory, step by step: `pinned VERSION [SETTINGS] < PROGRAM`, for python/tests/differential.
//!
//! A line of the program is `alloc BYTES`, `use BLOCK STREAM`, `free BLOCK`, `done [STREAM]` or `empty`, where BLOCK is
//! the number of the request. After each the counters go out as a line of JSON, with the block that a request got.

use std::io::{BufRead, stdin};

use gmlake_allocators::pinned::{Pinned, PinnedBlock, Stat};
use gmlake_core::alloc_conf::{AllocConf, TorchVersion};
use serde_json::{Value, json};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let version: TorchVersion = arguments.next().unwrap_or_default().parse()?;
    let text = arguments.next().unwrap_or_default();
    let conf = AllocConf::parse(&text, version).map_err(|error| error.to_string())?;
    let mut host = Pinned::new(conf.pinned, version);
    let mut served = Vec::new();
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let count = served.len();
        step(&mut host, &mut served, &line).ok_or_else(|| format!("not a step: {line:?}"))?;
        let mut found = counters(&host);
        found["block"] = json!(served.get(count));
        println!("{found}");
    }
    Ok(())
}

fn step(host: &mut Pinned, served: &mut Vec<PinnedBlock>, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let block = |served: &[PinnedBlock]| served.get(number(1)? as usize).copied();
    match *words.first()? {
        "alloc" => served.push(host.alloc(number(1)?)),
        "use" => host.use_on(block(served)?, number(2)?),
        "free" => host.free(block(served)?),
        "done" => host.done(number(1)),
        "empty" => host.empty_cache(),
        _ => return None,
    }
    Some(())
}

fn counters(host: &Pinned) -> Value {
    let of = |stat: Stat| json!([stat.current, stat.peak, stat.allocated, stat.freed]);
    let (stats, (calls, bytes)) = (host.stats(), host.driver());
    json!({
        "active_requests": of(stats.active_requests),
        "active_bytes": of(stats.active_bytes),
        "allocations": of(stats.allocations),
        "allocated_bytes": of(stats.allocated_bytes),
        "driver_calls": of(calls),
        "driver_bytes": of(bytes),
    })
}
