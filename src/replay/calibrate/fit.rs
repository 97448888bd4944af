//! Fits the cost model: least squares of the relative error, with no price below zero.
//!
//! With three prices there are seven sets of prices that are not zero. Each is solved for itself, and the best that
//! has no negative price is taken: small enough to be obvious.

use crate::device::CallCost;

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

/// The best prices; all zero if there are no points.
pub(super) fn fit(points: &[Point]) -> CallCost {
    let points: Vec<_> = points.iter().filter(|point| point.ns > 0.0).copied().collect();
    let candidates = (1..8_u8).filter_map(|set| {
        let prices = solve(&points, set)?;
        Some((error(&points, prices), prices))
    });
    match candidates.min_by(|a, b| a.0.total_cmp(&b.0)) {
        None => CallCost::default(),
        Some((error, [call, handle, mib])) => CallCost {
            per_call_ns: round(call),
            per_handle_ns: round(handle),
            per_mib_ns: round(mib),
            fit_error: Some((error * 1e4).round() / 1e4),
        },
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
        assert_eq!(fit(&[]), CallCost::default());
    }
}
