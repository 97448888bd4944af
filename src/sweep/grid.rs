//! The points of a sweep: every combination of what is varied, for each allocator that it concerns.
//!
//! An option of one allocator is no axis of another, so that `gmlake.x` with two values and `caching.y` with three make
//! five points and not six; what all allocators have, device memory, profile and settings, multiplies them all.

use std::collections::BTreeSet;

use super::axis::{self, Kind, refused};
use super::data::{Axis, Setting};
use crate::alloc_conf::TypedConf;
use crate::allocator::{self, Environment, Options, Spec};
use crate::device::Profile;
use crate::input_error::InputError;
use crate::sim::{Choice, ChoiceError, Conf, Memory, Setup, as_set, find};
use crate::units::parse_memory;

/// A larger grid is a slip.
const MOST_POINTS: usize = 1_000_000;

/// One combination.
#[derive(Debug, Clone)]
pub struct Point {
    /// The allocator and its options.
    pub choice: Choice,
    /// What the axes are set to.
    pub settings: Vec<Setting>,
    /// The world that it runs in.
    pub setup: Setup,
}

/// What is varied, and every combination of it.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// The axes, in the order given.
    pub axes: Vec<Axis>,
    /// The points, the last axis varying fastest.
    pub points: Vec<Point>,
}

/// Why a sweep cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// An axis is not understood.
    #[error(transparent)]
    Axis(#[from] InputError),
    /// An allocator is not known, or refuses an option or a value.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
}

impl Grid {
    /// Reads the axes and makes the points, for the allocators named; if none is, for those that have an axis, else for
    /// those that run by default. `base` is the world where no axis changes it.
    ///
    /// # Errors
    /// If an axis, an allocator, an option or a value is not understood, or there are far too many points.
    pub fn new(names: &[String], axes: &[String], base: &Setup) -> Result<Self, GridError> {
        let parsed: Vec<Axis> =
            axes.iter().map(|text| axis::parse(text)).collect::<Result<_, _>>()?;
        for (index, axis) in parsed.iter().enumerate() {
            if parsed[..index].iter().any(|other| other.name == axis.name) {
                return Err(refused(&axes[index], "this is varied already").into());
            }
        }
        let specs = allocators(names, &parsed)?;
        let mut points = Vec::new();
        for spec in specs {
            let choice = Choice { spec, options: Options::default() };
            let start = Point { choice, settings: Vec::new(), setup: base.clone() };
            let own: Vec<&Axis> = parsed.iter().filter(|axis| concerns(axis, spec)).collect();
            let count = own.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.values.len()));
            if points.len() + count > MOST_POINTS {
                let text = axes.join(" --set ");
                return Err(refused(&text, "this makes more than 1,000,000 points").into());
            }
            points.extend(multiply(start, &own, base)?.into_iter().map(Point::following_settings));
        }
        // Settings may make two allocators one.
        let mut seen = BTreeSet::new();
        points.retain(|point| seen.insert(point.text()));
        for point in &points {
            let built = point.choice.spec.build(&point.choice.options, &environment(&point.setup));
            built.map_err(ChoiceError::from)?;
        }
        Ok(Self { axes: parsed, points })
    }
}

impl Grid {
    /// Keeps the points of one share of `count`, from 0: those that lie next to each other.
    pub fn keep_share(&mut self, index: usize, count: usize) {
        let border = |index: usize| index * self.points.len() / count.max(1);
        let (begin, end) = (border(index), border(index + 1));
        self.points = self.points.drain(begin..end).collect();
    }

    /// Whether points differ in the device's memory.
    pub(super) fn has_memory_axis(&self) -> bool {
        let is_it = |axis: &&Axis| matches!(axis::kind(&axis.name), Some(Kind::Memory));
        self.axes.iter().find(is_it).is_some_and(|axis| axis.values.len() > 1)
    }
}

/// PyTorch's settings as the point has them, so that an option is tried in the company that it will have.
fn environment(setup: &Setup) -> Environment {
    let conf = setup.conf.as_ref().map(|conf| conf.meaning().clone()).unwrap_or_default();
    Environment { version: setup.version, ..Environment::new(conf) }
}

fn allocators(names: &[String], axes: &[Axis]) -> Result<Vec<&'static Spec>, GridError> {
    let mut specs: Vec<&'static Spec> = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        let spec = find(name)?;
        if specs.iter().any(|other| other.name == spec.name) {
            return Err(ChoiceError::twice(name).into());
        }
        specs.push(spec);
    }
    let is_given = !specs.is_empty();
    for axis in axes {
        let Some(Kind::Option { allocator, .. }) = axis::kind(&axis.name) else { continue };
        let spec = find(allocator)?;
        if specs.iter().all(|other| other.name != spec.name) {
            if is_given {
                return Err(ChoiceError::not_chosen(&axis.name).into());
            }
            specs.push(spec);
        }
    }
    if specs.is_empty() { Ok(allocator::by_default().collect()) } else { Ok(specs) }
}

fn concerns(axis: &Axis, spec: &Spec) -> bool {
    match axis::kind(&axis.name) {
        Some(Kind::Option { allocator, .. }) => allocator == spec.name,
        _ => true,
    }
}

fn multiply(start: Point, axes: &[&Axis], base: &Setup) -> Result<Vec<Point>, GridError> {
    let mut points = vec![start];
    for axis in axes {
        let mut next = Vec::with_capacity(points.len() * axis.values.len());
        // A profile is a file: read once for each value, not for each point.
        let change = |value: &String| change(axis, value, base);
        let changes: Vec<Change> = axis.values.iter().map(change).collect::<Result<_, _>>()?;
        for point in &points {
            for (value, change) in axis.values.iter().zip(&changes) {
                let mut point = point.clone();
                point.settings.push(Setting { name: axis.name.clone(), value: value.clone() });
                change(&mut point);
                next.push(point);
            }
        }
        points = next;
    }
    Ok(points)
}

/// What a value of an axis does to a point.
type Change = Box<dyn Fn(&mut Point)>;

/// What this value does, in a grid whose world is `base`.
fn change(axis: &Axis, value: &str, base: &Setup) -> Result<Change, InputError> {
    let text = format!("{}={value}", axis.name);
    let memory = |memory| -> Change { Box::new(move |point| point.setup.memory = memory) };
    Ok(match axis::kind(&axis.name) {
        Some(Kind::Option { .. }) if value == "default" => Box::new(|_| ()),
        Some(Kind::Option { option, .. }) => {
            let (option, value) = (option.to_owned(), value.to_owned());
            Box::new(move |point| point.choice.options.set(&option, &value))
        }
        Some(Kind::Memory) if value == "unlimited" => memory(Memory::Unlimited),
        Some(Kind::Memory) => match parse_memory(value).map_err(|error| refused(&text, error))? {
            0 => return Err(refused(&text, "a device without memory serves nothing")),
            bytes => memory(Memory::Bytes(bytes)),
        },
        Some(Kind::Profile) => {
            let profile = Profile::open(value).map_err(|error| refused(&text, error))?;
            Box::new(move |point| point.setup.profile = Some(profile.clone()))
        }
        Some(Kind::Conf) | None => {
            let version = (!base.follows_file).then_some(base.version);
            let conf = TypedConf::new(value, version).map_err(|error| refused(&text, error))?;
            Box::new(move |point| point.setup.conf = Some(Conf::Typed(conf.clone())))
        }
    })
}

impl Point {
    /// All of it that a result depends on, in one line.
    pub fn text(&self) -> String {
        format!("{:?} | {}", self.settings, self.setup.text(&self.choice))
    }

    /// The point with the allocator that PyTorch's settings make of it.
    fn following_settings(mut self) -> Self {
        if let Some(conf) = &self.setup.conf {
            self.choice = as_set(&self.choice, conf);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(axes: &[&str]) -> Grid {
        let axes: Vec<String> = axes.iter().map(|&text| text.to_owned()).collect();
        Grid::new(&[], &axes, &Setup::default()).unwrap()
    }

    #[test]
    fn options_multiply_within_their_allocator_and_the_device_multiplies_all() {
        let axes = [
            "gmlake.fragment_limit=2MiB..16MiB:x2",
            "caching.max_split_size_mb=default,128",
            "device-memory=40GiB,unlimited",
        ];
        let found = grid(&axes);
        assert_eq!(found.points.len(), (4 + 2) * 2);
        let last = found.points.last().unwrap();
        assert_eq!(last.choice.spec.name, "caching");
        assert_eq!(last.choice.options.rows(), ["max_split_size_mb=128"]);
        assert_eq!(last.setup.memory, Memory::Unlimited);
        assert_eq!(grid(&["profile=h200"]).points.len(), allocator::by_default().count());
    }

    #[test]
    fn shares_are_the_whole_grid_in_its_order() {
        let axes = ["gmlake.fragment_limit=2MiB..16MiB:x2", "device-memory=40GiB,unlimited"];
        let whole = grid(&axes);
        let texts = |grid: &Grid| grid.points.iter().map(Point::text).collect::<Vec<_>>();
        for count in [1, 3, 8, 20] {
            let mut found = Vec::new();
            for index in 0..count {
                let mut share = whole.clone();
                share.keep_share(index, count);
                found.extend(texts(&share));
            }
            assert_eq!(found, texts(&whole), "{count}");
        }
    }
}
