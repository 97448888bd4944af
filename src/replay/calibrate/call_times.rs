//! Call times, as CSV: written by a calibration, and read to fit prices again, anywhere.
//!
//! ```text
//!   program,allocator,call,handles,bytes,ns,probe_ns
//!   training,lake,create,1,33554432,10312,284100
//! ```
//!
//! `probe_ns` is what the fixed work took about then: how quick the machine was.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::programs::Observed;
use crate::device::{Amount, Call, Observation};
use crate::input_error::InputError;
use crate::reader_error;
use crate::units::Bytes;

/// One call.
#[derive(Serialize, Deserialize)]
struct Row<'r> {
    program: &'r str,
    allocator: &'r str,
    call: &'r str,
    handles: u64,
    bytes: Bytes,
    ns: u64,
    probe_ns: u64,
}

/// Writes one row for each call.
///
/// # Errors
/// If it cannot be written.
pub fn write(programs: &[Observed], out: &mut dyn Write) -> Result<(), csv::Error> {
    let mut table = csv::Writer::from_writer(out);
    for Observed { program, allocator, calls, probe_ns } in programs {
        for (&Observation { call, amount, ns }, probe) in calls.iter().zip(probe_ns) {
            let Amount { handles, size: bytes } = amount;
            let (call, probe_ns) = (call.name(), probe.round() as u64);
            table.serialize(Row { program, allocator, call, handles, bytes, ns, probe_ns })?;
        }
    }
    Ok(table.flush()?)
}

/// Reads what was written: rows that follow each other with the same program and allocator are one run.
///
/// # Errors
/// With the row that is wrong.
pub fn read(input: impl Read) -> Result<Vec<Observed>, InputError> {
    let wrong = |error: csv::Error| {
        let hint = "times are written by `gmlake-replay calibrate --call-times FILE`";
        InputError(format!("{}; {hint}", reader_error::table(&error)))
    };
    let mut table = csv::Reader::from_reader(input);
    let head = table.headers().map_err(wrong)?.clone();
    let mut programs: Vec<Observed> = Vec::new();
    for (row, record) in (1..).zip(table.into_records()) {
        let record = record.map_err(wrong)?;
        let one: Row<'_> = record.deserialize(Some(&head)).map_err(wrong)?;
        let call = Call::ALL.into_iter().find(|call| call.name() == one.call);
        let unknown = || InputError(format!("row {row}: there is no call {:?}", one.call));
        let call = call.ok_or_else(unknown)?;
        if one.probe_ns == 0 {
            return Err(InputError(format!("row {row}: probe_ns is 0")));
        }
        let amount = Amount { handles: one.handles, size: one.bytes };
        let run = run_of(&mut programs, one.program, one.allocator);
        run.calls.push(Observation { call, amount, ns: one.ns });
        run.probe_ns.push(one.probe_ns as f64);
    }
    Ok(programs)
}

/// The last run, if it is this one; else a new one.
fn run_of<'p>(programs: &'p mut Vec<Observed>, program: &str, allocator: &str) -> &'p mut Observed {
    let is_same = |last: &Observed| last.program == program && last.allocator == allocator;
    if !programs.last().is_some_and(is_same) {
        let (program, allocator) = (program.to_owned(), allocator.to_owned());
        programs.push(Observed { program, allocator, calls: Vec::new(), probe_ns: Vec::new() });
    }
    programs.last_mut().expect("one was pushed, if there was none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(allocator: &str, ns: u64) -> Observed {
        let amount = Amount { handles: 3, size: 96 << 20 };
        Observed {
            program: "training".to_owned(),
            allocator: allocator.to_owned(),
            calls: vec![Observation { call: Call::Map, amount, ns }; 3],
            probe_ns: vec![284_100.0; 3],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let programs = [run("lake", 10), run("gmlake", 20), run("lake", 30)];
        let mut text = Vec::new();
        write(&programs, &mut text).unwrap();
        assert_eq!(read(text.as_slice()).unwrap(), programs);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_row() {
        let head = "program,allocator,call,handles,bytes,ns,probe_ns\n";
        let error = |rows: &str| read(format!("{head}{rows}").as_bytes()).unwrap_err().to_string();
        assert_eq!(error("a,b,map,1,2,3,4\na,b,fly,1,2,3,4\n"), "row 2: there is no call \"fly\"");
        assert_eq!(error("a,b,map,1,2,3,0\n"), "row 1: probe_ns is 0");
        assert!(error("a,b,map,1,x,3,4\n").contains("calibrate --call-times"));
        let missing = read("call,ns\nmap,3\n".as_bytes()).unwrap_err().to_string();
        assert!(missing.contains("is missing"), "{missing}");
    }
}
