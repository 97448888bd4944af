//! Quiet: whether the processes of a job still do anything, or wait for each other.
//!
//! Ranks whose paths differ by a value that was never computed may each wait for what no other will send. Their
//! processes are named in a folder that all share. While none of them uses the processor, and nothing changes in the
//! folder, nothing will come of waiting.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often to look.
const STEP: Duration = Duration::from_secs(1);

/// Processes that only wait use less of a processor than this.
const BUSY: f64 = 0.03;

/// Where processes are named.
const PREFIX: &str = "process.";

/// Names this process in a folder.
pub fn join(folder: &Path) {
    // Where it cannot be written, sending will fail and say so.
    let _ = fs::write(folder.join(format!("{PREFIX}{}", std::process::id())), []);
}

/// What was seen of a job, and since when nothing has happened in it.
#[derive(Debug)]
pub struct Quiet {
    folder: PathBuf,
    looked: Instant,
    since: Instant,
    changed: Option<SystemTime>,
    used: Duration,
}

impl Quiet {
    /// Begins to watch the processes that are named in a folder.
    pub fn watch(folder: &Path) -> Self {
        let now = Instant::now();
        let (changed, used) = (modified(folder), used(folder));
        Self { folder: folder.to_owned(), looked: now, since: now, changed, used }
    }

    /// For how long no process of the job has done anything.
    pub fn lasts(&mut self) -> Duration {
        let now = Instant::now();
        if now - self.looked < STEP {
            return self.looked - self.since;
        }
        let (changed, used) = (modified(&self.folder), used(&self.folder));
        let share = used.saturating_sub(self.used).as_secs_f64() / (now - self.since).as_secs_f64();
        // Ticks are coarse: a tenth of a second means nothing.
        let is_busy = share > BUSY && used > self.used + Duration::from_millis(100);
        if changed != self.changed || is_busy {
            (self.since, self.changed, self.used) = (now, changed, used);
        }
        self.looked = now;
        now - self.since
    }
}

fn modified(folder: &Path) -> Option<SystemTime> {
    fs::metadata(folder).ok()?.modified().ok()
}

/// Time on a processor of all processes that are named here.
fn used(folder: &Path) -> Duration {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned));
    ids.filter_map(|id| used_by(&id)).sum()
}

/// Time on a processor of one process; the system counts it in hundredths of a second.
fn used_by(id: &str) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may have blanks; user and system time are the 12th and 13th field behind it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_or_a_file_that_comes_ends_the_quiet() {
        let folder = tempfile::tempdir().unwrap();
        join(folder.path());
        let mut quiet = Quiet::watch(folder.path());
        let start = Instant::now();
        // Beside other work this takes longer than the processor time that is asked for.
        while used(folder.path()) <= STEP / 2 || start.elapsed() < STEP + STEP / 4 {
            assert!(start.elapsed() < 40 * STEP, "this process gets no processor time");
        }
        assert!(quiet.lasts() < STEP, "this process worked");
        assert!(used(folder.path()) > STEP / 2);

        let other = tempfile::tempdir().unwrap();
        let mut quiet = Quiet::watch(other.path());
        std::thread::sleep(STEP + STEP / 4);
        assert!(quiet.lasts() > STEP, "no process is named there");
        fs::write(other.path().join("parcel"), []).unwrap();
        std::thread::sleep(STEP + STEP / 4);
        assert!(quiet.lasts() < STEP);
    }
}
