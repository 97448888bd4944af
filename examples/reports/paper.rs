//! `reports/paper.md`: the paper's figures next to what our recordings say, and two pictures.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use gmlake::compare::chart::write_plot;
use gmlake::compare::{Comparison, compare};
use gmlake::report::ImageFormat;
use gmlake::run::RunSummary;
use gmlake::sim::{Choices, Memory, Opened, Setup, choose};
use gmlake::trace::EventKind;
use gmlake::units::{GIB, MIB};

use crate::published::{
    BATCHES, FIRST_OOM, PLATFORMS, Published, SCALE_OUT, STRATEGIES, STRATEGIES_ZERO3,
};
use crate::{Table, Traces, gib, simulate};

const HEAD: &str = "\
# The paper's figures, and what recordings of today say

Left the bars of the paper (Guo et al., ASPLOS 2024; PyTorch 2.0 on A100s with 80 GB; digitised, good to about 0.5 GB and
0.4 %), right the nearest recording that we have (PyTorch 2.11 on H200s) under simulation. Batch sizes, sequence lengths
and versions differ, so that absolute sizes cannot agree, and do not; what can be compared is utilization (peak active over
peak reserved) and what stitching saves. *Released* is `gmlake-released` with its defaults, *paper's, 2 MiB* is `gmlake`;
what the paper's example of 128 MiB does is in [gmlake.md](gmlake.md).

Made by `cargo run --release --example reports -- traces [more folders]`; a row by hand:
`gmlake-sim compare TRACE --allocators expandable,gmlake-released,gmlake --set gmlake.fragment_limit=2MiB`.

![Utilization in the paper and in simulation](paper-utilization.png)

";

/// The allocators of every table here, with their options.
const ROWS: [(&str, &[(&str, &str)]); 3] =
    [("expandable", &[]), ("gmlake-released", &[]), ("gmlake", &[("fragment_limit", "2MiB")])];

const ALL_FOUR: [&str; 4] = ["caching", "expandable", "gmlake-released", "gmlake"];

/// A batch on a device, in GiB, on which it fits with little to spare.
const TIGHT: (&Published, u64) = (&BATCHES[2], 60);

pub(crate) fn report(traces: &Traces) -> Result<String> {
    draw_utilization(traces)?;
    let parts = [
        strategies(traces)?,
        scale_out(traces)?,
        platforms(traces)?,
        batches(traces)?,
        over_time(traces)?,
        allocations(traces)?,
        all(traces)?,
        WHERE_ELSE.to_owned(),
    ];
    Ok(format!("{HEAD}{}", parts.join("\n")))
}

fn strategies(traces: &Traces) -> Result<String> {
    let one = comparison(traces, &STRATEGIES)?;
    let four = comparison(traces, &STRATEGIES_ZERO3)?;
    Ok(format!(
        "## Memory-saving strategies

N none, L LoRA, R recomputation, O offload. Ours first on one GPU:

{one}\
With ZeRO-3 on four GPUs, as the paper's were:

{four}\
*Agrees:* without a strategy PyTorch loses little; every strategy costs it 19 to 29 points, and on four GPUs its
utilization is the paper's within four points. Stitching wins most of that back on one GPU: the paper's rules reach 99 %
and more, once blocks of 2 MiB may be stitched. *Does not:* the released code stays at 79 % for RO, and with ZeRO-3 at 82 %
for R and 70 % for LRO, where the paper has 88 %.
"
    ))
}

fn scale_out(traces: &Traces) -> Result<String> {
    let mut table =
        Table::new(&["recording", "live at once", "streams' own peaks, added", "so at most"]);
    for Published { trace, .. } in &SCALE_OUT {
        let Some(opened) = traces.open(trace)? else { continue };
        let (together, apart) = peaks(&opened);
        let most = format!("{:.1} %", 100.0 * together as f64 / apart.max(1) as f64);
        let held = |bytes: u64| format!("{} GiB", gib(bytes));
        table.row(&[format!("`{trace}`"), held(together), held(apart), most]);
    }
    Ok(format!(
        "## GPU scale-out

{}\
*Agrees:* more GPUs, smaller shards, more fragmentation under PyTorch. *Does not:* stitching reaches 97 % on one GPU and
only 82 to 86 % on two and four, not 90 %. Communication runs on a stream of its own, and no free block moves from one
stream to another in either GMLake; that alone sets an end to what stitching can reach:

{}",
        comparison(traces, &SCALE_OUT)?,
        table.text()
    ))
}

/// The most bytes that live at one time, and the sum of what each stream has at most.
fn peaks(opened: &Opened) -> (u64, u64) {
    let trace = &opened.trace;
    let mut held = vec![(0, 0); trace.allocs as usize];
    let mut streams = vec![(0, 0); trace.streams.len().max(1)];
    let (mut now, mut peak) = (0_u64, 0);
    for event in &trace.events {
        // A call of `empty_cache` is about no allocation.
        let Some(place) = held.get_mut(event.alloc.0 as usize) else { continue };
        match event.kind {
            EventKind::Malloc => *place = (event.size, usize::from(event.stream.0)),
            EventKind::Free | EventKind::FreeCompleted => {
                let (size, stream) = std::mem::take(place);
                now -= size;
                streams[stream].0 -= size;
                continue;
            }
            EventKind::Attempt | EventKind::FreeRequested | EventKind::Trim => continue,
        }
        now += event.size;
        peak = peak.max(now);
        let (of_stream, most) = &mut streams[usize::from(event.stream.0)];
        *of_stream += event.size;
        *most = (*most).max(*of_stream);
    }
    (peak, streams.iter().map(|(_, most)| most).sum())
}

fn platforms(traces: &Traces) -> Result<String> {
    Ok(format!(
        "## Platforms

The paper's FSDP row is GLM-10B; our recordings under FSDP are of two other models. Colossal-AI was not recorded.

{}\
*Agrees:* every platform fragments under PyTorch, FSDP more than DeepSpeed, and stitching as released wins 7 to 18 points
back. *Does not:* nothing here comes near the 33 % that the paper reports for Colossal-AI.
",
        comparison(traces, &PLATFORMS)?
    ))
}

fn batches(traces: &Traces) -> Result<String> {
    let mut table = Table::new(&[
        "recording",
        "device",
        "caching",
        "expandable",
        "gmlake-released",
        "gmlake, 2 MiB",
    ]);
    for (Published { trace, .. }, gib) in BATCHES.iter().map(|row| (row, 80)).chain([TIGHT]) {
        let Some(opened) = traces.open(trace)? else { continue };
        let runs = compare_on(&opened, &ALL_FOUR, gib * GIB)?.runs;
        let cells = runs.iter().filter(|run| run.allocator != gmlake::run::RECORDED).map(fate);
        let labels = [format!("`{trace}`"), format!("{gib} GiB")];
        table.row(&labels.into_iter().chain(cells).collect::<Vec<_>>());
    }
    let [_, most] = FIRST_OOM.reserved;
    Ok(format!(
        "## Batch sizes, and running out of memory

{}{}\
*Agrees:* under PyTorch utilization stays between 64 and 67 % at every batch size, as in the paper; the paper's rules gain
the more the larger the batch. A batch that PyTorch cannot run is run by stitching (in the paper {}, with
{:.0} GB; here on 60 GiB). *Does not:* what PyTorch holds without a limit says little of where it runs out: of 86 GiB a flush and
a retry leave 68 GiB on a device of 80. And the released code runs out where expandable segments, which the paper's
PyTorch did not have, do not.
",
        comparison(traces, &BATCHES)?,
        table.text(),
        FIRST_OOM.workload,
        most.unwrap_or_default(),
    ))
}

fn fate(run: &RunSummary) -> String {
    match run.oom_count {
        0 if run.alloc_retries == 0 => format!("{} GiB", gib(run.reserved_peak_bytes)),
        0 => format!("{} GiB, retries: {}", gib(run.reserved_peak_bytes), run.alloc_retries),
        ooms => format!("**{ooms} OOMs**"),
    }
}

fn over_time(traces: &Traces) -> Result<String> {
    let (Published { trace, .. }, gib) = TIGHT;
    let Some(opened) = traces.open(trace)? else { return Ok(String::new()) };
    draw(&[compare_on(&opened, &ALL_FOUR, gib * GIB)?], "reports/paper-oom.png")?;
    Ok(format!(
        "## Memory over time, where PyTorch runs out

The paper shows GPT-NeoX-20B with a batch of 72: PyTorch ends after 200 s, GMLake goes on and is stable after four
iterations. Here `{trace}` on {gib} GiB:

![Memory over time on {gib} GiB](paper-oom.png)

By hand: `gmlake-sim compare traces/{trace}.pickle.xz --device-memory {gib}GiB --allocators
{} --set gmlake.fragment_limit=2MiB --export-plot paper-oom.png`. A simulation goes
on after an OOM, without the tensor that could not be had; a real job ends there.
",
        ALL_FOUR.join(","),
    ))
}

fn allocations(traces: &Traces) -> Result<String> {
    let mut table = Table::new(&[
        "recording",
        "requests",
        "per step",
        "mean MiB",
        "mean of those > 1 MiB",
        "> 1 MiB",
    ]);
    for Published { trace, .. } in STRATEGIES.iter().chain(&STRATEGIES_ZERO3) {
        let Some(opened) = traces.open(trace)? else { continue };
        let sizes: Vec<u64> = requests(&opened).collect();
        let large: Vec<u64> = sizes.iter().copied().filter(|&size| size > MIB).collect();
        let steps = opened.trace.steps.len().max(1);
        table.row(&[
            format!("`{trace}`"),
            sizes.len().to_string(),
            (sizes.len() / steps).to_string(),
            mean_mib(&sizes),
            mean_mib(&large),
            format!("{:.0} %", 100.0 * large.len() as f64 / sizes.len().max(1) as f64),
        ]);
    }
    Ok(format!(
        "## Allocation counts and sizes

The paper, GPT-NeoX-20B: 46 thousand allocations of 93 MB on average without a strategy, 76 thousand of 85 MB with LR.

{}\
*Agrees:* strategies make more allocations, up to twice or three times as many a step, and with ZeRO-3 at equal batch size
all of them together smaller ones. *Does not:* on one GPU they are larger on average. The batch is larger there: the
largest tensor with a strategy has four times the bytes of the largest without.
",
        table.text()
    ))
}

fn requests(opened: &Opened) -> impl Iterator<Item = u64> {
    let mallocs = opened.trace.events.iter().filter(|event| event.kind == EventKind::Malloc);
    mallocs.map(|event| event.size)
}

fn mean_mib(sizes: &[u64]) -> String {
    format!("{:.1}", sizes.iter().sum::<u64>() as f64 / sizes.len().max(1) as f64 / MIB as f64)
}

/// What one allocator saves over all jobs, against the recordings.
#[derive(Default)]
struct Saved {
    jobs: u64,
    recorded: u64,
    bytes: i64,
    most_bytes: i64,
    share: f64,
    most_share: f64,
}

impl Saved {
    fn add(&mut self, recorded: &RunSummary, run: &RunSummary) {
        let bytes = recorded.reserved_peak_bytes as i64 - run.reserved_peak_bytes as i64;
        let share = run.utilization - recorded.utilization;
        self.jobs += 1;
        self.recorded += recorded.reserved_peak_bytes;
        self.bytes += bytes;
        self.most_bytes = self.most_bytes.max(bytes);
        self.share += share;
        self.most_share = self.most_share.max(share);
    }

    fn cells(&self) -> [String; 5] {
        let gib = |bytes: f64| format!("{:.1} GiB", bytes / GIB as f64);
        let jobs = self.jobs.max(1) as f64;
        [
            gib(self.bytes as f64 / jobs),
            gib(self.most_bytes as f64),
            format!("{:.0} points", 100.0 * self.share / jobs),
            format!("{:.0} points", 100.0 * self.most_share),
            format!("{:.1} %", 100.0 * self.bytes as f64 / self.recorded.max(1) as f64),
        ]
    }
}

/// The headline: what is saved over all jobs that were recorded with default settings from the start.
fn all(traces: &Traces) -> Result<String> {
    let mut saved: [Saved; ROWS.len()] = Default::default();
    for name in traces.names() {
        // Other ranks of a job say the same again.
        if [".r1", ".r2", ".r3"].iter().any(|rank| name.ends_with(rank)) {
            continue;
        }
        let Some(opened) = traces.open(name)?.filter(is_plain) else { continue };
        let Some(recorded) = &opened.recorded else { continue };
        for ((allocator, options), saved) in ROWS.iter().zip(&mut saved) {
            saved.add(recorded, &simulate(&opened, allocator, options, None)?);
        }
    }
    let mut table = Table::new(&[
        "against PyTorch",
        "reserved less, mean",
        "most",
        "fragmentation less, mean",
        "most",
        "sum reserved less",
    ]);
    let paper = ["GMLake in the paper", "9.2 GB", "25 GB", "15 points", "33 points", "-"];
    table.row(&paper.map(str::to_owned));
    for (label, saved) in ["expandable", "released", "paper's, 2 MiB"].iter().zip(&saved) {
        let cells = std::iter::once((*label).to_owned()).chain(saved.cells());
        table.row(&cells.collect::<Vec<_>>());
    }
    Ok(format!(
        "## All together\n\nThe paper's headline is over 76 workloads. Ours is over the {} recordings at hand that are \
         complete and have default settings,\none rank of each job.\n\n{}",
        saved[0].jobs,
        table.text()
    ))
}

/// Whether it was recorded from the start, with default settings.
fn is_plain(opened: &Opened) -> bool {
    let conf = opened.trace.settings.clone().unwrap_or_default();
    conf == gmlake::alloc_conf::AllocConf::default()
        && opened.start.is_empty()
        && opened.trace.warnings.is_empty()
        && opened.notes.is_empty()
}

/// A table of the paper's bars and ours.
fn comparison(traces: &Traces, published: &[Published]) -> Result<String> {
    let mut table = Table::new(&[
        "paper",
        "PyTorch",
        "GMLake",
        "recording",
        "recorded",
        "expandable",
        "released",
        "paper's, 2 MiB",
    ]);
    for row in published {
        let Some(opened) = traces.open(row.trace)? else { continue };
        let bar = |index: usize| {
            let held = row.reserved[index].map_or("OOM".to_owned(), |gb| format!("{gb:.1} GB"));
            format!("{held}, {:.1} %", 100.0 * row.utilization[index])
        };
        let mut cells = vec![row.workload.to_owned(), bar(0), bar(1), format!("`{}`", row.trace)];
        cells.push(opened.recorded.as_ref().map_or("-".to_owned(), held));
        for (allocator, options) in ROWS {
            cells.push(held(&simulate(&opened, allocator, options, None)?));
        }
        table.row(&cells);
    }
    Ok(table.text())
}

fn held(run: &RunSummary) -> String {
    format!("{} GiB, {:.1} %", gib(run.reserved_peak_bytes), 100.0 * run.utilization)
}

/// Several allocators on a device of this size, the paper's with its limit at 2 MiB.
fn compare_on(opened: &Opened, names: &[&str], memory: u64) -> Result<Comparison> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let allocators = choose(&names, &["gmlake.fragment_limit=2MiB".to_owned()])?;
    let setup = Setup { memory: Memory::Bytes(memory), ..Setup::default() };
    Ok(compare(opened, &Choices { allocators, setup, ..Choices::default() })?)
}

/// One picture of the utilization of every workload, the paper's bars first.
fn draw_utilization(traces: &Traces) -> Result<()> {
    let mut comparisons = Vec::new();
    for row in STRATEGIES.iter().chain(&SCALE_OUT).chain(&BATCHES).chain(&PLATFORMS[1..]) {
        let Some(opened) = traces.open(row.trace)? else { continue };
        let names = ["expandable", "gmlake-released", "gmlake"];
        let mut comparison = compare_on(&opened, &names, 141 * GIB)?;
        let bars = ["paper: PyTorch", "paper: GMLake"].iter().enumerate();
        let bars: Vec<_> = bars.map(|(index, label)| bar(row, index, label)).collect();
        comparison.runs.splice(0..0, bars);
        comparison.file = format!("{} / {}", row.workload, comparison.title());
        comparisons.push(comparison);
    }
    draw(&comparisons, "reports/paper-utilization.png")
}

fn bar(row: &Published, index: usize, label: &str) -> RunSummary {
    RunSummary {
        allocator: label.to_owned(),
        utilization: row.utilization[index],
        reserved_peak_bytes: (row.reserved[index].unwrap_or(0.0) * 1e9) as u64,
        ..RunSummary::default()
    }
}

fn draw(comparisons: &[Comparison], path: &str) -> Result<()> {
    let format = ImageFormat::of(Path::new(path))?;
    let mut out = BufWriter::new(File::create(path).with_context(|| path.to_owned())?);
    Ok(write_plot(comparisons, format, &mut out)?)
}

const WHERE_ELSE: &str = "\
## What else the paper shows

- The cost of the virtual memory calls (its latency figure and Table 1): measured on an H200 in [vmm/](vmm/README.md).
- Convergence after a few iterations: [gmlake.md](gmlake.md).
- Throughput: not simulated; a snapshot says nothing of kernels.
- Vicuna-13B, GLM-10B under FSDP, GPT-2 under Colossal-AI, 8 and 16 GPUs: not recorded.
";
