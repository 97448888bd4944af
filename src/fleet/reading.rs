//! Reading: the rows of a Parquet file, cells by name.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use crate::input_error::InputError;

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

    /// All cells as texts, in the order of the columns.
    pub(super) fn texts(&self) -> Vec<String> {
        let text = |(_, field): (&String, &Field)| match field {
            Field::Null => String::new(),
            Field::Str(text) => text.clone(),
            other => other.to_string(),
        };
        self.row.get_column_iter().map(text).collect()
    }

    fn cell(&self, name: &str) -> Option<&Field> {
        let at = self.names.iter().position(|other| other == name)?;
        self.row.get_column_iter().nth(at).map(|(_, field)| field)
    }
}

/// Names of the columns and all rows of a file, which is small.
pub(super) fn read(path: &Path) -> Result<(Arc<Vec<String>>, Vec<Record>), InputError> {
    let damaged = |error: ParquetError| {
        InputError::at(path.display(), format_args!("cannot be read: {error}"))
    };
    let file = File::open(path).map_err(|error| InputError::unreadable(path, error))?;
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names = Arc::new(schema.columns().iter().map(|c| c.name().to_owned()).collect());
    let record = |row: Result<Row, ParquetError>| {
        Ok(Record { names: Arc::clone(&names), row: row.map_err(damaged)? })
    };
    let rows = reader.get_row_iter(None).map_err(damaged)?.map(record);
    let rows = rows.collect::<Result<_, _>>()?;
    Ok((names, rows))
}
