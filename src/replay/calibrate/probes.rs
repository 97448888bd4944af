//! Probes: the rules that the simulated device and the allocators rely on, tried on the driver.

use serde::Serialize;

use crate::cuda::Gpu;
use crate::cuda::driver::{self, DriverError, Ordinal, PhysicalHandle};
use crate::device::GRANULE;
use crate::units::Bytes;

/// A question to the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// What was tried.
    pub question: &'static str,
    /// What the driver said, or what was seen.
    pub answer: String,
    /// Whether our model of the device says the same.
    pub as_expected: bool,
}

const G: Bytes = GRANULE;

/// Two granules of addresses, with handles of one and of two granules.
struct Ground {
    ordinal: Ordinal,
    at: u64,
    size: Bytes,
    one: PhysicalHandle,
    two: PhysicalHandle,
}

/// Asks everything.
pub(super) fn run(gpu: &Gpu) -> Result<Vec<Probe>, DriverError> {
    let ordinal = gpu.ordinal();
    let size = 4 * G;
    let at = driver::address_reserve(size)?;
    let one = driver::create(ordinal, G)?;
    let two = driver::create(ordinal, 2 * G)?;
    let ground = Ground { ordinal, at, size, one, two };
    let mut probes = Vec::new();
    let found = ground.ask(&mut probes);
    if found.is_err() {
        // Something may still be mapped, and would keep the reservation.
        let _ = driver::unmap(at, size);
    }
    let given_back = [driver::release(one), driver::release(two), driver::address_free(at, size)];
    found?;
    given_back.into_iter().collect::<Result<(), _>>()?;
    probes.push(lifetime(ordinal)?);
    Ok(probes)
}

fn push(probes: &mut Vec<Probe>, question: &'static str, expected: bool, said: &Answer) {
    let answer = match said {
        Ok(()) => "accepted".to_owned(),
        Err(error) => error.name.clone(),
    };
    probes.push(Probe { question, answer, as_expected: said.is_ok() == expected });
}

type Answer = Result<(), DriverError>;

impl Ground {
    fn ask(&self, probes: &mut Vec<Probe>) -> Answer {
        let &Self { ordinal, at, one, two, .. } = self;
        let half = driver::map(at, G, 0, two);
        push(probes, "map the first half of a handle", false, &half);
        if half.is_ok() {
            driver::unmap(at, G)?;
        }
        driver::map(at, 2 * G, 0, two)?;
        push(
            probes,
            "set access to half of a mapping",
            false,
            &driver::set_access(&[ordinal], at, G),
        );
        push(probes, "map over a mapping", false, &driver::map(at, 2 * G, 0, two));
        let half = driver::unmap(at, G);
        push(probes, "unmap half of a mapping", false, &half);
        if half.is_ok() {
            driver::map(at, 2 * G, 0, two)?;
        }
        self.ask_holes(probes)?;
        driver::map(at + 2 * G, G, 0, one)?;
        push(probes, "map a handle at a second address", true, &driver::map(at + 3 * G, G, 0, one));
        let whole = driver::set_access(&[ordinal], at, self.size);
        push(probes, "set access over several mappings at once", true, &whole);
        probes.push(self.alias()?);
        let unmapped = driver::unmap(at, self.size);
        push(probes, "unmap several mappings at once", true, &unmapped);
        let half = driver::address_free(at, G);
        push(probes, "free half of a reservation", false, &half);
        half.or(Ok(()))
    }

    /// Leaves the double handle mapped at the beginning.
    fn ask_holes(&self, probes: &mut Vec<Probe>) -> Answer {
        let &Self { ordinal, at, one, two, size } = self;
        driver::map(at + 3 * G, G, 0, one)?;
        let across = driver::set_access(&[ordinal], at, size);
        push(probes, "set access over a hole", true, &across);
        let across = driver::unmap(at, size);
        push(probes, "unmap over a hole", true, &across);
        if across.is_err() {
            driver::unmap(at, 2 * G)?;
            driver::unmap(at + 3 * G, G)?;
        }
        driver::map(at, 2 * G, 0, two)
    }

    /// Writes through one address of a handle, and reads through the other.
    fn alias(&self) -> Result<Probe, DriverError> {
        driver::fill(self.at + 2 * G, 0xCAFE_F00D, 1, 1, 0)?;
        let mut word = [0; 4];
        driver::read(self.at + 3 * G, &mut word)?;
        let is_same = u32::from_le_bytes(word) == 0xCAFE_F00D;
        let answer = if is_same { "the same memory" } else { "other memory" }.to_owned();
        let question = "write through one address of a handle, read through the other";
        Ok(Probe { question, answer, as_expected: is_same })
    }
}

/// Whether memory stays while a released handle is mapped, and goes with its last mapping.
fn lifetime(ordinal: Ordinal) -> Result<Probe, DriverError> {
    let size = 16 * G;
    let free = || driver::memory_info().map(|(free, _)| free);
    let before = free()?;
    let at = driver::address_reserve(size)?;
    let handle = driver::create(ordinal, size)?;
    let mapped = driver::map(at, size, 0, handle);
    driver::release(handle)?;
    mapped?;
    let held = before.saturating_sub(free()?);
    driver::unmap(at, size)?;
    driver::address_free(at, size)?;
    let left = before.saturating_sub(free()?);
    let answer = format!("{held} bytes held while mapped, {left} after");
    let question = "release a mapped handle of 32 MiB, then unmap it";
    Ok(Probe { question, answer, as_expected: held == size && left == 0 })
}
