//! A scenario: one recording under one allocator in one setup. What was found out once is not replayed again.
//!
//! ```text
//!   Scenario ── run ────▶ RunSummary             the first replay
//!       │    ── state_at(event) ─▶ Peak  ┐
//!       │    ── left_behind ─▶ tenants   ├─────  at most one more, if whoever follows the run says what else is wanted
//!       │    ── follow(observer) ────────┘
//!       └── beside: another allocator or setup, with the same memory of what was found out
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use super::opened::Opened;
use super::run::{RunError, Simulated, Stage, run_cached};
use super::setup::Setup;
use super::tenants::Tenants;
use crate::allocator::{BlockUse, Choice, Options, find};
use crate::drive::Observer;
use crate::run::{Peak, RunSummary};

/// A recording, an allocator, and the world that it runs in.
#[derive(Debug, Clone)]
pub struct Scenario<'o> {
    /// The recording.
    pub opened: &'o Opened,
    /// The allocator.
    pub choice: Choice,
    /// The world.
    pub setup: Setup,
    known: Arc<Known>,
    all: Arc<All>,
}

/// All scenarios of a recording that were asked about, by what they depend on.
type All = Mutex<FxHashMap<String, Arc<Known>>>;

/// What was found out about one scenario.
#[derive(Debug, Default)]
struct Known {
    run: OnceLock<Result<RunSummary, RunError>>,
    states: Mutex<BTreeMap<Option<usize>, Arc<Peak>>>,
    left: OnceLock<FxHashMap<u64, usize>>,
}

impl<'o> Scenario<'o> {
    /// A scenario of which nothing is known yet.
    pub fn new(opened: &'o Opened, choice: Choice, setup: Setup) -> Self {
        Self::among(Arc::default(), opened, choice, setup)
    }

    /// A scenario for each of these allocators.
    pub fn each(opened: &'o Opened, choices: &[Choice], setup: &Setup) -> Vec<Self> {
        let all = Arc::<All>::default();
        let one =
            |choice: &Choice| Self::among(Arc::clone(&all), opened, choice.clone(), setup.clone());
        choices.iter().map(one).collect()
    }

    /// The scenario of the allocator that was recorded, with the defaults of its options.
    pub fn recorded(opened: &'o Opened, beside: Option<&Self>, setup: &Setup) -> Option<Self> {
        let choice = Choice { spec: find(opened.recorded_by())?, options: Options::default() };
        Some(match beside {
            Some(other) => other.beside(choice, setup.clone()),
            None => Self::new(opened, choice, setup.clone()),
        })
    }

    /// Whether both are the same question.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.known, &other.known)
    }

    /// The same recording under another allocator or in another world.
    pub fn beside(&self, choice: Choice, setup: Setup) -> Self {
        Self::among(Arc::clone(&self.all), self.opened, choice, setup)
    }

    fn among(all: Arc<All>, opened: &'o Opened, choice: Choice, setup: Setup) -> Self {
        let key = setup.text(&choice);
        let mut scenarios = all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::clone(scenarios.entry(key).or_default());
        drop(scenarios);
        Self { opened, choice, setup, known, all }
    }

    /// What the run comes to.
    ///
    /// # Errors
    /// If an option is wrong, or the device fails in another way than by running out of memory.
    pub fn run(&self) -> Result<&RunSummary, RunError> {
        let run = || run_cached(self.opened, &self.choice, &self.setup);
        self.known.run.get_or_init(run).as_ref().map_err(Clone::clone)
    }

    /// The event at which most is held; `None`: before the first.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn peak_event(&self) -> Result<Option<usize>, RunError> {
        Ok(self.run()?.peak_event.map(|event| event as usize))
    }

    /// What is held after event number `event`, or before the first one. Where that is a request that is not served, it
    /// is what the allocator was left with.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn state_at(&self, event: Option<usize>) -> Result<Arc<Peak>, RunError> {
        if let Some(state) = self.states().get(&event) {
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(self.stage()?.look(self.opened, event, &mut ())?);
        self.states().insert(event, Arc::clone(&state));
        Ok(state)
    }

    /// What is held at the peak.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn peak(&self) -> Result<Arc<Peak>, RunError> {
        self.state_at(self.peak_event()?)
    }

    /// Of each segment that is wholly free at the peak, by its free block's address, the request that had it last.
    /// Those that were not used since the run began are not there. Errors: as [`Scenario::run`].
    pub(crate) fn left_behind(&self) -> Result<&FxHashMap<u64, usize>, RunError> {
        if self.known.left.get().is_none() {
            self.look_at(&mut self.stage()?, &[], &mut ())?;
        }
        Ok(self.known.left.get_or_init(FxHashMap::default))
    }

    /// A run that has not begun, and that nothing is measured of.
    pub(crate) fn stage(&self) -> Result<Stage<'o>, RunError> {
        let setup = Setup { profile: None, ..self.setup.clone() };
        Stage::prepare(self.opened, &self.choice, &setup)
    }

    /// Carries out a whole run, which `observer` follows, and remembers what is held at the peak and at `events`.
    pub(crate) fn follow(
        &self,
        stage: &mut Stage<'_>,
        events: &[Option<usize>],
        observer: &mut impl Observer<Simulated>,
    ) -> Result<(), RunError> {
        self.look_at(stage, events, observer)?;
        stage.advance(self.opened.trace.events.len(), observer).map(drop)
    }

    fn look_at(
        &self,
        stage: &mut Stage<'_>,
        events: &[Option<usize>],
        observer: &mut impl Observer<Simulated>,
    ) -> Result<(), RunError> {
        let peak_event = self.peak_event()?;
        let mut wanted: Vec<Option<usize>> = events.iter().copied().chain([peak_event]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut tenants = Tenants::new(observer);
        for event in wanted {
            let state = stage.look(self.opened, event, &mut tenants)?;
            if event == peak_event {
                let free = state.blocks.iter().map(|block| &block.view);
                let free = free.filter(|view| view.state == BlockUse::Free).collect::<Vec<_>>();
                let _ = self.known.left.set(tenants.take_last(&free));
            }
            self.states().insert(event, Arc::new(state));
        }
        Ok(())
    }

    fn states(&self) -> std::sync::MutexGuard<'_, BTreeMap<Option<usize>, Arc<Peak>>> {
        self.known.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
