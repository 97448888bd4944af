//! Lake
