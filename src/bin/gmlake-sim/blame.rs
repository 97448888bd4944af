//! `gmlake-sim blame`: who holds the memory.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use gmlake::blame::{
    At, Blame, By, JobBlame, Message, Question, RankBlame, blame, folded, growth, loss, refusal,
    show as report,
};
use gmlake::report::section::Section;
use gmlake::sim::job::{Job, is_many, jobs};
use gmlake::sim::{Opened, Scenario, Setup, choose, open, under};
use gmlake::units::Bytes;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::{BlameArgs, NameArgs};
use crate::export::Exports;
use crate::message::{self, Found};
use crate::typed::{simulated, warn_of_gaps};
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &BlameArgs) -> Result<Answer> {
    let is_job = args.job.job || args.input.files.iter().any(|file| is_many(file));
    match (args.fragmentation, args.growth, args.at) {
        (true, _, _) => each(args, |opened| {
            let scenario = scenario(args, opened)?;
            let by = by(&args.names, opened)?;
            let found = loss(&scenario, by, args.names.innermost)?;
            Ok((report::loss_sections(&found, args.names.top), found))
        }),
        (_, true, _) => each(args, |opened| {
            let by = by(&args.names, opened)?;
            let found = growth(opened, by, args.names.innermost, args.after);
            Ok((report::growth_sections(&found, args.names.top), found))
        }),
        (_, _, At::Oom) if !is_job && !wants_rows(args) => each(args, |opened| {
            let scenario = scenario(args, opened)?;
            let by = by(&args.names, opened)?;
            let found = refusal(&scenario, by, args.names.innermost)?;
            Ok((report::refusal_sections(&found, args.names.top), found))
        }),
        _ => main_of_rows(args, is_job),
    }
}

/// Whether something is to be written that only the rows of a moment have.
fn wants_rows(args: &BlameArgs) -> bool {
    let output = &args.output;
    [&output.export_csv, &output.export_flamegraph, &output.export_folded]
        .iter()
        .any(|files| !files.is_empty())
}

/// Answers for each file by itself.
fn each<T: Serialize>(
    args: &BlameArgs,
    answer: impl Fn(&Opened) -> Result<(Vec<Section>, T)>,
) -> Result<Answer> {
    let exports = Exports::json("blame", &args.output.export_json)?;
    let (mut sections, mut found) = (Vec::new(), Vec::new());
    let mut result = Answer::Yes;
    let bar = work::files(&args.input.files);
    for file in &args.input.files {
        match opened(args, file).and_then(|opened| answer(&opened)) {
            Ok((more, one)) => {
                sections.extend(more);
                found.push(Found::Recording(one));
            }
            Err(error) => match message::explained(&error) {
                Some(message) => {
                    sections.extend(report::message_sections(&message));
                    found.push(Found::Message(message));
                }
                None => {
                    terminal::print_error(&error);
                    result = Answer::Incomplete;
                }
            },
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    exports.tell(&found, |_, look| report::text(&sections, look))?;
    Ok(result)
}

/// A flame graph has one form, and its file's name says no other.
fn check_svg(path: &Path) -> Result<()> {
    let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
    if !is_svg && path.as_os_str() != "-" {
        bail!("a flame graph is written as .svg; {:?} does not end so", path.display().to_string());
    }
    Ok(())
}

/// The live bytes of a moment, of each file or of jobs of many ranks.
fn main_of_rows(args: &BlameArgs, is_job: bool) -> Result<Answer> {
    let (mut found, mut messages, mut answer) = (Vec::new(), Vec::new(), Answer::Yes);
    let output = &args.output;
    let json = Exports::json("blame", &output.export_json)?;
    let mut csv = Exports::new();
    csv.add(&output.export_csv, |blames: &[&Blame], out| report::write_csv(blames, out))?;
    output.export_flamegraph.iter().try_for_each(|path| check_svg(path))?;
    let mut drawn = Exports::new();
    drawn.add(&output.export_flamegraph, |worst: &Worst, out| {
        report::write_flamegraph(&worst.stacks, &worst.captions, out)
    })?;
    drawn.add(&output.export_folded, |worst, out| report::write_folded(&worst.stacks, out))?;
    let jobs: Vec<Job> = match is_job {
        true => jobs(&args.input.files, args.job.job)?,
        // Each file is a job of its own.
        false => args.input.files.chunks(1).flat_map(|file| jobs(file, false)).flatten().collect(),
    };
    let mut worst = Worst::default();
    let ranks: Vec<PathBuf> =
        jobs.iter().flat_map(|job| &job.ranks).map(|r| r.path.clone()).collect();
    let bar = work::files(&ranks);
    for job in &jobs {
        warn_of_gaps(job);
        let before = messages.len();
        let wanted = Some(&mut worst).filter(|_| !drawn.is_empty());
        let blame = of_job(args, job, wanted, &mut messages, &bar);
        let is_complete = blame.ranks.len() + messages.len() - before == job.ranks.len();
        found.extend(Some(blame).filter(|blame| !blame.ranks.is_empty()));
        answer = if is_complete { answer } else { Answer::Incomplete };
    }
    bar.finish_and_clear();
    let has_stdout = json.has_stdout() || csv.has_stdout() || drawn.has_stdout();
    let shown = found.iter().flat_map(|job| show(job, args.names.top));
    let shown: Vec<_> = shown.chain(messages.iter().flat_map(report::message_sections)).collect();
    if !has_stdout && !shown.is_empty() {
        terminal::print(&report::text(&shown, terminal::look()))?;
    }
    let blames: Vec<&Blame> =
        found.iter().flat_map(|job| &job.ranks).map(|rank| &rank.blame).collect();
    let of_messages = messages.iter().map(Found::Message);
    let all: Vec<_> =
        blames.iter().map(|&blame| Found::Recording(blame)).chain(of_messages).collect();
    if !all.is_empty() {
        json.finish(&all[..])?;
    }
    if blames.is_empty() {
        return Ok(answer);
    }
    csv.finish(&blames)?;
    drawn.finish(&worst)?;
    Ok(answer)
}

fn show(job: &JobBlame, top: usize) -> Vec<Section> {
    match &job.ranks[..] {
        [only] => report::sections(&only.blame, top),
        _ => report::job_sections(job, top),
    }
}

/// The call stacks of the file on which most is live.
#[derive(Default)]
struct Worst {
    live_bytes: Bytes,
    captions: [String; 2],
    stacks: Vec<(String, u64)>,
}

/// The ranks of a job that could be used, and the messages that stand in place of recordings.
fn of_job(
    args: &BlameArgs,
    job: &Job,
    mut stacks: Option<&mut Worst>,
    messages: &mut Vec<Message>,
    bar: &ProgressBar,
) -> JobBlame {
    let mut found = JobBlame { name: job.name.clone(), ranks: Vec::new() };
    for rank in &job.ranks {
        match of_rank(args, &rank.path, stacks.as_deref_mut()) {
            Ok(blame) => found.ranks.push(RankBlame { rank: rank.number, blame }),
            Err(error) => match message::explained(&error) {
                Some(message) => messages.push(message),
                None => terminal::print_error(&error),
            },
        }
        bar.inc(1);
    }
    found
}

fn of_rank(args: &BlameArgs, file: &Path, stacks: Option<&mut Worst>) -> Result<Blame> {
    let opened = opened(args, file)?;
    let question = question(args, &opened)?;
    let blame = blame(&opened, &question)?;
    if let Some(worst) = stacks.filter(|worst| blame.live_bytes > worst.live_bytes) {
        *worst = Worst {
            live_bytes: blame.live_bytes,
            captions: report::captions(&blame),
            stacks: folded(&opened, &question)?,
        };
    }
    Ok(blame)
}

fn opened(args: &BlameArgs, file: &Path) -> Result<Opened> {
    let input = &args.input;
    let options = input.open(true);
    let opened = open(file, &options)?;
    if let Some(warning) = opened.trace.warnings.first().filter(|_| input.strict) {
        bail!("{}: {warning} (--strict)", opened.file);
    }
    terminal::warn_of_assumptions(&opened);
    Ok(opened)
}

fn question<'o>(args: &BlameArgs, opened: &'o Opened) -> Result<Question<'o>> {
    let by = by(&args.names, opened)?;
    let is_simulated =
        args.allocator.is_some() || args.device_memory.is_some() || args.alloc_conf.is_some();
    let scenario = is_simulated.then(|| scenario(args, opened)).transpose()?;
    Ok(Question { at: args.at, by, innermost: args.names.innermost, scenario })
}

/// What rows are named by: as asked for, or as the recording allows.
pub(crate) fn by(names: &NameArgs, opened: &Opened) -> Result<By> {
    let has_stacks = opened.records.stacks.has_frames();
    match names.by {
        Some(by) if by.needs_stacks() && !has_stacks => bail!(
            "{}: no call stacks in it for --by {}: record them with \
             _record_memory_history(context=\"alloc\", stacks=\"python\"), or take --by size",
            opened.file,
            by.name()
        ),
        Some(by) => Ok(by),
        None if has_stacks => Ok(By::Line),
        None => {
            terminal::warn(&format!(
                "{}: no call stacks in it, so that its blocks are listed by size. Record with stacks=\"python\", \
                 or predict with --stacks, to get lines",
                opened.file
            ));
            Ok(By::Size)
        }
    }
}

/// The run that is meant: of the allocator that was named, or of PyTorch's own under the settings given or recorded.
fn scenario<'o>(args: &BlameArgs, opened: &'o Opened) -> Result<Scenario<'o>> {
    let memory = args.device_memory.unwrap_or_default();
    let simulated = simulated(args.input.torch_version, args.alloc_conf.as_deref())?;
    let setup = Setup { memory, ..simulated };
    let name = args.allocator.clone().unwrap_or_else(|| setup.pytorch(opened).to_owned());
    let mut choices = under(choose(&[name], &args.set)?, setup.conf.as_ref());
    Ok(Scenario::new(opened, choices.remove(0), setup))
}
