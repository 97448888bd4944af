//! Fits the cost model: least squares of the relative error, with no price below zero.
//!
//! ```text
//!   ns │             ·  ╱            calls about as many handles of about the same size are one point, their mean,
//!      │          ·  ╱               which weighs as much as their share in what programs pay: that is a sum.
//!      │        ╱· ╱
//!      │  · ── ·  ╎                  One line, if it does; if not, it is cut in two where that helps most,
//!      └──────────┴───── size        and each half is looked at again.
//! ```
//!
//! Calls that took three times as long as the middle of their point are rare, and too few to show how their time
//! depends on anything: the lines are fitted without them, and raised by what they cost in all. What took ten times
//! as long is a hiccup of the machine, and set aside. Calls that hand out memory may have waited for it to be zeroed,
//! which has a price of its own: of them, all that took twice as long as the middle are set aside.
//!
//! With three prices there are seven sets of prices that are not zero. Each is solved for itself, and the best that has
//! no negative price is taken: small enough to be obvious.

use std::collections::BTreeMap;

use crate::device::{Amount, Line};
use crate::units::MIB;

/// This many calls make a point.
const LEAST: usize = 40;
/// A line that is as good as this is not cut.
const GOOD: f64 = 0.03;
/// A cut is worth it if it takes away this share of the error.
const WORTH: f64 = 0.1;

/// One call that was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// What it was about.
    pub(super) amount: Amount,
    /// Nanoseconds that it took.
    pub(super) ns: f64,
    /// The share of all driver time of its program that this was.
    pub(super) share: f64,
}

/// Calls that were about the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    /// Bytes of each of their handles, as a power of two: this, or up to twice as many.
    pub(super) octave: u32,
    /// Handles that they were about.
    pub(super) handles: f64,
    /// MiB that they were about.
    pub(super) mib: f64,
    /// Nanoseconds that they took.
    pub(super) ns: f64,
    /// Standard error of that mean, relative to it.
    pub(super) uncertain: f64,
    /// Their share in what programs pay.
    pub(super) weight: f64,
}

impl Point {
    /// What the three prices are multiplied by.
    fn factors(&self) -> [f64; 3] {
        [1.0, self.handles, self.mib]
    }
}

/// How long calls may take, in units of the middle of their like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Ordinary ones.
    pub(super) ordinary: f64,
    pub(super) paid: f64,
}

/// The lines of one call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fitted {
    /// By ascending size of a handle.
    pub(super) lines: Vec<Line>,
    /// How much more all calls took than they would have, had the rare long ones been ordinary; 0.1 is a tenth more.
    pub(super) rare: f64,
}

/// Lines through the calls in `first`, and for sizes of which it has too few, through those in `all`.
pub(super) fn lines<'s>(first: &'s [Seen], all: &'s [Seen], bounds: Bounds) -> Fitted {
    let groups = merged(groups(first), groups(all));
    let (mut ordinary_ns, mut beyond_ns) = (0.0, 0.0);
    let mut keep = |group: Vec<&'s Seen>| {
        let (kept, rare) = told_apart(group, bounds);
        let mean = kept.iter().map(|one| one.ns).sum::<f64>() / kept.len() as f64;
        ordinary_ns += mean * (kept.len() + rare.len()) as f64;
        beyond_ns += rare.iter().map(|ns| ns - mean).sum::<f64>();
        kept
    };
    let kept: Vec<_> =
        groups.into_iter().map(|((octave, _), group)| (octave, keep(group))).collect();
    let points: Vec<_> = kept.iter().map(|(octave, group)| mean(*octave, group)).collect();
    let mut lines = pieces(&points);
    // Whatever is larger than all that was seen costs as the largest that was.
    if let Some(last) = lines.last_mut() {
        last.up_to = None;
    }
    let rare = if lines.is_empty() { 0.0 } else { beyond_ns / ordinary_ns };
    lines.iter_mut().for_each(|line| raise(line, 1.0 + rare));
    Fitted { lines, rare }
}

/// Calls about as many handles of about the same size.
type Groups<'s> = BTreeMap<(u32, u32), Vec<&'s Seen>>;

/// Those of `first`, and those of `all` for sizes that it has none of.
fn merged<'s>(first: Groups<'s>, mut all: Groups<'s>) -> Groups<'s> {
    all.retain(|(octave, _), _| first.keys().all(|(other, _)| other != octave));
    all.extend(first);
    all
}

/// Groups by size of a handle and number of handles, both to the power of two below.
fn groups(seen: &[Seen]) -> Groups<'_> {
    let mut groups = Groups::new();
    for one in seen {
        let octave = one.amount.each().max(1).ilog2();
        let handles = u64::BITS - one.amount.handles.leading_zeros();
        groups.entry((octave, handles)).or_default().push(one);
    }
    groups.retain(|_, group| group.len() >= LEAST);
    groups
}

/// The ordinary calls, and the nanoseconds of each of the rare ones.
fn told_apart(group: Vec<&Seen>, bounds: Bounds) -> (Vec<&Seen>, Vec<f64>) {
    let mut times: Vec<_> = group.iter().map(|one| one.ns).collect();
    times.sort_unstable_by(f64::total_cmp);
    let middle = times[times.len() / 2];
    let (kept, rest): (Vec<&Seen>, Vec<&Seen>) =
        group.into_iter().partition(|one| one.ns <= bounds.ordinary * middle);
    let paid = rest.iter().map(|one| one.ns).filter(|&ns| ns <= bounds.paid * middle);
    (kept, paid.collect())
}

fn mean(octave: u32, group: &[&Seen]) -> Point {
    let sum = |get: &dyn Fn(&Seen) -> f64| group.iter().map(|one| get(one)).sum::<f64>();
    let count = group.len() as f64;
    let ns = sum(&|one| one.ns) / count;
    let variance = sum(&|one| (one.ns / ns - 1.0).powi(2)) / (count - 1.0);
    Point {
        octave,
        handles: sum(&|one| one.amount.handles as f64) / count,
        mib: sum(&|one| one.amount.size as f64 / MIB as f64) / count,
        ns,
        uncertain: (variance / count).sqrt(),
        weight: sum(&|one| one.share),
    }
}

/// One line through points in order of their size; or two or more, where one does not do.
fn pieces(points: &[Point]) -> Vec<Line> {
    let whole = fit(points);
    let Some(error) = whole.fit_error else { return Vec::new() };
    let borders = (1..points.len()).filter(|&at| {
        // Where handles vary, they have to on both sides: else their price could not be separated from that of the
        // call.
        let (left, right) = points.split_at(at);
        let is_told = is_varied(left) && is_varied(right) || !is_varied(points);
        points[at - 1].octave != points[at].octave && is_told
    });
    let cuts = borders.map(|at| {
        let (left, right) = points.split_at(at);
        let errors = [left, right].map(|half| square_error(&fit(half), half) * weight(half));
        ((errors.iter().sum::<f64>() / weight(points)).sqrt(), at)
    });
    match cuts.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((after, at)) if error > GOOD && after < (1.0 - WORTH) * error => {
            let (left, right) = points.split_at(at);
            let mut lines = pieces(left);
            if let Some(last) = lines.last_mut() {
                last.up_to = Some((1 << right[0].octave) - 1);
            }
            lines.extend(pieces(right));
            lines
        }
        _ => vec![whole],
    }
}

fn is_varied(points: &[Point]) -> bool {
    points.iter().any(|point| (point.handles - points[0].handles).abs() > 0.5)
}

fn weight(points: &[Point]) -> f64 {
    points.iter().map(|point| point.weight).sum()
}

/// The best prices; all zero if there are no points.
fn fit(points: &[Point]) -> Line {
    let candidates = (1..8_u8).filter_map(|set| {
        let [call, handle, mib] = solve(points, set)?.map(round);
        let line =
            Line { per_call_ns: call, per_handle_ns: handle, per_mib_ns: mib, ..Line::default() };
        Some((error(&line, points), line))
    });
    let best = candidates.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(Line::default(), |(error, line)| Line { fit_error: Some(error), ..line })
}

/// All prices times a factor.
fn raise(line: &mut Line, factor: f64) {
    for price in [&mut line.per_call_ns, &mut line.per_handle_ns, &mut line.per_mib_ns] {
        *price = round(*price * factor);
    }
}

/// How far it is from where the points really are, relative to that: how far they lie from it, and how uncertain
/// they are. Root of the mean square, to four digits; not a number if there are none.
fn error(line: &Line, points: &[Point]) -> f64 {
    (square_error(line, points).sqrt() * 1e4).round() / 1e4
}

/// The mean square of the relative error, by weight.
fn square_error(line: &Line, points: &[Point]) -> f64 {
    let prices = [line.per_call_ns, line.per_handle_ns, line.per_mib_ns];
    let square = |point: &Point| {
        let predicted: f64 = point.factors().iter().zip(prices).map(|(f, price)| f * price).sum();
        point.weight * ((predicted / point.ns - 1.0).powi(2) + point.uncertain.powi(2))
    };
    points.iter().map(square).sum::<f64>() / weight(points)
}

/// A hundredth of a nanosecond is far below what was measured.
fn round(price: f64) -> f64 {
    (price * 100.0).round() / 100.0
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
    let all = weight(points);
    for point in points {
        let factors = point.factors().map(|factor| factor / point.ns);
        let weight = point.weight / all;
        for (row, &i) in rows.iter_mut().zip(&chosen) {
            for (column, &j) in chosen.iter().enumerate() {
                row[column] += weight * factors[i] * factors[j];
            }
            row[size] += weight * factors[i];
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
    use crate::units::{Bytes, KIB};

    fn point(handles: f64, mib: f64, ns: f64) -> Point {
        Point { octave: 0, handles, mib, ns, uncertain: 0.0, weight: ns }
    }

    fn grid(price: impl Fn(f64, f64) -> f64) -> Vec<Point> {
        let sizes = [(1.0, 2.0), (4.0, 8.0), (64.0, 128.0), (1.0, 512.0), (16.0, 2048.0)];
        sizes.map(|(handles, mib)| point(handles, mib, price(handles, mib))).to_vec()
    }

    #[test]
    fn exact_prices_are_found() {
        let cost = fit(&grid(|handles, mib| 500.0 + 18_600.0 * handles + 29.0 * mib));
        assert!((cost.per_call_ns - 500.0).abs() < 1.0, "{cost:?}");
        assert!((cost.per_handle_ns - 18_600.0).abs() < 1.0, "{cost:?}");
        assert!((cost.per_mib_ns - 29.0).abs() < 0.1, "{cost:?}");
        assert_eq!(cost.fit_error, Some(0.0));
    }

    const BOUNDS: Bounds = Bounds { ordinary: 3.0, paid: 10.0 };

    /// Calls of each of five sizes; one of 512 MiB has a hiccup.
    fn seen() -> Vec<Seen> {
        let one =
            |size: Bytes, ns: f64| Seen { amount: Amount { handles: 1, size }, ns, share: 1.0 };
        let each = |turn| {
            let last = if turn == 7 { 8_000_000.0 } else { 90_000.0 };
            let sizes = [512, 128 * KIB, 2 * MIB, 512 * MIB, 1024 * MIB];
            let times = [2000.0 + f64::from(turn), 2000.0, 40_000.0, last, 500_000.0];
            sizes.into_iter().zip(times).map(move |(size, ns)| one(size, ns))
        };
        (0..120).flat_map(each).collect()
    }

    #[test]
    fn lines_are_told_apart_by_size_and_hiccups_are_set_aside() {
        let Fitted { lines, rare } = lines(&seen(), &[], BOUNDS);
        let borders: Vec<_> = lines.iter().map(|line| line.up_to).collect();
        assert_eq!(borders, [Some(2 * MIB - 1), Some(1024 * MIB - 1), None]);
        assert!(lines.iter().all(|line| line.fit_error.is_some_and(|error| error < 0.02)));
        let price = |line: &Line, size| line.of(Amount { handles: 1, size });
        assert!((price(&lines[0], 512) - 2030.0).abs() < 31.0, "{lines:?}");
        assert!((price(&lines[1], 512 * MIB) - 90_000.0).abs() < 1.0, "{lines:?}");
        assert_eq!(rare, 0.0);
    }

    #[test]
    fn where_there_are_no_first_calls_all_are_taken_and_none_give_no_line() {
        assert_eq!(lines(&[], &[], BOUNDS), Fitted::default());
        assert_eq!(lines(&[], &seen(), BOUNDS), lines(&seen(), &[], BOUNDS));
    }

    #[test]
    fn rare_calls_are_paid_by_all() {
        let amount = Amount { handles: 1, size: MIB };
        let one = |turn: u32| {
            let ns = if turn.is_multiple_of(10) { 5000.0 } else { 1000.0 };
            Seen { amount, ns, share: ns }
        };
        let seen: Vec<_> = (0..200).map(one).collect();
        let Fitted { lines: found, rare } = lines(&seen, &[], BOUNDS);
        assert!((rare - 0.4).abs() < 1e-9, "{rare}");
        let sum: f64 = seen.iter().map(|one| one.ns).sum();
        assert!((found[0].of(amount) * 200.0 - sum).abs() < 1.0, "{found:?}");
        let strict = Bounds { ordinary: 2.0, paid: 2.0 };
        assert!((lines(&seen, &[], strict).lines[0].of(amount) - 1000.0).abs() < 0.1);
    }

    #[test]
    fn no_price_is_negative() {
        let cost = fit(&grid(|handles, mib| (1000.0 * handles - 0.1 * mib).max(10.0)));
        assert!(cost.per_call_ns >= 0.0 && cost.per_handle_ns > 0.0 && cost.per_mib_ns >= 0.0);
        assert!(cost.fit_error.unwrap() > 0.0);
    }

    #[test]
    fn a_handle_that_never_varies_is_not_told_from_the_call() {
        let points: Vec<_> =
            [2.0, 20.0, 512.0].map(|mib| point(1.0, mib, 6500.0 + 14.0 * mib)).to_vec();
        let cost = fit(&points);
        assert!((cost.per_call_ns + cost.per_handle_ns - 6500.0).abs() < 1.0, "{cost:?}");
        assert_eq!(fit(&[]), Line::default());
    }
}
