//! `gmlake-sim blame`: who holds the memory.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use gmlake::blame::{
    At, Blame, BlameError, By, JobBlame, Message, Question, RankBlame, blame, folded, growth, loss,
    refusal, show as report,
};
use gmlake::remote::shown;
use gmlake::report::section::Section;
use gmlake::sim::job::{Job, is_many, jobs};
use gmlake::sim::{Opened, Scenario, Setup, choose_one, open, under};
use gmlake::units::{Bytes, Grouped};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::{BlameArgs, NameArgs};
use crate::export::Exports;
use crate::message::{self, Found};
use crate::typed::{simulated, warn_of_gaps};
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &BlameArgs) -> Result<Answer> {
    let is_job = args.job.job || args.input.files.iter().any(|file| is_many(file));
    let files = &args.input.files[..];
    match (args.fragmentation, args.growth, args.at) {
        (true, _, _) => each(args, files, |opened| {
            let scenario = scenario(args, opened)?;
            let by = by(&args.names, opened)?;
            let found = loss(&scenario, by, args.names.innermost)?;
            Ok((report::loss_sections(&found, args.names.top), found))
        }),
        (_, true, _) => each(args, files, |opened| {
            let by = by(&args.names, opened)?;
            let found = growth(opened, by, args.names.innermost, args.after);
            Ok((report::growth_sections(&found, args.names.top), found))
        }),
        (_, _, At::Oom) if !wants_rows(args) => match is_job {
            false => explain_oom(args, files, 1),
            true => main_of_job_oom(args),
        },
        _ => main_of_rows(args, is_job),
    }
}

/// Explains the out-of-memory of each file, as one of `ranks` of its job.
fn explain_oom(args: &BlameArgs, files: &[PathBuf], ranks: usize) -> Result<Answer> {
    each(args, files, |opened| {
        let scenario = scenario(args, opened)?;
        let by = by(&args.names, opened)?;
        let found = refusal(&scenario, by, args.names.innermost, ranks)?;
        Ok((report::refusal_sections(&found, args.names.top), found))
    })
}

/// Explains the out-of-memory of a job in which one rank ran out; of several the rows are compared.
fn main_of_job_oom(args: &BlameArgs) -> Result<Answer> {
    let jobs = jobs(&args.input.files, args.job.job)?;
    let (mut short, mut failures) = (Vec::new(), Vec::new());
    for file in jobs.iter().flat_map(|job| &job.ranks).map(|rank| &rank.path) {
        match open(file, &args.input.open(true)).map_err(anyhow::Error::from) {
            Ok(opened) if ran_out(args, &opened)? => short.push(file.clone()),
            Ok(_) => {}
            Err(error) if message::explained(&error).is_some() => return main_of_rows(args, true),
            Err(error) => failures.push(error),
        }
    }
    if short.len() != 1 {
        if let Some(first) = short.first() {
            terminal::print_line(&format!(
                "{} ranks ran out of memory; give one file for its request and what would serve \
                 it: gmlake-sim blame {} --at oom",
                Grouped(short.len() as u64),
                shown(first)
            ));
        }
        return main_of_rows(args, true);
    }
    jobs.iter().for_each(warn_of_gaps);
    failures.iter().for_each(terminal::print_error);
    let ranks = jobs.iter().map(|job| job.ranks.len()).max().unwrap_or(1);
    let answer = explain_oom(args, &short, ranks)?;
    Ok(if failures.is_empty() { answer } else { Answer::Incomplete })
}

/// Whether memory ran out in a recording; under an allocator, in its run.
fn ran_out(args: &BlameArgs, opened: &Opened) -> Result<bool> {
    Ok(match is_simulated(args) {
        true => scenario(args, opened)?.run()?.first_oom_event.is_some(),
        false => opened.first_failure().is_some(),
    })
}

fn is_simulated(args: &BlameArgs) -> bool {
    args.allocator.is_some() || args.device_memory.is_some() || args.alloc_conf.is_some()
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
    files: &[PathBuf],
    answer: impl Fn(&Opened) -> Result<(Vec<Section>, T)>,
) -> Result<Answer> {
    let exports = Exports::json("blame", &args.output.export_json)?;
    let (mut sections, mut found) = (Vec::new(), Vec::new());
    let mut result = Answer::Yes;
    let bar = work::files(files);
    for file in files {
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
        let wanted = Some(&mut worst).filter(|_| !drawn.is_empty());
        let (blame, is_complete) = of_job(args, job, wanted, &mut messages, &bar);
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

/// The ranks of a job that could be used, and whether all could be; the messages that stand in place of recordings.
fn of_job(
    args: &BlameArgs,
    job: &Job,
    mut stacks: Option<&mut Worst>,
    messages: &mut Vec<Message>,
    bar: &ProgressBar,
) -> (JobBlame, bool) {
    let mut found = JobBlame { name: job.name.clone(), ranks: Vec::new() };
    let (mut without, mut failures) = (Vec::new(), Vec::new());
    for rank in &job.ranks {
        match of_rank(args, &rank.path, stacks.as_deref_mut()) {
            Ok(blame) => found.ranks.push(RankBlame { rank: rank.number, blame }),
            Err(error) => match message::explained(&error) {
                Some(message) => messages.push(message),
                None if lacks_moment(args.at, &error) => without.push(error),
                None => failures.push(error),
            },
        }
        bar.inc(1);
    }
    // A rank may lack a moment that others have.
    match found.ranks.is_empty() {
        true => failures.append(&mut without),
        false if args.at == At::Oom => {}
        false => without.iter().for_each(|error| terminal::warn(&format!("{error:#}"))),
    }
    failures.iter().for_each(terminal::print_error);
    (found, failures.is_empty())
}

/// Whether all that is wrong with a recording is that it has no such step, event or out-of-memory.
fn lacks_moment(at: At, error: &anyhow::Error) -> bool {
    let is_moment = matches!(error.downcast_ref(), Some(BlameError::Moment(_)));
    is_moment && matches!(at, At::Oom | At::Step(_) | At::Event(_))
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
    let scenario = is_simulated(args).then(|| scenario(args, opened)).transpose()?;
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
    let name = args.allocator.as_deref().unwrap_or_else(|| setup.pytorch(opened));
    let mut choices = under(vec![choose_one(name, &args.set)?], setup.conf.as_ref());
    Ok(Scenario::new(opened, choices.remove(0), setup))
}
