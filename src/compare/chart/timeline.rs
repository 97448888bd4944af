//! Memory over time: what was in use as an area, what each allocator held as a line, the names at the lines' ends.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::compare::comparison::Comparison;
use crate::report::Result;
use crate::report::picture::style::{self, gib};
use crate::report::picture::{Canvas, failed, font};
use crate::run::{Moment, RECORDED, RunSummary, Timeline};
use crate::simulation::Range;
use crate::units::{Bytes, Grouped, Size};

/// Room for the names at the right, the scale at the left and below, and the steps' numbers above.
const RIGHT: i32 = 190;
const LEFT: i32 = 84;
const BELOW: i32 = 58;
const ABOVE: i32 = 30;

/// With more steps than this, their borders would hide the data.
const MOST_STEPS: usize = 120;
const MOST_STEP_NUMBERS: usize = 20;

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Turns events into places on the axis: seconds, or events where the file has no times.
struct Axis<'a> {
    comparison: &'a Comparison,
    has_times: bool,
    end: f64,
}

impl<'a> Axis<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let has_times = comparison.span_us > 0;
        let (seconds, events) = (comparison.span_us as f64 / 1e6, comparison.events().max(1));
        let end = if has_times { seconds } else { events as f64 };
        Self { comparison, has_times, end }
    }

    /// Where a place on a timeline's own axis lies.
    fn place(&self, at: u64, timeline: &Timeline) -> f64 {
        let share = at as f64 / (timeline.end + 1) as f64;
        let place = match self.has_times {
            true => at as f64 / 1e6,
            // The recording counts its own entries, which are not our events.
            false => share * self.end,
        };
        place.min(self.end)
    }

    /// Where bucket `index` of a timeline begins, or the last one ends.
    fn bucket(&self, index: usize, timeline: &Timeline) -> f64 {
        self.place(timeline.start_of(index), timeline)
    }

    fn step(&self, moment: &Moment) -> f64 {
        if self.has_times { moment.time_us as f64 / 1e6 } else { moment.event as f64 }
    }

    fn name(&self) -> &'static str {
        if self.has_times { "seconds since the first event" } else { "events" }
    }

    fn label(&self, at: f64) -> String {
        match self.has_times {
            true if self.end < 2.0 => {
                let digits = (1.0 - self.end.log10()).ceil().max(2.0) as usize;
                format!("{at:.digits$}")
            }
            true if self.end < 20.0 => format!("{at:.1}"),
            _ => Grouped(at as u64).to_string(),
        }
    }
}

/// Draws the panel.
pub(super) fn draw<DB: DrawingBackend>(canvas: &Canvas<DB>, comparison: &Comparison) -> Result<()> {
    if !comparison.has_history() {
        let faint = font(18, style::FAINT_INK);
        return canvas.text((28, 10), "No event history was recorded.", faint);
    }
    let axis = Axis::new(comparison);
    let highest = comparison.runs.iter().map(|run| run.reserved_peak_bytes).max().unwrap_or(0);
    let top = (1.06 * gib(highest)).max(1.0 / 1024.0);
    let mut chart = ChartBuilder::on(&canvas.area)
        .margin_top(canvas.px(ABOVE))
        .margin_right(canvas.px(RIGHT))
        .y_label_area_size(canvas.px(LEFT))
        .x_label_area_size(canvas.px(BELOW))
        .build_cartesian_2d(0.0..axis.end, 0.0..top)
        .map_err(failed)?;
    active_area(&mut chart, &axis)?;
    mesh(&mut chart, &axis, top, canvas)?;
    steps(&mut chart, &axis, top, canvas)?;
    let levels = levels(comparison, top);
    for (bytes, colour, _) in &levels {
        let ends = [(0.0, gib(*bytes)), (axis.end, gib(*bytes))];
        let (dash, gap, stroke) = (canvas.px(10), canvas.px(7), canvas.stroke(*colour, 2));
        chart.draw_series(DashedLineSeries::new(ends, dash, gap, stroke)).map_err(failed)?;
    }
    let lines = lines(comparison);
    for (run, colour) in &lines {
        reserved_line(&mut chart, run, &axis, *colour, canvas)?;
    }
    canvas.text((LEFT - 52, 4), "GiB", font(18, style::INK))?;
    let mut named: Vec<Name> = lines
        .iter()
        .map(|(run, colour)| (held_last(run), *colour, run.allocator.clone()))
        .collect();
    named.extend(levels);
    let active = comparison.runs.first().and_then(|run| run.timeline.buckets.last());
    named.extend(active.map(|last| (last.high.active, style::FAINT_INK, "active".to_owned())));
    names(&chart, named, canvas)
}

/// A height in bytes, a colour and a name.
type Name = (Bytes, RGBColor, String);

/// The runs that get a line. What calls the driver for every request holds just what is in use, which is shown as an
/// area already; bounds are levels.
fn lines(comparison: &Comparison) -> Vec<(&RunSummary, RGBColor)> {
    let runs = comparison.runs.iter().zip(style::colours(&comparison.runs));
    let is_line = |run: &RunSummary| run.allocator == RECORDED || run.is_choice();
    runs.filter(|(run, _)| is_line(run)).collect()
}

/// What is the same all the time: the lowest bound, and the device's memory where it is near enough to be shown.
fn levels(comparison: &Comparison, top: f64) -> Vec<Name> {
    let mut levels = Vec::new();
    let bound = comparison.runs.iter().zip(style::colours(&comparison.runs));
    let bound =
        bound.filter(|(run, _)| run.is_bound()).min_by_key(|(run, _)| run.reserved_peak_bytes);
    levels.extend(bound.map(|(run, colour)| {
        (run.reserved_peak_bytes, colour, format!("bound {}", run.reserved()))
    }));
    let memory = comparison.device_memory.filter(|&memory| gib(memory) <= top);
    levels.extend(memory.map(|bytes| (bytes, style::ALARM, format!("device {}", Size(bytes)))));
    levels
}

fn mesh<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    axis: &Axis<'_>,
    top: f64,
    canvas: &Canvas<DB>,
) -> Result<()> {
    let digits = if top < 0.2 {
        3
    } else if top < 8.0 {
        1
    } else {
        0
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(canvas.stroke(style::GRID, 1))
        .axis_style(canvas.stroke(style::FAINT_INK, 1))
        .label_style(canvas.text_style(font(18, style::INK)))
        .axis_desc_style(canvas.text_style(font(18, style::INK)))
        .x_labels(if axis.has_times { 10 } else { axis.end.clamp(1.0, 10.0) as usize })
        .y_labels(9)
        .x_desc(axis.name())
        .x_label_formatter(&|at| axis.label(*at))
        .y_label_formatter(&|at| format!("{at:.digits$}"))
        .draw()
        .map_err(failed)
}

/// A faint line where each step begins, and the numbers of some of them above the chart.
fn steps<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    axis: &Axis<'_>,
    top: f64,
    canvas: &Canvas<DB>,
) -> Result<()> {
    let starts = &axis.comparison.step_starts;
    if starts.len() > MOST_STEPS {
        return Ok(());
    }
    let numbered = starts.len().div_ceil(MOST_STEP_NUMBERS).max(1);
    let style = canvas.text_style(font(15, style::FAINT_INK).above());
    let origin = canvas.area.get_base_pixel();
    let mut last = i32::MIN;
    for (index, moment) in starts.iter().enumerate() {
        let at = axis.step(moment);
        let border = PathElement::new(vec![(at, 0.0), (at, top)], canvas.stroke(style::GRID, 1));
        chart.draw_series([border]).map_err(failed)?;
        let place = chart.plotting_area().map_coordinate(&(at, top));
        let x = place.0 - origin.0;
        let text = if index == 0 { "step 1".to_owned() } else { (index + 1).to_string() };
        if index.is_multiple_of(numbered) && x > last.saturating_add(canvas.px(44)) {
            let at = (x, place.1 - origin.1 - canvas.px(4));
            canvas.area.draw(&Text::new(text, at, style.clone())).map_err(failed)?;
            last = x;
        }
    }
    Ok(())
}

/// The most that was in use.
fn active_area<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, axis: &Axis<'_>) -> Result<()> {
    let Some(run) = axis.comparison.in_use() else { return Ok(()) };
    let points = staircase(&run.timeline, axis, |bucket| (bucket.high.active, bucket.high.active));
    chart.draw_series(AreaSeries::new(points, 0.0, style::ACTIVE)).map_err(failed)?;
    Ok(())
}

fn reserved_line<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    run: &RunSummary,
    axis: &Axis<'_>,
    colour: RGBColor,
    canvas: &Canvas<DB>,
) -> Result<()> {
    let points =
        staircase(&run.timeline, axis, |bucket| (bucket.low.reserved, bucket.high.reserved));
    // The recording lies under the others and is wider, so that both show where a model agrees with it.
    let width = if run.allocator == RECORDED { 5 } else { 2 };
    chart.draw_series([PathElement::new(points, canvas.stroke(colour, width))]).map_err(failed)?;
    let Some(event) = run.first_oom_event else { return Ok(()) };
    let place = if axis.has_times { run.first_oom_us } else { Some(event) };
    let at = place.unwrap_or(event);
    let bucket = (at / run.timeline.width) as usize;
    let held = run.timeline.buckets.get(bucket).map_or(0, |range| range.high.reserved);
    let at = (axis.place(at, &run.timeline), gib(held));
    let cross = Cross::new(at, canvas.px(8), canvas.stroke(style::ALARM, 3));
    chart.draw_series([cross]).map_err(failed)?;
    Ok(())
}

/// Corners of a line that goes through the lowest and the highest value of each bucket, and keeps its value where the
/// two are one; equal neighbours are one stair.
fn staircase(
    timeline: &Timeline,
    axis: &Axis<'_>,
    values: impl Fn(&Range) -> (Bytes, Bytes),
) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (index, bucket) in timeline.buckets.iter().enumerate() {
        let (low, high) = values(bucket);
        let (at, low, high) = (axis.bucket(index, timeline), gib(low), gib(high));
        let last = points.last().map_or(low, |&(_, value)| value);
        if points.is_empty() || last != low || last != high {
            // From where the line is to the nearer end first, so that a bucket that only rises is one stair.
            let (near, far) = if last - low <= high - last { (low, high) } else { (high, low) };
            points.extend([(at, last), (at, near), (at, far)]);
        }
    }
    let last = points.last().copied();
    points.extend(last.map(|(_, value)| (axis.bucket(timeline.buckets.len(), timeline), value)));
    points
}

/// Names at the right ends of the lines, moved apart where lines are close, with a thread from the line to the name.
fn names<DB: DrawingBackend>(
    chart: &Chart<'_, DB>,
    names: Vec<Name>,
    canvas: &Canvas<DB>,
) -> Result<()> {
    let area = &canvas.area;
    let (columns, rows) = chart.plotting_area().get_pixel_range();
    let origin = area.get_base_pixel();
    let end = columns.end - origin.0;
    let (high, low) = (rows.start - origin.1, rows.end - origin.1);
    let place =
        |bytes: Bytes| chart.plotting_area().map_coordinate(&(0.0, gib(bytes))).1 - origin.1;
    let ends: Vec<i32> = names.iter().map(|&(bytes, ..)| place(bytes)).collect();
    let spread = style::spread(&ends, canvas.px(22), high + canvas.px(6), low - canvas.px(6));
    for (((_, colour, name), from), to) in names.into_iter().zip(ends).zip(spread) {
        let (bend, text) = (end + canvas.px(6), end + canvas.px(26));
        let thread =
            vec![(end, from), (bend, from), (text - canvas.px(8), to), (text - canvas.px(3), to)];
        area.draw(&PathElement::new(thread, canvas.stroke(colour, 1))).map_err(failed)?;
        let style = canvas.text_style(font(18, colour).left());
        area.draw(&Text::new(name, (text, to), style)).map_err(failed)?;
    }
    Ok(())
}

fn held_last(run: &RunSummary) -> u64 {
    run.timeline.buckets.last().map_or(run.reserved_peak_bytes, |last| last.high.reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_any_span_differ() {
        for span_us in [7, 2_710, 199_000, 1_500_000, 19_000_000, 4_000_000_000] {
            let comparison = Comparison { span_us, ..Comparison::default() };
            let axis = Axis::new(&comparison);
            let labels = [1.0, 2.0, 3.0, 4.0].map(|mark| axis.label(axis.end * mark / 5.0));
            assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{span_us}: {labels:?}");
        }
        let comparison = Comparison { span_us: 1_500_000, ..Comparison::default() };
        assert_eq!(Axis::new(&comparison).label(0.25), "0.25");
    }
}
