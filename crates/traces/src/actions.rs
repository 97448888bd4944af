//! Actions that a content has, found before it is read: they decide what is kept of it.

/// Whether a content has the action `oom`.
pub(super) fn ran_out(bytes: &[u8]) -> bool {
    has_action(bytes, b"oom")
}

/// Whether a content has an action with which memory is given back.
pub(super) fn gives_back(bytes: &[u8]) -> bool {
    has_action(bytes, b"segment_free") || has_action(bytes, b"segment_unmap")
}

/// Whether a content has this action. Pickles put its length before a text, JSON a quotation mark.
fn has_action(bytes: &[u8], action: &[u8]) -> bool {
    let places = memchr::memmem::find_iter(bytes, action);
    places
        .filter_map(|at| bytes.get(at.wrapping_sub(1)))
        .any(|&before| [action.len() as u8, 0, b'"'].contains(&before))
}
