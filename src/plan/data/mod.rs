//! Plans as data.

mod fit;
mod plan;
mod series;

pub use fit::{FitVerdict, JobFit, RankFit};
pub use plan::{JobPlan, Need, Plan, Shortage, Trial, Verdict};
pub use series::{Limit, Series};
