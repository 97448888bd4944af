//! Standard output. Whoever reads it may have had enough: what comes after is dropped, while files are still written
//! and the exit code is what it would have been.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Standard output, for one writer at a time.
pub struct Stdout(StdoutLock<'static>);

/// Standard output, from now on only for whoever called.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        forgiven(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        forgiven(self.0.flush(), ())
    }
}

fn forgiven<T>(result: io::Result<T>, done: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(done),
        other => other,
    }
}
