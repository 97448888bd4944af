//! Parquet: a table of cells as a file of typed columns, for notebooks and databases.
//!
//! One row group, compressed with zstd; every column may be empty in some rows. The same cells give the same bytes.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{Type, TypePtr};

use super::{ReportError, Result};

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text; `None`: the cell is empty.
    Text(Option<String>),
    /// A count or bytes; `None`: the cell is empty.
    Whole(Option<u64>),
    /// A ratio.
    Real(f64),
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Texts.
    Text,
    /// Counts and bytes.
    Whole,
    /// Ratios.
    Real,
}

impl Value {
    /// A text that is there.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// A count or bytes, or an empty cell.
    pub fn whole(number: impl Into<Option<u64>>) -> Self {
        Self::Whole(number.into())
    }

    /// What it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Whole(_) => Kind::Whole,
            Self::Real(_) => Kind::Real,
        }
    }
}

/// The content of a file: the columns by name, and rows with a cell for each.
///
/// # Errors
/// If a name is not possible.
pub fn encode(table: &str, columns: &[(&str, Kind)], rows: &[Vec<Value>]) -> Result<Vec<u8>> {
    encoded(table, columns, rows).map_err(|error| ReportError::Data(error.to_string()))
}

fn encoded(
    table: &str,
    columns: &[(&str, Kind)],
    rows: &[Vec<Value>],
) -> Result<Vec<u8>, ParquetError> {
    let fields: Vec<TypePtr> =
        columns.iter().map(|&(name, kind)| field(name, kind)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder(table).with_fields(fields).build()?;
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (index, &(_, kind)) in columns.iter().enumerate() {
        let column: Vec<&Value> = rows.iter().map(|row| &row[index]).collect();
        write_column(&mut group, kind, &column)?;
    }
    group.close()?;
    writer.into_inner()
}

fn field(name: &str, kind: Kind) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Whole => (Physical::INT64, None),
        Kind::Real => (Physical::DOUBLE, None),
    };
    let builder = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    Ok(Arc::new(builder.with_repetition(Repetition::OPTIONAL).build()?))
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    kind: Kind,
    column: &[&Value],
) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else { return Ok(()) };
    match kind {
        Kind::Text => fill::<ByteArrayType>(&mut writer, column, |value| match value {
            Value::Text(text) => text.as_deref().map(ByteArray::from),
            _ => None,
        })?,
        // Counts and bytes of real runs are far below 2^63.
        Kind::Whole => fill::<Int64Type>(&mut writer, column, |value| match value {
            Value::Whole(number) => number.and_then(|number| i64::try_from(number).ok()),
            _ => None,
        })?,
        Kind::Real => fill::<DoubleType>(&mut writer, column, |value| match value {
            Value::Real(number) => Some(*number),
            _ => None,
        })?,
    }
    writer.close()
}

/// Writes the cells that are not empty; a level is 1 where there is a value, 0 where there is none.
fn fill<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    column: &[&Value],
    get: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let cells: Vec<Option<T::T>> = column.iter().map(|value| get(value)).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let columns = [("file", Kind::Text), ("bytes", Kind::Whole), ("share", Kind::Real)];
        let row = |text: Option<&str>, bytes| {
            vec![Value::Text(text.map(str::to_owned)), Value::Whole(bytes), Value::Real(0.25)]
        };
        let rows = [row(Some("ä.pickle"), Some(7 << 40)), row(None, None)];
        let bytes = encode("table", &columns, &rows).unwrap();
        assert_eq!(bytes, encode("table", &columns, &rows).unwrap());
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), &bytes).unwrap();
        let reader = SerializedFileReader::new(path.reopen().unwrap()).unwrap();
        let found: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].get_string(0).unwrap(), "ä.pickle");
        assert_eq!(found[0].get_long(1).unwrap(), 7 << 40);
        assert_eq!(found[0].get_double(2).unwrap(), 0.25);
        assert!(found[1].get_string(0).is_err() && found[1].get_long(1).is_err(), "empty");
        let none = encode("table", &columns, &[]).unwrap();
        std::fs::write(path.path(), &none).unwrap();
        let reader = SerializedFileReader::new(path.reopen().unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
