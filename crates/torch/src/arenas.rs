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
use super::sleeper::Label;
use gmlake_allocators::allocator::Allocator;

/// The tag of memory without one.
pub const NO_TAG: Label = 0;
/// The tag of what stands in for arenas that sleep.
pub(super) const STAND_IN: Label = Label::MAX;

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

/// The tag of what this thread asks for.
pub(super) fn current_tag() -> Label {
    TAG.with(Cell::get)
}

/// What this thread asks for has this tag from now on; returns the one before.
pub fn use_tag(tag: Label) -> Label {
    TAG.with(|current| current.replace(tag))
}

/// An allocator for one tag.
pub(super) struct Arena {
    pub(super) allocator: Box<dyn Allocator>,
    pub(super) tag: Label,
    pub(super) is_asleep: bool,
}

/// The arenas of one GPU.
#[derive(Default)]
pub(super) struct Arenas {
    pub(super) tagged: Vec<Arena>,
    pub(super) is_main_asleep: bool,
}

impl Arenas {
    /// Every allocator but the main one.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Owner, &dyn Allocator)> {
        let numbered = self.tagged.iter().zip(0..);
        numbered.map(|(arena, place)| (Owner::Arena(place), arena.allocator.as_ref()))
    }

    /// The owners of all memory with one of these tags; of all, without tags.
    pub(super) fn named(&self, tags: &[Label]) -> Vec<Owner> {
        let is_meant = |tag: Label| tag != STAND_IN && (tags.is_empty() || tags.contains(&tag));
        let tagged = self.tagged.iter().zip(0..).filter(|(arena, _)| is_meant(arena.tag));
        let main = is_meant(NO_TAG).then_some(Owner::Main);
        main.into_iter().chain(tagged.map(|(_, place)| Owner::Arena(place))).collect()
    }

    pub(super) fn allocator(&mut self, place: u32) -> &mut Box<dyn Allocator> {
        &mut self.tagged[place as usize].allocator
    }

    pub(super) fn is_asleep(&self, owner: Owner) -> bool {
        match owner {
            Owner::Main => self.is_main_asleep,
            Owner::Arena(place) => self.tagged[place as usize].is_asleep,
            Owner::Graph(_) => false,
        }
    }

    pub(super) fn set_asleep(&mut self, owner: Owner, is_asleep: bool) {
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
