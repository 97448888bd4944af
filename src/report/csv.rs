//! Data as CSV: a heading, then a row of cells for each thing, numbers bare. The same cells make Parquet.

use std::io::{Error, Write};

use super::Result;
use super::parquet::Value;
use crate::printable::printable;

/// A column: its name, and what it holds of a row.
pub(crate) type Column<R> = (&'static str, fn(&R) -> Value);

/// The cells of a row.
pub(crate) fn cells<R>(columns: &[Column<R>], row: &R) -> Vec<Value> {
    columns.iter().map(|(_, get)| get(row)).collect()
}

/// Writes all rows under the names of the columns.
pub(crate) fn write_rows<R>(
    columns: &[Column<R>],
    rows: impl IntoIterator<Item = R>,
    out: &mut dyn Write,
) -> Result<()> {
    let names = columns.iter().map(|&(name, _)| name);
    write_cells(names, rows.into_iter().map(|row| cells(columns, &row)), out)
}

/// Writes a table. Texts come from files; what a terminal would act upon is escaped.
pub(crate) fn write_cells<'n>(
    names: impl IntoIterator<Item = &'n str>,
    rows: impl IntoIterator<Item = Vec<Value>>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(names).map_err(Error::from)?;
    for row in rows {
        let cells = row.into_iter().map(|value| match value {
            Value::Text(text) => printable(&text.unwrap_or_default()).into_owned(),
            Value::Whole(number) => number.map(|n| n.to_string()).unwrap_or_default(),
            Value::Real(number) => format!("{number:.6}"),
        });
        writer.write_record(cells).map_err(Error::from)?;
    }
    Ok(writer.flush()?)
}
