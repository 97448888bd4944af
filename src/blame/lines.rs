//! Lines that call stacks name, and which of them became which when their file was changed.

use rustc_hash::{FxHashMap, FxHashSet};

/// The lines of a program that its call stacks name: lines and functions by file.
#[derive(Debug, Clone, Default)]
pub struct Lines(FxHashMap<String, FxHashSet<(u64, String)>>);

impl Lines {
    /// The lines with these names, `file:line function`.
    pub fn of<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut files: FxHashMap<String, FxHashSet<(u64, String)>> = FxHashMap::default();
        for (file, line, function) in names.filter_map(line_of) {
            files.entry(file.to_owned()).or_default().insert((line, function.to_owned()));
        }
        Self(files)
    }

    /// Whether a file was changed between the two recordings, which is so if a line of it is one of another function.
    /// Only lambdas and comprehensions share a line with the function around them.
    fn is_changed(&self, after: &Self, file: &str) -> bool {
        let (old, new) = (self.functions(file), after.functions(file));
        old.iter().any(|(line, before)| {
            new.get(line).is_some_and(|after| before.iter().all(|name| !after.contains(name)))
        })
    }

    /// The functions of each line of a file.
    fn functions(&self, file: &str) -> FxHashMap<u64, Vec<&str>> {
        let mut found: FxHashMap<u64, Vec<&str>> = FxHashMap::default();
        let shares = |name: &str| name.starts_with('<') && name != "<module>";
        for (line, name) in self.0.get(file).into_iter().flatten() {
            if !shares(name) {
                found.entry(*line).or_default().push(name);
            }
        }
        found
    }

    /// Whether line `from` of a file that was changed became line `to` of `after`: another line of it moved as far, and
    /// no line behind it stayed where it was.
    pub(super) fn moved(&self, after: &Self, file: &str, from: u64, to: u64) -> bool {
        if !self.is_changed(after, file) {
            return false;
        }
        let (Some(old), Some(new)) = (self.0.get(file), after.0.get(file)) else { return false };
        let at = |line: u64, function: &str, back: bool| {
            let (from, to) = if back { (to, from) } else { (from, to) };
            let line = (line + to).checked_sub(from)?;
            Some((line, function.to_owned()))
        };
        let behind = || old.iter().filter(|(line, _)| *line >= from.min(to));
        let has = |set: &FxHashSet<(u64, String)>, place: Option<(u64, String)>| {
            place.is_some_and(|place| set.contains(&place))
        };
        let moves = |(line, function): &(u64, String)| has(new, at(*line, function, false));
        let came = |(line, function): &(u64, String)| has(old, at(*line, function, true));
        let stays = |place: &&(u64, String)| new.contains(*place) && !(moves(place) && came(place));
        old.iter().filter(|place| moves(place)).count() >= 2 && !behind().any(|place| stays(&place))
    }
}

/// File, line and function of a line's name.
pub(super) fn line_of(name: &str) -> Option<(&str, u64, &str)> {
    let (place, function) = name.split_once(' ')?;
    let (file, line) = place.rsplit_once(':')?;
    Some((file, line.parse().ok()?, function))
}
