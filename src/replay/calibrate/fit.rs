//! Fits the cost model: least squares of the relative error, with no price below zero.
//!
//! Calls that were about the same are put together, and their mean is one point: what a program pays is the sum, so
//! the middle is no substitute for the mean, but the few calls that took ten times as long as the middle are set aside.
//! Calls that hand out memory may have waited for it to be zeroed, which has a price of its own: of them, those that
//! took twice as long as the middle are set aside.
//! With three prices there are seven sets of prices that are not zero. Each is solved for itself, and the best that has
//! no negative price is taken: small enough to be obvious.

use std::collections::BTreeMap;

use crate::device::{Call, Line, Observation};
use crate::units::{Bytes, KIB, MIB};

/// Where one line ends and the next begins: allocations below 2 MiB share pages, and beyond about 48 MiB the driver
/// takes other ways; the other borders let lines follow a bend.
const BORDERS: [Option<Bytes>; 8] = [
    Some(4 * KIB),
    Some(64 * KIB),
    Some(512 * KIB),
    Some(2 * MIB - 1),
    Some(12 * MIB),
    Some(48 * MIB),
    Some(512 * MIB),
    None,
];
/// So many calls make a point.
const LEAST: usize = 20;

/// Calls that took so many times the middle are set aside.
fn outlier(call: Call) -> u64 {
    if matches!(call, Call::MemAlloc | Call::Create) { 2 } else { 10 }
}

/// One measurement of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    /// Handles that it was about.
    pub(super) handles: f64,
    /// MiB that it was about.
    pub(super) mib: f64,
    /// Nanoseconds that it took.
    pub(super) ns: f64,
}

impl Point {
    /// What the three prices are multiplied by.
    fn factors(&self) -> [f64; 3] {
        [1.0, self.handles, self.mib]
    }
}

/// The lines of one call, one between each two borders that has calls: those of `first`, and where there are too few,
/// those of `all`. The error of each is told by calls that it has not seen: a line through the even ones, held against
/// the odd ones.
pub(super) fn lines(call: Call, first: &[Observation], all: &[Observation]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut least = 0;
    for border in BORDERS {
        let range = least..=border.unwrap_or(Bytes::MAX);
        let is_meant = |one: &&Observation| {
            one.call == call && one.ns > 0 && range.contains(&one.amount.each())
        };
        let within = |seen: &[Observation]| -> Vec<Observation> {
            seen.iter().filter(is_meant).copied().collect()
        };
        let mut inside = within(first);
        if points(&inside).is_empty() {
            inside = within(all);
        }
        let all = points(&inside);
        if all.is_empty() {
            continue;
        }
        let half = |first| inside.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
        let (even, odd) = (points(&half(0)), points(&half(1)));
        let fit_error = Some(fit(&even).error(&odd)).filter(|error| error.is_finite());
        let line = fit(&all);
        lines.push(Line { up_to: border, fit_error: fit_error.or(line.fit_error), ..line });
        least = border.map_or(0, |size| size + 1);
    }
    // Whatever is larger than all that was seen costs as the largest that was.
    if let Some(last) = lines.last_mut() {
        last.up_to = None;
    }
    lines
}

/// The mean of all calls about as many handles and as many bytes, to the nearest power of two.
fn points(seen: &[Observation]) -> Vec<Point> {
    let mut groups: BTreeMap<(u32, u32), Vec<&Observation>> = BTreeMap::new();
    for one in seen {
        let amount = one.amount;
        let key =
            (u64::BITS - amount.handles.leading_zeros(), (amount.size * 3 / 2).max(1).ilog2());
        groups.entry(key).or_default().push(one);
    }
    groups.into_values().filter(|group| group.len() >= LEAST).map(mean).collect()
}

fn mean(mut group: Vec<&Observation>) -> Point {
    group.sort_unstable_by_key(|one| one.ns);
    let Observation { call, ns: middle, .. } = group[group.len() / 2];
    let most = middle * outlier(*call);
    group.retain(|one| one.ns <= most);
    let of = |get: &dyn Fn(&Observation) -> f64| {
        group.iter().map(|one| get(one)).sum::<f64>() / group.len() as f64
    };
    Point {
        handles: of(&|one| one.amount.handles as f64),
        mib: of(&|one| one.amount.size as f64 / MIB as f64),
        ns: of(&|one| one.ns as f64),
    }
}

/// The best prices; all zero if there are no points.
pub(super) fn fit(points: &[Point]) -> Line {
    let points: Vec<_> = points.iter().filter(|point| point.ns > 0.0).copied().collect();
    let candidates = (1..8_u8).filter_map(|set| {
        let prices = solve(&points, set)?;
        Some((error(&points, prices), prices))
    });
    match candidates.min_by(|a, b| a.0.total_cmp(&b.0)) {
        None => Line::default(),
        Some((error, [call, handle, mib])) => Line {
            up_to: None,
            per_call_ns: round(call),
            per_handle_ns: round(handle),
            per_mib_ns: round(mib),
            fit_error: Some((error * 1e4).round() / 1e4),
        },
    }
}

impl Line {
    /// How far points lie from it, relative to them; not a number if there are none.
    fn error(&self, points: &[Point]) -> f64 {
        let error = error(points, [self.per_call_ns, self.per_handle_ns, self.per_mib_ns]);
        (error * 1e4).round() / 1e4
    }
}

/// A hundredth of a nanosecond is far below what was measured.
fn round(price: f64) -> f64 {
    (price * 100.0).round() / 100.0
}

/// Root of the mean square of the relative error.
fn error(points: &[Point], prices: [f64; 3]) -> f64 {
    let square = |point: &Point| {
        let predicted: f64 = point.factors().iter().zip(prices).map(|(f, price)| f * price).sum();
        (predicted / point.ns - 1.0).powi(2)
    };
    (points.iter().map(square).sum::<f64>() / points.len() as f64).sqrt()
}

/// The prices in `set` (a bit for each) with the least error; `None` if they are not determined, or one is negative.
fn solve(points: &[Point], set: u8) -> Option<[f64; 3]> {
    let chosen: Vec<usize> = (0..3).filter(|bit| set >> bit & 1 == 1).collect();
    let size = chosen.len();
    if points.len() < size {
        return None;
    }
    // Normal equations of the points, each divided by what was measured; the last column is the right side.
    let mut rows = vec![[0.0; 4]; size];
    for point in points {
        let factors = point.factors().map(|factor| factor / point.ns);
        for (row, &i) in rows.iter_mut().zip(&chosen) {
            for (column, &j) in chosen.iter().enumerate() {
                row[column] += factors[i] * factors[j];
            }
            row[size] += factors[i];
        }
    }
    eliminate(&mut rows)?;
    let mut prices = [0.0; 3];
    for (row, &bit) in rows.iter().zip(&chosen) {
        prices[bit] = row[size];
    }
    prices.iter().all(|price| *price >= 0.0).then_some(prices)
}

/// Gauss and Jordan; `None` if the rows depend on each other.
fn eliminate(rows: &mut [[f64; 4]]) -> Option<()> {
    let size = rows.len();
    for pivot in 0..size {
        let scale = rows[pivot][pivot].abs();
        let best =
            (pivot..size).max_by(|&a, &b| rows[a][pivot].abs().total_cmp(&rows[b][pivot].abs()))?;
        rows.swap(pivot, best);
        if rows[pivot][pivot].abs() <= 1e-9 * scale || rows[pivot][pivot] == 0.0 {
            return None;
        }
        let source = rows[pivot].map(|value| value / rows[pivot][pivot]);
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = if index == pivot { 0.0 } else { row[pivot] };
            let old = if index == pivot { source } else { *row };
            *row = std::array::from_fn(|column| old[column] - factor * source[column]);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Amount;

    fn grid(price: impl Fn(f64, f64) -> f64) -> Vec<Point> {
        let sizes = [(1.0, 2.0), (4.0, 8.0), (64.0, 128.0), (1.0, 512.0), (16.0, 2048.0)];
        sizes.map(|(handles, mib)| Point { handles, mib, ns: price(handles, mib) }).to_vec()
    }

    #[test]
    fn exact_prices_are_found() {
        let cost = fit(&grid(|handles, mib| 500.0 + 18_600.0 * handles + 29.0 * mib));
        assert!((cost.per_call_ns - 500.0).abs() < 1.0, "{cost:?}");
        assert!((cost.per_handle_ns - 18_600.0).abs() < 1.0, "{cost:?}");
        assert!((cost.per_mib_ns - 29.0).abs() < 0.1, "{cost:?}");
        assert_eq!(cost.fit_error, Some(0.0));
    }

    #[test]
    fn lines_are_told_apart_by_size_and_outliers_are_set_aside() {
        let one = |size: Bytes, ns| Observation {
            call: Call::MemAlloc,
            amount: Amount { handles: 1, size },
            ns,
        };
        let mut seen = Vec::new();
        for turn in 0..60 {
            seen.push(one(512, 2000 + turn));
            seen.push(one(2 * MIB, 40_000));
            seen.push(one(512 * MIB, if turn == 7 { 8_000_000 } else { 90_000 }));
        }
        let lines = lines(Call::MemAlloc, &seen, &[]);
        let borders: Vec<_> = lines.iter().map(|line| line.up_to).collect();
        assert_eq!(borders, [Some(4 * KIB), Some(12 * MIB), None]);
        assert!(lines.iter().all(|line| line.fit_error.is_some_and(|error| error < 0.01)));
        let price = |line: &Line, size| line.of(Amount { handles: 1, size });
        assert!((price(&lines[0], 512) - 2029.5).abs() < 1.0, "{lines:?}");
        assert!((price(&lines[2], 512 * MIB) - 90_000.0).abs() < 1.0, "{lines:?}");
        assert!(super::lines(Call::Map, &seen, &seen).is_empty());
        assert_eq!(super::lines(Call::MemAlloc, &[], &seen), lines, "where there are none, all");
    }

    #[test]
    fn no_price_is_negative() {
        let cost = fit(&grid(|handles, mib| (1000.0 * handles - 0.1 * mib).max(10.0)));
        assert!(cost.per_call_ns >= 0.0 && cost.per_handle_ns > 0.0 && cost.per_mib_ns >= 0.0);
        assert!(cost.fit_error.unwrap() > 0.0);
    }

    #[test]
    fn a_handle_that_never_varies_is_not_told_from_the_call() {
        let points: Vec<_> = [2.0, 20.0, 512.0]
            .map(|mib| Point { handles: 1.0, mib, ns: 6500.0 + 14.0 * mib })
            .to_vec();
        let cost = fit(&points);
        assert!((cost.per_call_ns + cost.per_handle_ns - 6500.0).abs() < 1.0, "{cost:?}");
        assert_eq!(fit(&[]), Line::default());
    }
}
