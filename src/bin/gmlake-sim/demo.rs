//! Demo: the comparison of allocators on a recording that the program carries in itself.

use std::path::Path;

use gmlake::compare::compare;
use gmlake::compare::show::table;
use gmlake::report::Export;
use gmlake::sim::{Choices, choose, open_bytes};
use gmlake::trace::{LoadOptions, unpack};

use crate::args::DemoArgs;
use crate::compare::print_json;
use crate::{Answer, terminal};

/// Fine-tuning of OPT-1.3B with recomputation, the optimizer in host memory; one of the shipped recordings.
const RECORDING: &[u8] = include_bytes!("../../../traces/opt-1.3b-RO.pickle.xz");
const NAME: &str = "opt-1.3b-RO.pickle.xz";

const INTRODUCTION: &str = "\
A recording of PyTorch on an H200: nine steps of fine-tuning OPT-1.3B, with gradient
checkpointing and the optimizer in host memory. Each row: what one allocator would hold.";

const NEXT: &str = "\
Next:
  gmlake-sim demo --out snapshot.pickle.xz     keep this recording, and try the other commands on it
  gmlake-sim help recording                    record your own job: three lines of Python";

pub(crate) fn main(args: &DemoArgs, json: bool) -> anyhow::Result<Answer> {
    if let Some(path) = &args.out {
        // The name of the file says whether it is compressed.
        let recording = unpack(RECORDING, &LoadOptions::default())?;
        Export::open(path)?.finish(|out| Ok(out.write_all(&recording)?))?;
        return Ok(Answer::Yes);
    }
    let opened = open_bytes(Path::new(NAME), RECORDING, &LoadOptions::default())?;
    let choices = Choices { allocators: choose(&[], &[])?, ..Choices::default() };
    let comparison = compare(&opened, &choices)?;
    if json {
        print_json("demo", std::slice::from_ref(&comparison))?;
        return Ok(Answer::Yes);
    }
    let text = table::comparison(&comparison, false, terminal::look());
    terminal::print(&format!("{INTRODUCTION}\n\n{text}\n\n{NEXT}"))?;
    Ok(Answer::Yes)
}
