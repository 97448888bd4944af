//! A template in Rust: each request is rounded up to a size class, and freed blocks wait in the list of their class.
//! `cargo build --release -p gmlake-plugin --example size_classes` makes `target/release/examples/libnext_fit.so`.

use std::collections::BTreeMap;
use std::ffi::CStr;

use gmlake_plugin::{Block, Host, NoMemory, PlugIn, export};

/// Free blocks by stream and size.
#[derive(Default)]
struct SizeClasses {
    free: BTreeMap<(u32, u64), Vec<Block>>,
}

/// Up to the next quarter of a power of two, and at least 512.
fn class(size: u64) -> u64 {
    let unit = (size.next_power_of_two() / 8).max(512);
    size.next_multiple_of(unit)
}

impl PlugIn for SizeClasses {
    const NAMES: (&'static CStr, &'static CStr) =
        (c"size-classes", c"a list of free blocks for each size class");

    fn allocate(&mut self, host: &Host<'_>, size: u64, stream: u32) -> Result<Block, NoMemory> {
        let size = class(size);
        if let Some(block) = self.free.get_mut(&(stream, size)).and_then(Vec::pop) {
            return Ok(block);
        }
        let address = host.malloc(size).or_else(|NoMemory| {
            self.empty_cache(host)?;
            host.malloc(size)
        })?;
        Ok(Block { address, size, tag: 0 })
    }

    fn free(&mut self, _host: &Host<'_>, block: Block, stream: u32) -> Result<(), NoMemory> {
        self.free.entry((stream, block.size)).or_default().push(block);
        Ok(())
    }

    fn empty_cache(&mut self, host: &Host<'_>) -> Result<(), NoMemory> {
        let all = std::mem::take(&mut self.free).into_values().flatten();
        all.into_iter().try_for_each(|block| host.free(block.address))
    }
}

export!(SizeClasses);
