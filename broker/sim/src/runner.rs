//! Runs many seeds on several threads, each seed in one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::executor::lock;
use crate::simulation::{Failure, Plan, Report, run};

/// How one seed went.
pub type Outcome = Result<Report, Box<Failure>>;

/// How many threads there should be.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the plans on so many threads until `each`, which is told of every outcome as it comes, says that it is enough.
pub fn run_all(
    plans: impl Iterator<Item = Plan> + Send,
    threads: usize,
    each: impl FnMut(Outcome) -> Going + Send,
) {
    let (plans, each) = (Mutex::new(plans), Mutex::new(each));
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let Some(plan) = lock(&plans).next() else {
                        return;
                    };
                    let outcome = run(plan);
                    if lock(&each)(outcome) == Going::Enough {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// With the next plan.
    On,
    /// No more plans.
    Enough,
}
