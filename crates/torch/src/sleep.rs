//! Sleep and wake, and who serves a request meanwhile.
//!
//! ```text
//!   request ─▶ its thread's tag ─▶ awake? ─▶ the tag's arena
//!                                  asleep? ─▶ the stand-in
//! ```

use super::arenas::{Arena, NO_TAG, STAND_IN, current_tag};
use super::block::Owner;
use super::failure::Failure;
use super::gpu_allocator::{Driver, GpuAllocator};
use super::sleeper::{Kept, Label, Sleeper};
use gmlake_allocators::allocator::{Allocator, Environment};
use gmlake_allocators::device::DevicePtr;
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::units::{Bytes, Size};

impl GpuAllocator {
    /// Who serves this thread.
    #[inline]
    pub(super) fn home(&mut self) -> Result<Owner, Failure> {
        let tag = current_tag();
        if tag == NO_TAG && !self.arenas.is_main_asleep {
            return Ok(Owner::Main);
        }
        let owner = self.arena(tag)?;
        if self.arenas.is_asleep(owner) { self.arena(STAND_IN) } else { Ok(owner) }
    }

    #[cold]
    fn arena(&mut self, tag: Label) -> Result<Owner, Failure> {
        if tag == NO_TAG {
            return Ok(Owner::Main);
        }
        let tagged = &mut self.arenas.tagged;
        let found = tagged.iter().position(|arena| arena.tag == tag);
        let place = match found {
            Some(place) => place,
            None => {
                let total_memory = self.gpu.memory()?.total;
                let environment =
                    Environment { total_memory, ..Environment::new(AllocConf::default()) };
                let allocator = self.conf.spec.build(&self.conf.options, &environment);
                let allocator = allocator.map_err(|error| Failure::Other(error.to_string()))?;
                tagged.push(Arena { allocator, tag, is_asleep: false });
                tagged.len() - 1
            }
        };
        Ok(Owner::Arena(place as u32))
    }

    /// Gives the memory with these tags (all, if there are none) back, and keeps its addresses. Contents go to `keep`,
    /// if there is one, and are lost otherwise. Returns the bytes that were given back.
    ///
    /// # Errors
    /// During a capture; if contents cannot be kept; or what the driver says. What
    /// sleeps by then sleeps on.
    pub fn sleep(
        &mut self,
        tags: &[Label],
        mut keep: Option<&mut dyn FnMut(DevicePtr, Bytes) -> Option<Kept>>,
    ) -> Result<Bytes, Failure> {
        let _here = self.enter()?;
        if self.is_held() {
            return Err(Failure::Other(
                "gmlake: memory cannot sleep while a CUDA graph is captured".to_owned(),
            ));
        }
        self.trim_all();
        let before = self.held();
        let owners = self.arenas.named(tags);
        for owner in owners {
            if self.arenas.is_asleep(owner) {
                continue;
            }
            let keep = keep.as_mut().map(|keep| &mut **keep as &mut dyn FnMut(_, _) -> _);
            if !self.sleeper().sleep(owner.label(), keep) {
                return Err(Failure::Other(
                    "gmlake: there is no pinned host memory for the contents; sleep(level=2) drops them".to_owned(),
                ));
            }
            self.arenas.set_asleep(owner, true);
        }
        self.account();
        self.driver_error().map_or(Ok(()), |error| Err(Failure::from(error)))?;
        Ok(before - self.held())
    }

    /// Gives the memory with these tags (all, if there are none) back to it, where it was. What was kept goes to
    /// `fill`. Returns the bytes.
    ///
    /// # Errors
    /// If there is not enough memory: what does not fit sleeps on.
    pub fn wake(
        &mut self,
        tags: &[Label],
        fill: &mut dyn FnMut(DevicePtr, Kept),
    ) -> Result<Bytes, Failure> {
        let _here = self.enter()?;
        self.trim_all();
        let before = self.held();
        for owner in self.arenas.named(tags) {
            if !self.arenas.is_asleep(owner) {
                continue;
            }
            let needed = self.sleeper().asleep(owner.label());
            if let Err(error) = self.sleeper().wake(owner.label(), fill) {
                self.account();
                return Err(Failure::OutOfMemory(format!(
                    "gmlake: {} sleep on, because they cannot be had again: {error}",
                    Size(needed)
                )));
            }
            self.arenas.set_asleep(owner, false);
        }
        self.account();
        self.driver_error().map_or(Ok(()), |error| Err(Failure::from(error)))?;
        Ok(self.held() - before)
    }

    /// Kept contents that are not wanted any more.
    pub fn take_unwanted(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.sleeper().unwanted)
    }

    pub(super) fn sleeper(&mut self) -> &mut Sleeper<Driver> {
        &mut self.device
    }

    /// Bytes of GPU memory that are held.
    pub(super) fn held(&self) -> Bytes {
        self.device.device.device.held()
    }

    /// Every allocator that the program is served by, but those of graphs.
    pub(super) fn served_by(&self) -> impl Iterator<Item = (Owner, &dyn Allocator)> {
        std::iter::once((Owner::Main, self.main.as_ref())).chain(self.arenas.iter())
    }
}
