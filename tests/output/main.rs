//! Output: what users see. The command line, documents, pages, pictures; and the structure of the code.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/browser.rs"]
mod browser;
#[path = "../common/mod.rs"]
mod common;

mod cli;
mod commands;
mod completion;
mod docs;
mod export;
mod fleet_page;
mod long_page;
mod overwrite;
mod page;
mod page_times;
mod pictures;
mod readable;
mod reports;
mod terminal;
mod tidy;
mod timeline;
