//! A row of CSV.

use std::io::Write;

use super::Result;
use crate::printable::printable;

/// Writes a row. Names come from files; what a terminal would act upon is escaped.
pub(crate) fn write_row(
    writer: &mut csv::Writer<impl Write>,
    cells: impl IntoIterator<Item = String>,
) -> Result<()> {
    let cells = cells.into_iter().map(|cell| printable(&cell).into_owned());
    Ok(writer.write_record(cells).map_err(std::io::Error::from)?)
}
