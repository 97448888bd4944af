//! Quietly: work of somebody else's whose panic is a message, and ends nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line() {
        assert_eq!(quietly(|| panic!("a\n   b")), Err::<(), _>("a b".to_owned()));
        assert_eq!(quietly(|| 3), Ok(3));
    }
}
