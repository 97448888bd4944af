//! A manifest: a CSV or Parquet file that names recordings, and may say what their paths do not.
//!
//! ```text
//!   path,job,date,rank
//!   s3://bucket/a/17.pickle,llama-70b,2026-11-23,17        all but the path may be left out
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};

use super::reading::{self, Record};
use crate::input_error::InputError;
use crate::printable::printable;

/// A line of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) path: PathBuf,
    pub(super) job: Option<String>,
    pub(super) date: Option<String>,
    pub(super) rank: Option<u64>,
}

/// Reads a manifest; relative paths are relative to it.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, InputError> {
    let is_parquet = path.extension().is_some_and(|ending| ending == "parquet");
    let (names, rows) = if is_parquet { from_parquet(path)? } else { from_csv(path)? };
    let column = |wanted: &str| names.iter().position(|name| name.trim() == wanted);
    let wrong = |problem: String| InputError::at(path.display(), problem);
    let at = column("path").or_else(|| column("file"));
    let no_path = "no column named path; there may also be job, date and rank";
    let at = at.ok_or_else(|| wrong(no_path.to_owned()))?;
    let others = [column("job"), column("date"), column("rank")];
    let folder = path.parent().unwrap_or(Path::new(""));
    let line = |(index, row): (usize, &Vec<String>)| {
        let fail = |problem: String| Err(wrong(format!("line {}: {problem}", index + 2)));
        let text = |at: Option<usize>| {
            let cell = at.and_then(|at| row.get(at)).map(|cell| cell.trim().to_owned());
            cell.filter(|cell| !cell.is_empty())
        };
        let Some(file) = text(Some(at)) else { return fail("no path".to_owned()) };
        let rank = text(others[2]).map(|rank| rank.parse::<u64>().map_err(|_| rank)).transpose();
        let rank = match rank {
            Ok(rank) => rank,
            Err(rank) => return fail(format!("{rank:?} is not the number of a rank")),
        };
        let path = if file.contains("://") { file.into() } else { folder.join(file) };
        let job = text(others[0]).map(|job| printable(&job).into_owned());
        Ok(Line { path, job, date: text(others[1]), rank })
    };
    rows.iter().enumerate().map(line).collect()
}

/// Names of columns, and rows of texts.
type Sheet = (Vec<String>, Vec<Vec<String>>);

fn from_csv(path: &Path) -> Result<Sheet, InputError> {
    let file = File::open(path).map_err(|error| InputError::unreadable(path, error))?;
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file);
    let damaged = |error: csv::Error| InputError::at(path.display(), error);
    let names = reader.headers().map_err(damaged)?.iter().map(str::to_owned).collect();
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        Ok(record.map_err(damaged)?.iter().map(str::to_owned).collect())
    };
    let rows = reader.into_records().map(row).collect::<Result<_, _>>()?;
    Ok((names, rows))
}

fn from_parquet(path: &Path) -> Result<Sheet, InputError> {
    let (names, rows) = reading::read(path)?;
    Ok((names.to_vec(), rows.iter().map(Record::texts).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::parquet::{Kind, Value, encode};

    #[test]
    fn csv_and_parquet_say_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let csv = folder.path().join("m.csv");
        std::fs::write(&csv, "rank,path,job\n7,a.pickle,llama\n,s3://b/c.pickle,\n").unwrap();
        let parquet = folder.path().join("m.parquet");
        let columns = [("rank", Kind::Whole), ("path", Kind::Text), ("job", Kind::Text)];
        let text = |text: &str| Value::Text(Some(text.to_owned()));
        let rows = [
            vec![Value::Whole(Some(7)), text("a.pickle"), text("llama")],
            vec![Value::Whole(None), text("s3://b/c.pickle"), Value::Text(None)],
        ];
        std::fs::write(&parquet, encode("m", &columns, &rows).unwrap()).unwrap();
        let found = read(&csv).unwrap();
        assert_eq!(found, read(&parquet).unwrap());
        assert_eq!(found[0].path, folder.path().join("a.pickle"));
        assert_eq!((found[0].rank, found[0].job.as_deref()), (Some(7), Some("llama")));
        assert_eq!(found[1].path, Path::new("s3://b/c.pickle"));
    }
}
