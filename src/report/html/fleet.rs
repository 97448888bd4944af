//! A fleet's page: one HTML file without scripts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::words;
use super::{STYLE, escape, fill};
use crate::metrics::FleetSummary;
use crate::report::plot::write_fleet;
use crate::report::{ImageFormat, ReportError, fleet};

const PAGE: &str = include_str!("fleet.html");

/// The page of a fleet. `command` is what made it, as a user would type it.
///
/// # Errors
/// If the picture cannot be drawn.
pub fn fleet_page(
    summary: &FleetSummary,
    title: &str,
    command: &str,
) -> Result<String, ReportError> {
    let mut picture = Vec::new();
    if !summary.totals.is_empty() {
        write_fleet(summary, ImageFormat::Svg, &mut picture)?;
    }
    let sections = fleet::sections(summary);
    let values = [
        ("title", escape(title)),
        ("style", STYLE.to_owned()),
        ("headline", escape(&fleet::headline(summary))),
        ("picture", STANDARD.encode(&picture)),
        ("sections", words::html(&sections[1..])),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("command", escape(command)),
    ];
    let values: Vec<(&str, &str)> = values.iter().map(|(name, text)| (*name, &**text)).collect();
    Ok(fill(PAGE, &values))
}
