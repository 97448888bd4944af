//! An allocator under the checker whose every failure is a result: nothing it does ends the program.
//!
//! The checker ([`Checked`]) panics where a promise is broken, as a test wants it. Here the first panic becomes the
//! allocator's [`fault`](Allocator::fault), in one line, and whatever comes later is refused:
//!
//! ```text
//!   client ──▶ Supervised: the first panic is the fault ──▶ Checked ──▶ the allocator
//! ```

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::{
    AllocResult, Allocator, BlockId, BlockView, Checked, Counter, Request, Role, Spec, Usage,
};
use crate::device::{Device, DeviceError, Result};
use gmlake_core::program::{Layout, Lifetime, PoolId, StreamId};

/// Calls between two looks at every block: a tenth of the time of a run.
const AUDIT_EVERY: u64 = 5000;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does something, and says what it panicked with; nothing is printed.
///
/// # Errors
/// The panic's message, in one line.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                before(panic);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(before);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("it panicked").lines().map(str::trim).collect::<Vec<_>>().join(" ")
    })
}

/// An allocator whose faults are noted.
pub struct Supervised {
    checked: Checked,
    fault: Option<String>,
}

impl Supervised {
    /// Supervises a new allocator that was made from this entry of the list.
    pub fn new(inner: Box<dyn Allocator>, spec: &Spec) -> Self {
        // What a plug-in holds without an address cannot be walked.
        let every = if spec.role == Role::PlugIn { u64::MAX } else { AUDIT_EVERY };
        Self { checked: Checked::new(inner, spec).audit_every(every), fault: None }
    }

    /// Carries out a call, unless there was a fault; `None` if there is one now.
    fn supervise<T>(&mut self, work: impl FnOnce(&mut Checked) -> T) -> Option<T> {
        if self.fault.is_some() {
            return None;
        }
        let checked = &mut self.checked;
        let result = quietly(|| work(checked));
        self.fault = checked.fault().map(str::to_owned);
        match result {
            Ok(value) => Some(value).filter(|_| self.fault.is_none()),
            Err(reason) => {
                self.fault.get_or_insert(reason);
                None
            }
        }
    }

    fn refusal(&self) -> DeviceError {
        let reason = self.fault.clone().unwrap_or_default();
        DeviceError::Driver { call: "the allocator", reason }
    }
}

impl Allocator for Supervised {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let given = self.supervise(|checked| checked.malloc(device, request));
        given.unwrap_or_else(|| Err(self.refusal().into()))
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        self.supervise(|checked| checked.free_requested(block, users));
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        self.supervise(|checked| checked.free_completed(device, block));
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        self.supervise(|checked| checked.free(device, block));
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.supervise(|checked| checked.trim(device));
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.supervise(|checked| checked.release_pool(device, pool));
    }

    fn restore(
        &mut self,
        device: &mut dyn Device,
        layout: &Layout,
    ) -> Result<Option<Vec<BlockId>>> {
        let restored = self.supervise(|checked| checked.restore(device, layout));
        restored.unwrap_or_else(|| Err(self.refusal()))
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.supervise(|checked| checked.foresee(lifetimes));
    }

    fn usage(&self) -> Usage {
        self.checked.usage()
    }

    fn peak(&self) -> Usage {
        self.checked.peak()
    }

    fn retries(&self) -> u64 {
        self.checked.retries()
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn counters(&self) -> Vec<Counter> {
        self.checked.counters()
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.checked.blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AllocError, Environment, Options, find};
    use super::*;
    use crate::device::SimDevice;
    use gmlake_core::alloc_conf::AllocConf;
    use gmlake_core::units::MIB;

    #[test]
    fn a_stale_free_is_a_fault_and_what_follows_is_refused() {
        let spec = find("native").unwrap();
        let environment = Environment::new(AllocConf::default());
        let inner = spec.build(&Options::default(), &environment).unwrap();
        let mut native = Supervised::new(inner, spec);
        let mut gpu = SimDevice::new(64 * MIB);
        let request = Request { size: MIB, stream: StreamId(0), pool: PoolId::DEFAULT };
        let block = native.malloc(&mut gpu, request).unwrap().block;
        native.free(&mut gpu, block);
        assert_eq!(native.fault(), None);
        native.free(&mut gpu, block);
        assert!(native.fault().is_some_and(|fault| !fault.contains('\n')));
        assert!(matches!(native.malloc(&mut gpu, request), Err(AllocError::Device(_))));
    }

    #[test]
    fn a_panic_is_one_line() {
        assert_eq!(quietly(|| panic!("a\n   b")), Err::<(), _>("a b".to_owned()));
        assert_eq!(quietly(|| 3), Ok(3));
    }
}
