//! Reading: the rows of a table's file, cells by name.

use std::fs::File;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use crate::report::ReportError;

/// A row.
#[derive(Debug, Clone)]
pub(super) struct Record {
    names: Arc<Vec<String>>,
    row: Row,
}

impl Record {
    /// A text; empty if the cell is.
    pub(super) fn text(&self, name: &str) -> String {
        match self.cell(name) {
            Some(Field::Str(text)) => text.clone(),
            _ => String::new(),
        }
    }

    /// A count; zero if the cell is empty.
    pub(super) fn whole(&self, name: &str) -> u64 {
        self.some_whole(name).unwrap_or(0)
    }

    /// A count, if there is one.
    pub(super) fn some_whole(&self, name: &str) -> Option<u64> {
        match self.cell(name) {
            Some(Field::Long(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    fn cell(&self, name: &str) -> Option<&Field> {
        let at = self.names.iter().position(|other| other == name)?;
        self.row.get_column_iter().nth(at).map(|(_, field)| field)
    }
}

/// All rows of a file, which is small.
pub(super) fn records(file: File) -> Result<Vec<Record>, ReportError> {
    let damaged = |error: ParquetError| ReportError::Data(error.to_string());
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|c| c.name().to_owned()).collect();
    let names = Arc::new(names);
    let rows = reader.get_row_iter(None).map_err(damaged)?;
    rows.map(|row| Ok(Record { names: Arc::clone(&names), row: row.map_err(damaged)? })).collect()
}
