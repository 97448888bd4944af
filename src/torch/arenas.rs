//! Memory with a tag, and memory that sleeps.
//!
//! Each tag has an allocator of its own, so that its memory shares no handle with any other and can sleep by itself:
//!
//! ```text
//!   with gmlake.tag("weights"):  ─▶ arena "weights"   asleep: gives its memory back, keeps its addresses
//!   everything else              ─▶ main              awake
//!                                   stand-in          serves those whose arena sleeps; never sleeps itself
//! ```

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use super::block::Owner;
use super::failure::Failure;
use super::gpu_allocator::GpuAllocator;
use super::sleeper::{Kept, Label, Sleeper};
use crate::alloc_conf::AllocConf;
use crate::allocator::{Allocator, Environment};
use crate::device::DevicePtr;
use crate::units::{Bytes, Size};

/// The tag of memory without one.
pub const NO_TAG: Label = 0;
/// The tag of what stands in for arenas that sleep.
const STAND_IN: Label = Label::MAX;

thread_local! {
    static TAG: Cell<Label> = const { Cell::new(NO_TAG) };
}
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The number of a tag with this name, from 1 on.
pub fn tag(name: &str) -> Label {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = names.iter().position(|known| known == name);
    let place = found.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    place as Label + 1
}

/// What this thread asks for has this tag from now on; returns the one before.
pub fn use_tag(tag: Label) -> Label {
    TAG.with(|current| current.replace(tag))
}

/// An allocator for one tag.
pub(super) struct Arena {
    pub(super) allocator: Box<dyn Allocator>,
    tag: Label,
    is_asleep: bool,
}

/// The arenas of one GPU.
#[derive(Default)]
pub(super) struct Arenas {
    tagged: Vec<Arena>,
    is_main_asleep: bool,
}

impl Arenas {
    /// Every allocator beside the main one.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Owner, &dyn Allocator)> {
        let numbered = self.tagged.iter().zip(0..);
        numbered.map(|(arena, place)| (Owner::Arena(place), arena.allocator.as_ref()))
    }

    /// The owners of all memory with one of these tags; of all, without tags.
    fn named(&self, tags: &[Label]) -> Vec<Owner> {
        let is_meant = |tag: Label| tag != STAND_IN && (tags.is_empty() || tags.contains(&tag));
        let tagged = self.tagged.iter().zip(0..).filter(|(arena, _)| is_meant(arena.tag));
        let main = is_meant(NO_TAG).then_some(Owner::Main);
        main.into_iter().chain(tagged.map(|(_, place)| Owner::Arena(place))).collect()
    }

    pub(super) fn allocator(&mut self, place: u32) -> &mut Box<dyn Allocator> {
        &mut self.tagged[place as usize].allocator
    }

    fn is_asleep(&self, owner: Owner) -> bool {
        match owner {
            Owner::Main => self.is_main_asleep,
            Owner::Arena(place) => self.tagged[place as usize].is_asleep,
            Owner::Graph(_) => false,
        }
    }

    fn set_asleep(&mut self, owner: Owner, is_asleep: bool) {
        match owner {
            Owner::Main => self.is_main_asleep = is_asleep,
            Owner::Arena(place) => self.tagged[place as usize].is_asleep = is_asleep,
            Owner::Graph(_) => {}
        }
    }
}

impl Owner {
    /// The label of its memory.
    pub(super) fn label(self) -> Label {
        match self {
            Self::Main => 0,
            Self::Arena(place) => place + 1,
            Self::Graph(_) => Label::MAX,
        }
    }
}

impl GpuAllocator {
    /// Who serves this thread.
    #[inline]
    pub(super) fn home(&mut self) -> Result<Owner, Failure> {
        let tag = TAG.with(Cell::get);
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
        let before = self.device.device.device.held();
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
        Ok(before - self.device.device.device.held())
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
        let before = self.device.device.device.held();
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
        Ok(self.device.device.device.held() - before)
    }

    /// Kept contents that nobody wants any more.
    pub fn take_unwanted(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.sleeper().unwanted)
    }

    pub(super) fn sleeper(&mut self) -> &mut Sleeper<super::gpu_allocator::Counted> {
        &mut self.device.device
    }

    /// Every allocator that the program is served by, but those of graphs.
    pub(super) fn served_by(&self) -> impl Iterator<Item = (Owner, &dyn Allocator)> {
        std::iter::once((Owner::Main, self.main.as_ref())).chain(self.arenas.iter())
    }
}
