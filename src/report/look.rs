//! The look of a table: what the place where it is shown can do.

/// What the place where a table is shown can do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Lines may be drawn with box characters; else with ASCII.
    pub has_boxes: bool,
    /// Colours are shown.
    pub has_colour: bool,
    /// Characters in a line; `None`: as many as needed.
    pub width: Option<u16>,
}
