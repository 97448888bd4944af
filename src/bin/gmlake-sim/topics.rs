//! Topics: the pages that explain errors, in the program so that they are at hand without a network.

use gmlake::alloc_conf::ConfError;
use gmlake::report::{ExportError, ReportError};
use gmlake::sim::job::JobError;
use gmlake::sim::{ChoiceError, FileError};
use gmlake::trace::{Position, TraceError};

/// Pages of `docs/` that are in the program too, under the names that errors give.
pub(crate) const PAGES: [(&str, &str); 7] = [
    ("recording", include_str!("../../../docs/recording.md")),
    ("settings", include_str!("../../../docs/settings.md")),
    ("plugin", include_str!("../../../docs/plugin.md")),
    ("remote", include_str!("../../../docs/remote.md")),
    ("files", include_str!("../../../docs/files.md")),
    ("json", include_str!("../../../docs/json.md")),
    ("exit-codes", include_str!("../../../docs/exit-codes.md")),
];

/// The page that explains an error, if one does.
pub(crate) fn page_of(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    match error {
        _ if is_remote(error) => Some("remote"),
        _ if error.is::<TraceError>() => Some("recording"),
        _ if matches!(
            error.downcast_ref(),
            Some(FileError::Trace(_) | FileError::Assumption { .. })
        ) =>
        {
            Some("recording")
        }
        _ if error.is::<ChoiceError>() || error.is::<ConfError>() => Some("settings"),
        _ if error.is::<ExportError>() => is_about_file(error).then_some("files"),
        _ => None,
    }
}

/// Whether a file could not be written for its own sake, and not as there is nothing to show.
fn is_about_file(error: &(dyn std::error::Error + 'static)) -> bool {
    let report = error.source().and_then(|source| source.downcast_ref());
    !matches!(report, Some(ReportError::Empty(_) | ReportError::NoHistory))
}

/// Whether it is about a remote file that did not come.
fn is_remote(error: &(dyn std::error::Error + 'static)) -> bool {
    let trace = match error.downcast_ref() {
        Some(FileError::Trace(trace)) => Some(trace),
        _ => error.downcast_ref(),
    };
    trace.is_some_and(|trace: &TraceError| trace.position == Position::Network)
        || matches!(error.downcast_ref(), Some(JobError::Remote(_)))
}
