//! Call times, as CSV: one row for each call.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use gmlake::device::{Amount, Observation};

/// The file, with its head.
pub(crate) fn create(path: Option<&Path>) -> Result<Option<File>> {
    let open = |path: &Path| -> Result<File> {
        let cannot = || format!("cannot write {}", path.display());
        let mut file = File::create(path).with_context(cannot)?;
        writeln!(file, "file,allocator,call,handles,bytes,ns").with_context(cannot)?;
        Ok(file)
    };
    path.map(open).transpose()
}

/// The calls of one allocator in one trace.
pub(crate) fn write(
    out: &mut dyn Write,
    trace: &str,
    allocator: &str,
    calls: &[Observation],
) -> Result<()> {
    let mut out = BufWriter::new(out);
    for Observation { call, amount, ns } in calls {
        let (call, Amount { handles, size }) = (call.name(), amount);
        writeln!(out, "{trace},{allocator},{call},{handles},{size},{ns}")?;
    }
    out.flush()?;
    Ok(())
}
