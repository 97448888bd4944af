//! Sweeps as Parquet: the columns of the CSV, typed, for notebooks and databases.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Value, cells, names};
use crate::metrics::Sweep;
use crate::report::ReportError;

/// Writes a row for each run, as one row group; texts and what may be absent are optional.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_parquet(sweep: &Sweep, out: &mut dyn Write) -> Result<(), ReportError> {
    // The library wants to write from any thread, which a writer here need not allow.
    let bytes = encode(sweep).map_err(|error| ReportError::Data(error.to_string()))?;
    Ok(out.write_all(&bytes)?)
}

fn encode(sweep: &Sweep) -> Result<Vec<u8>, ParquetError> {
    let rows: Vec<Vec<Value>> = sweep.rows.iter().map(|row| cells(sweep, row)).collect();
    let names = names(sweep);
    // An empty sweep has columns all the same, and no type to go by.
    let sample = cells(sweep, &sweep.rows.first().cloned().unwrap_or_default());
    let fields = names.iter().zip(&sample).map(|(name, value)| field(name, value));
    let fields: Vec<TypePtr> = fields.collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (index, sample) in sample.iter().enumerate() {
        let column: Vec<&Value> = rows.iter().map(|row| &row[index]).collect();
        write_column(&mut group, sample, &column)?;
    }
    group.close()?;
    writer.into_inner()
}

fn field(name: &str, value: &Value) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match value {
        Value::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Value::Whole(_) => (Physical::INT64, None),
        Value::Real(_) => (Physical::DOUBLE, None),
    };
    let builder = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    Ok(Arc::new(builder.with_repetition(Repetition::OPTIONAL).build()?))
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    sample: &Value,
    column: &[&Value],
) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else { return Ok(()) };
    match sample {
        Value::Text(_) => {
            let texts: Vec<Option<ByteArray>> = column.iter().map(|value| text(value)).collect();
            let values: Vec<ByteArray> = texts.iter().flatten().cloned().collect();
            writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels(&texts)), None)?;
        }
        Value::Whole(_) => {
            let numbers: Vec<Option<i64>> = column.iter().map(|value| whole(value)).collect();
            let values: Vec<i64> = numbers.iter().flatten().copied().collect();
            writer.typed::<Int64Type>().write_batch(&values, Some(&levels(&numbers)), None)?;
        }
        Value::Real(_) => {
            let numbers: Vec<Option<f64>> = column.iter().map(|value| real(value)).collect();
            let values: Vec<f64> = numbers.iter().flatten().copied().collect();
            writer.typed::<DoubleType>().write_batch(&values, Some(&levels(&numbers)), None)?;
        }
    }
    writer.close()
}

/// 1 where there is a value, 0 where there is none.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

fn text(value: &Value) -> Option<ByteArray> {
    match value {
        Value::Text(text) => text.as_deref().map(ByteArray::from),
        _ => None,
    }
}

/// Counts and bytes of real runs are far below 2^63.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Whole(number) => number.and_then(|number| i64::try_from(number).ok()),
        _ => None,
    }
}

fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Real(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::metrics::{Axis, Setting, SweepRow};

    #[test]
    fn what_was_written_is_read_again() {
        let axis = Axis { name: "a.x".to_owned(), values: vec!["1".to_owned()] };
        let setting = Setting { name: "a.x".to_owned(), value: "1".to_owned() };
        let row = SweepRow {
            file: "ä.pickle".to_owned(),
            settings: vec![setting],
            reserved_peak_bytes: 7 << 40,
            utilization: 0.25,
            ..SweepRow::default()
        };
        let rows = vec![row.clone(), SweepRow { settings: Vec::new(), ..row }];
        let sweep = Sweep { axes: vec![axis], rows };
        let mut bytes = Vec::new();
        write_parquet(&sweep, &mut bytes).unwrap();
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), &bytes).unwrap();
        let reader = SerializedFileReader::new(path.reopen().unwrap()).unwrap();
        let found: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        let at = |name: &str| names(&sweep).iter().position(|other| *other == name).unwrap();
        assert_eq!(found[0].get_string(at("file")).unwrap(), "ä.pickle");
        assert_eq!(found[0].get_string(at("a.x")).unwrap(), "1");
        assert!(found[1].get_string(at("a.x")).is_err(), "absent");
        assert_eq!(found[1].get_long(at("reserved_peak_bytes")).unwrap(), 7 << 40);
        assert_eq!(found[1].get_double(at("utilization")).unwrap(), 0.25);
    }
}
