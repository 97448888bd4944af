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

use super::need::{JobPlan, Need};
use super::series::Series;
use crate::report::picture::style::{self, gib};
use crate::report::picture::{ImageFormat, write_picture};
use crate::report::{ReportError, Result};
use crate::sweep::Axis;
use crate::sweep::chart::curves::{Curve, Curves, HEIGHT, Mark};
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
        let point = |(value, job): (usize, &JobPlan)| {
            Some((value, gib(job.worst(index)?.1.smallest_bytes()?), Mark::Dot))
        };
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

fn capacity(card: &Target) -> f64 {
    gib(card.capacity_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_result_there_is_nothing_to_draw() {
        let error =
            write_series(&Series::default(), ImageFormat::Svg, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no job has a result"), "{error}");
    }
}
