//! The bar that is on the terminal, if one is: whoever writes there must not write into it.

use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The bar that is shown at last.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Does `work`, which writes to the terminal, without the bar in its way.
pub(crate) fn without_bar<R>(work: impl FnOnce() -> R) -> R {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(work),
        None => work(),
    }
}

/// This bar is on the terminal now.
pub(crate) fn note(bar: &ProgressBar) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
}
