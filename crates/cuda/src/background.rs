//! Work for the GPU's queue, so that calls that wait for it are seen to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::driver::{self, DriverError, Stream};
use super::gpu::Gpu;
use gmlake_core::units::{Bytes, GIB, MIB};

/// The driver takes about a thousand launches before it makes the host wait.
const MOST_QUEUED: u32 = 600;

/// How long the load may sleep, since what it knows of the queue is an estimate.
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// A stream, and memory to keep it busy with.
#[derive(Debug)]
pub struct Queue {
    gpu: Gpu,
    stream: Stream,
    buffer: u64,
    size: Bytes,
    each: Duration,
    busy_until: Instant,
}

impl Queue {
    /// Finds out how long one piece of work takes. Takes 1 GiB of a large GPU, 32 MiB of a small one.
    pub fn new(gpu: &Gpu) -> Result<Self, DriverError> {
        let size = if gpu.memory()?.free > 16 * GIB { GIB } else { 32 * MIB };
        let buffer = driver::mem_alloc(size)?;
        let stream = driver::stream_create()?;
        let (each, busy_until) = (Duration::ZERO, Instant::now());
        let mut queue = Self { gpu: gpu.clone(), stream, buffer, size, each, busy_until };
        queue.push(20)?;
        driver::stream_synchronize(stream)?;
        let start = Instant::now();
        queue.push(50)?;
        driver::stream_synchronize(stream)?;
        queue.each = (start.elapsed() / 50).max(Duration::from_nanos(500));
        Ok(queue)
    }

    /// Fills the queue so that the GPU is busy for at least about `span` from now, or for as long as the queue can
    /// hold. Returns how long that is.
    pub fn fill(&mut self, span: Duration) -> Result<Duration, DriverError> {
        let now = Instant::now();
        if !driver::stream_is_busy(self.stream)? {
            self.busy_until = now;
        }
        let left = self.busy_until.saturating_duration_since(now);
        if left < span {
            let wanted = (2 * span).saturating_sub(left);
            let count = (wanted.as_nanos() / self.each.as_nanos()).clamp(1, MOST_QUEUED.into());
            self.push(count as u32)?;
            self.busy_until = now + left + self.each * count as u32;
        }
        Ok(self.busy_until.saturating_duration_since(now))
    }

    /// Whether the GPU is at it.
    pub fn is_busy(&self) -> Result<bool, DriverError> {
        driver::stream_is_busy(self.stream)
    }

    /// Waits until the queue is empty.
    pub fn drain(&mut self) -> Result<(), DriverError> {
        driver::stream_synchronize(self.stream)
    }

    fn push(&self, count: u32) -> Result<(), DriverError> {
        (0..count).try_for_each(|i| driver::fill_on(self.stream, self.buffer, i as u8, self.size))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Failures have no one to hear them; the context's end gives everything back.
        let _ = self.gpu.bind();
        let _ = driver::stream_synchronize(self.stream);
        let _ = driver::stream_destroy(self.stream);
        let _ = driver::mem_free(self.buffer);
    }
}

/// A thread that keeps the GPU's queue filled until it is dropped.
#[derive(Debug)]
pub struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Keeps at least `span` of work queued.
    pub fn start(gpu: &Gpu, span: Duration) -> Result<Self, DriverError> {
        let mut queue = Queue::new(gpu)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let gpu = gpu.clone();
        let work = move || {
            // Load that fails is load that is missing: the replay itself meets the same error and reports it.
            let mut go_on = gpu.bind().is_ok();
            while go_on && !stopped.load(Ordering::Relaxed) {
                let queued = queue.fill(span);
                go_on = queued.is_ok();
                thread::sleep((queued.unwrap_or_default() / 3).min(LONGEST_NAP));
            }
        };
        Ok(Self { stop, thread: Some(thread::spawn(work)) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
