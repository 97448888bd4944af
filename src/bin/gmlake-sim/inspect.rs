//! `gmlake-sim inspect`: what is in a trace.

use anyhow::Result;
use gmlake::inspect::{inspect, show};
use gmlake::sim::open_all;

use crate::args::InspectArgs;
use crate::export::Exports;
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &InspectArgs) -> Result<Answer> {
    let exports = Exports::json("inspect", &args.export_json)?;
    let options = args.input.open(true);
    let bar = work::files(&args.input.files);
    let (found, mut answer) = terminal::usable(args.input.files.iter().map(|file| {
        let all = open_all(file, &options);
        bar.inc(1);
        Ok(all?.iter().map(inspect).collect::<Vec<_>>())
    }));
    bar.finish_and_clear();
    let found: Vec<_> = found.into_iter().flatten().collect();
    for inspection in found.iter().filter(|inspection| !inspection.missing.is_empty()) {
        if args.input.strict {
            let (file, missing) = (&inspection.file, inspection.missing.join("; "));
            terminal::print_line(&format!("{file}: {missing} (--strict)"));
            answer = Answer::Incomplete;
        }
    }
    exports.tell(&found, |found, look| {
        found.iter().map(|one| show::text(one, look)).collect::<Vec<_>>().join("\n\n")
    })?;
    Ok(answer)
}
