//! `gmlake-sim inspect`: what is in a trace.

use anyhow::Result;
use gmlake::inspect::{inspect, show};
use gmlake::report::Export;
use gmlake::sim::open_all;

use crate::args::InspectArgs;
use crate::typed::check_stdin;
use crate::{Answer, export, terminal, work};

pub(crate) fn main(args: &InspectArgs) -> Result<Answer> {
    let exports = export::open_all(&args.export_json)?;
    check_stdin(&args.input.files)?;
    let options = args.input.open(true);
    let mut found = Vec::new();
    let mut answer = Answer::Yes;
    let bar = work::files(&args.input.files);
    for file in &args.input.files {
        match open_all(file, &options) {
            Ok(all) => found.extend(all.iter().map(inspect)),
            Err(error) => {
                terminal::print_error(&error.into());
                answer = Answer::Incomplete;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for inspection in found.iter().filter(|inspection| !inspection.missing.is_empty()) {
        if args.input.strict {
            let (file, missing) = (&inspection.file, inspection.missing.join("; "));
            terminal::print_line(&format!("{file}: {missing} (--strict)"));
            answer = Answer::Incomplete;
        }
    }
    if !exports.iter().any(Export::is_stdout) && !found.is_empty() {
        let look = terminal::look();
        let texts: Vec<_> = found.iter().map(|one| show::text(one, look)).collect();
        terminal::print(&texts.join("\n\n"))?;
    }
    export::write_json(exports, "inspect", &found)?;
    Ok(answer)
}
