//! A series of plans as a picture: the memory that each allocator needs at each value, and what the cards have.
//!
//! ```text
//!   GiB │- - - - - - - - - - - - H100 80GB     a card is enough where a curve is below its line
//!       │            ___ caching
//!       │- - - - ___/- - - - - - L40S
//!       │    ___/____________ lake
//!       └────────────────────
//!         8   16   32   64  batch
//! ```

use std::io::Write;

use super::data::{JobPlan, Need, Series};
use crate::report::picture::{ImageFormat, style, write_picture};
use crate::report::{ReportError, Result};
use crate::sweep::Axis;
use crate::sweep::chart::curves::{Curve, Curves, HEIGHT, Mark};
use crate::units::GIB;
use gmlake_core::cards::Target;

/// Room above what is needed most, so that the card that is enough for it is in the picture.
const HEADROOM: f64 = 1.08;

const ENOUGH: &str = "a card is enough where a curve is below its line";

/// Draws the smallest device memory of each allocator over the quantity in which the jobs differ.
///
/// # Errors
/// If no job has a result, or `out` cannot be written.
pub fn write_series(series: &Series, format: ImageFormat, out: &mut dyn Write) -> Result<()> {
    let first = series.jobs.iter().find_map(|job| job.ranks.first());
    let first = first.ok_or_else(|| ReportError::Draw("no job has a result".to_owned()))?;
    let colours = style::colours_of(first.needs.iter().map(|need| need.allocator.as_str()));
    let curve = |(index, (need, colour))| {
        let point = |(value, job)| Some((value, gib(job, index)?, Mark::Dot));
        let points = series.jobs.iter().enumerate().filter_map(point).collect();
        Curve { name: Need::label(need), colour, points }
    };
    let curves: Vec<Curve> = first.needs.iter().zip(colours).enumerate().map(curve).collect();
    let needs = curves.iter().flat_map(|curve| &curve.points).map(|&(_, gib, _)| gib);
    let most = needs.fold(1e-3, f64::max);
    let mut cards: Vec<&Target> = first.targets.iter().collect();
    cards.sort_by_key(|card| card.capacity_bytes);
    // Those that decide something, and the first that is always enough.
    let enough = cards.iter().position(|card| capacity(card) >= most);
    cards.truncate(enough.map_or(cards.len(), |index| index + 1));
    let most = cards.last().map_or(most, |card| most.max(capacity(card)));
    let values = series.values.iter().map(f64::to_string).collect();
    let limits = series.jobs.iter().find_map(|job| job.coverage.limits());
    let picture = Curves {
        title: format!("The smallest device memory by {}", series.quantity),
        legend: limits.unwrap_or_else(|| ENOUGH.to_owned()),
        axis: &Axis { name: series.quantity.clone(), values },
        most: most * HEADROOM,
        levels: cards.iter().map(|card| (card.name.clone(), capacity(card))).collect(),
        curves,
    };
    write_picture(format, HEIGHT, out, &picture)
}

fn gib(job: &JobPlan, index: usize) -> Option<f64> {
    let bytes = job.worst(index)?.1.smallest_bytes()?;
    Some(bytes as f64 / GIB as f64)
}

fn capacity(card: &Target) -> f64 {
    card.capacity_bytes as f64 / GIB as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::data::{Plan, Trial};

    fn job(gib: u64) -> JobPlan {
        let trial = Trial {
            capacity_bytes: gib * GIB,
            reserved_peak_bytes: gib * GIB,
            alloc_retries: 0,
            device_calls: 1,
            shortage: None,
        };
        let need = Need {
            allocator: "lake".to_owned(),
            options: Vec::new(),
            unlimited_bytes: gib * GIB,
            smallest: Some(trial),
            below: None,
            runs: 1,
            verdicts: Vec::new(),
        };
        let card =
            |name: &str, gib: u64| Target { name: name.to_owned(), ..Target::of_size(gib * GIB) };
        let targets = vec![card("large", 90), card("small", 20), card("larger", 900)];
        let plan = Plan { needs: vec![need], targets, ..Plan::default() };
        JobPlan { ranks: vec![plan], ..JobPlan::default() }
    }

    #[test]
    fn a_curve_for_each_allocator_and_a_line_for_each_card_that_decides() {
        let jobs = vec![job(10), job(40)];
        let series = Series { quantity: "batch".to_owned(), values: vec![8.0, 16.0], jobs };
        let mut out = Vec::new();
        write_series(&series, ImageFormat::Svg, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for word in ["batch", "lake", "small", "large"] {
            assert!(text.contains(&format!("\n{word}\n")), "{word}: {text}");
        }
        assert!(!text.contains("larger") && text.matches("<circle").count() == 2, "{text}");
    }

    #[test]
    fn without_a_result_there_is_nothing_to_draw() {
        let error =
            write_series(&Series::default(), ImageFormat::Svg, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no job has a result"), "{error}");
    }
}
