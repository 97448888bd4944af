//! Remote files as [`gmlake_remote`] reads them, and how any path is shown: on one line, whatever is in its name.

use std::path::Path;

pub use gmlake_remote::*;

use crate::printable::printable;

/// A path as it may be shown: on one line, and of a URL neither a password nor a query, which may hold a signature.
pub fn shown(path: &Path) -> String {
    printable(&gmlake_remote::shown(path)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_on_one_line() {
        assert_eq!(shown(Path::new("a\nb/\u{1b}c")), "a\\nb/\\u{1b}c");
        assert_eq!(shown(Path::new("ü/学習.pickle")), "ü/学習.pickle");
        assert_eq!(shown(Path::new("https://me:secret@host/x?key=1")), "https://host/x");
    }
}
