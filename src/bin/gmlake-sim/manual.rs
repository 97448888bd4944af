//! Manual pages, a file for each command. Both programs have this module.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use gmlake::report::{Export, ExportError};

/// Writes the pages of a program and of the commands in it into a folder, each complete or not at all.
pub(crate) fn write_manual(command: Command, folder: &Path) -> Result<(), ExportError> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder)
}

fn write_pages(command: &Command, folder: &Path) -> Result<(), ExportError> {
    let mut shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    shown.try_for_each(|inner| write_pages(inner, folder))?;
    let page = Man::new(command.clone());
    let file = Export::open(&folder.join(page.get_filename()))?;
    file.finish(|out| Ok(page.render(out)?))
}
