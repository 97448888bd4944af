//! Standard output and other pipes. Whoever reads them may have had enough: what comes after is dropped, while files
//! are still written and the exit code is what it would have been.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// A writer whose reader may go at any time.
pub struct Pipe<W: Write>(pub(super) W);

/// Standard output, from now on only for whoever called.
pub fn stdout() -> Pipe<StdoutLock<'static>> {
    Pipe(io::stdout().lock())
}

impl<W: Write> Write for Pipe<W> {
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
