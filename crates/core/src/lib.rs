//! What every part of gmlake speaks of: sizes, allocator settings, programs, cards.

pub mod alloc_conf;
pub mod beside;
pub mod cards;
pub mod devices;
pub mod input_error;
pub mod printable;
pub mod program;
pub mod ranges;
pub mod reader_error;
pub mod units;
