//! Tables of what was measured: bytes of each line, for the card and the version of the library that are virtual here.

use std::path::Path;

use gmlake_core::reader_error;
use gmlake_core::units::Bytes;
use rustc_hash::FxHashMap;
use serde::Deserialize;

/// Versions of what a program was built for, by which lines are kept or ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// Of cuDNN, such as `91_900`. Its patch level does not count.
    pub cudnn: i32,
    /// Of CUDA, such as 13000: cuFFT, cuSOLVER and cuSPARSE belong to it.
    pub cuda: i32,
}

/// What was measured on the card that is virtual here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workspaces {
    bytes: FxHashMap<String, Bytes>,
    /// Lines of the tables that are of another card or of another version of a library.
    pub of_others: usize,
}

/// A row of a table.
#[derive(Deserialize)]
struct Row {
    card: String,
    library: String,
    version: i32,
    kind: String,
    arguments: String,
    bytes: Bytes,
}

impl Row {
    fn is_of(&self, card: &str, versions: Versions) -> bool {
        let is_version = match self.library.as_str() {
            "cudnn" => self.version / 100 == versions.cudnn / 100,
            "cuda" => self.version == versions.cuda,
            _ => false,
        };
        is_version && self.card == card
    }
}

impl Workspaces {
    /// Reads tables; of the same line, the last one counts. `card` is the name that the driver reports.
    ///
    /// # Errors
    /// A sentence about a file that cannot be read, or is no such table.
    pub fn read<'a>(
        tables: impl IntoIterator<Item = &'a Path>,
        card: &str,
        versions: Versions,
    ) -> Result<Self, String> {
        let mut all = Self::default();
        for path in tables {
            let wrong = |error| format!("{}: {}", path.display(), reader_error::table(&error));
            let mut reader = csv::Reader::from_path(path).map_err(wrong)?;
            for row in reader.deserialize::<Row>() {
                let row = row.map_err(wrong)?;
                if row.is_of(card, versions) {
                    all.bytes.insert(format!("{},{}", row.kind, row.arguments), row.bytes);
                } else {
                    all.of_others += 1;
                }
            }
        }
        Ok(all)
    }

    /// Bytes for a line, if it was measured.
    pub fn get(&self, line: &str) -> Option<Bytes> {
        self.bytes.get(line).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = "NVIDIA H100 80GB HBM3";
    const VERSIONS: Versions = Versions { cudnn: 91_900, cuda: 13_000 };

    fn table(rows: &str) -> Result<Workspaces, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let head = "card,library,version,kind,arguments,bytes\n";
        std::fs::write(file.path(), head.to_owned() + rows).unwrap();
        Workspaces::read([file.path()], CARD, VERSIONS)
    }

    #[test]
    fn a_measured_line_is_found_for_its_card_and_its_version_alone() {
        let line = "recurrent,cell=2 layers=3";
        let found = |card: &str, library: &str| {
            table(&format!("{card},{library},{line},4096\n")).unwrap().get(line)
        };
        let these = ["cudnn,91900", "cudnn,91902", "cuda,13000"].map(|it| found(CARD, it));
        assert_eq!(these, [Some(4096); 3]);
        let others = ["cudnn,92000", "cuda,12900", "cuda,91900", "cublas,13000"];
        assert_eq!(others.map(|it| found(CARD, it)), [None; 4]);
        assert_eq!(found("NVIDIA A100", "cudnn,91900"), None);
    }

    #[test]
    fn lines_of_other_cards_are_counted_and_the_last_of_the_same_counts() {
        let of = |card: &str, bytes: u64| format!("{card},cuda,13000,fourier,batch=3,{bytes}\n");
        let all = [of(CARD, 1), of("other", 5), of(CARD, 2)].concat();
        let found = table(&all).unwrap();
        assert_eq!((found.get("fourier,batch=3"), found.of_others), (Some(2), 1));
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        let error = table("x,91900\n").unwrap_err();
        assert!(error.contains("line 2") && error.contains("columns"), "{error}");
        let error = Workspaces::read([Path::new("/no/such/table")], CARD, VERSIONS).unwrap_err();
        assert!(error.starts_with("/no/such/table: "), "{error}");
    }
}
