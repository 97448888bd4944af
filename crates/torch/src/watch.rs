//! Who calls the driver for memory: bytes that are taken, by the library that asked.
//!
//! `watch_interface` hears of the calls from CUPTI and says which library is nearest to the driver on the stack; here
//! they are added up. A handle of `cuMemCreate` is taken until it was released and its last mapping is gone.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

/// What one library has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// Bytes, as requested; the driver rounds them up to its pages.
    pub bytes: u64,
    /// Allocations.
    pub blocks: u64,
}

#[derive(Debug)]
struct Handle {
    owner: String,
    bytes: u64,
    mappings: u32,
    is_released: bool,
}

/// What is taken, by owner.
#[derive(Debug, Default)]
pub struct Watch {
    taken: BTreeMap<String, Taken>,
    /// Owner and bytes of each allocation, by address.
    blocks: FxHashMap<u64, (String, u64)>,
    handles: FxHashMap<u64, Handle>,
    /// Handle of each mapping, by address.
    mappings: FxHashMap<u64, u64>,
}

impl Watch {
    /// `cuMemAlloc`
    pub fn alloc(&mut self, owner: String, at: u64, bytes: u64) {
        self.take(&owner, bytes);
        self.blocks.insert(at, (owner, bytes));
    }

    /// `cuMemFree`
    pub fn free(&mut self, at: u64) {
        if let Some((owner, bytes)) = self.blocks.remove(&at) {
            self.give(&owner, bytes);
        }
    }

    /// `cuMemCreate`
    pub fn create(&mut self, owner: String, handle: u64, bytes: u64) {
        self.take(&owner, bytes);
        self.handles.insert(handle, Handle { owner, bytes, mappings: 0, is_released: false });
    }

    /// `cuMemMap`
    pub fn map(&mut self, at: u64, handle: u64) {
        if let Some(known) = self.handles.get_mut(&handle) {
            known.mappings += 1;
            self.mappings.insert(at, handle);
        }
    }

    /// `cuMemUnmap`
    pub fn unmap(&mut self, at: u64) {
        let Some(handle) = self.mappings.remove(&at) else { return };
        if let Some(known) = self.handles.get_mut(&handle) {
            known.mappings -= 1;
        }
        self.drop_if_gone(handle);
    }

    /// `cuMemRelease`
    pub fn release(&mut self, handle: u64) {
        if let Some(known) = self.handles.get_mut(&handle) {
            known.is_released = true;
        }
        self.drop_if_gone(handle);
    }

    /// What each library has taken and not given back, as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.taken).unwrap_or_default()
    }

    fn drop_if_gone(&mut self, handle: u64) {
        let is_gone = |known: &Handle| known.is_released && known.mappings == 0;
        if self.handles.get(&handle).is_some_and(is_gone)
            && let Some(known) = self.handles.remove(&handle)
        {
            self.give(&known.owner, known.bytes);
        }
    }

    fn take(&mut self, owner: &str, bytes: u64) {
        let taken = self.taken.entry(owner.to_owned()).or_default();
        *taken = Taken { bytes: taken.bytes + bytes, blocks: taken.blocks + 1 };
    }

    fn give(&mut self, owner: &str, bytes: u64) {
        if let Some(taken) = self.taken.get_mut(owner) {
            *taken = Taken { bytes: taken.bytes - bytes, blocks: taken.blocks - 1 };
        }
    }
}

/// The library that asked: from the driver upwards, the first on the stack that does more than pass calls on.
pub fn asker<'a>(files: impl IntoIterator<Item = &'a str>) -> &'a str {
    const PASS_ON: [&str; 4] = ["libgmlake_torch", "libcupti", "libcuda.so", "libcudart"];
    let names = files.into_iter().map(|file| file.rsplit('/').next().unwrap_or(file));
    let mut names = names.skip_while(|name| PASS_ON.iter().any(|other| name.starts_with(other)));
    names.next().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(watch: &Watch, owner: &str) -> (u64, u64) {
        watch.taken.get(owner).map_or((0, 0), |it| (it.bytes, it.blocks))
    }

    #[test]
    fn what_is_given_back_is_taken_off_its_owner() {
        let mut watch = Watch::default();
        watch.alloc("libcublas.so.13".to_owned(), 0x100, 64);
        watch.alloc("libcublas.so.13".to_owned(), 0x200, 6);
        watch.free(0x100);
        watch.free(0x900);
        assert_eq!(taken(&watch, "libcublas.so.13"), (6, 1));
        assert_eq!(watch.to_json(), r#"{"libcublas.so.13":{"bytes":6,"blocks":1}}"#);
    }

    #[test]
    fn a_handle_is_taken_until_it_was_released_and_its_last_mapping_is_gone() {
        let mut watch = Watch::default();
        watch.create("libnccl.so.2".to_owned(), 7, 2);
        watch.map(0x1000, 7);
        watch.map(0x2000, 7);
        watch.release(7);
        watch.unmap(0x1000);
        assert_eq!(taken(&watch, "libnccl.so.2"), (2, 1));
        watch.unmap(0x2000);
        assert_eq!(taken(&watch, "libnccl.so.2"), (0, 0));
        watch.unmap(0x2000);
    }

    #[test]
    fn the_asker_is_the_first_library_that_does_not_pass_calls_on() {
        let stack =
            ["/x/libcupti.so.13", "libcuda.so.1", "/y/libcudart.so.13", "/z/libcufft.so.12"];
        assert_eq!(asker(stack), "libcufft.so.12");
        assert_eq!(asker(["libcuda.so.1"]), "unknown");
    }
}
