//! Makes a failing plan smaller: fewer steps, then fewer kinds of fault, as long as the same thing is wrong.

use crate::faults::Kind;
use crate::simulation::{Failure, Plan, run};

/// A failure of a plan that is as small as was found. Takes some dozen runs.
pub fn shrink(failure: Box<Failure>) -> Box<Failure> {
    without_kinds(fewer_steps(failure))
}

/// The step of the failure is known, so the steps after it are not needed; of those before, bisection finds how many are.
fn fewer_steps(failure: Box<Failure>) -> Box<Failure> {
    let mut best = failure;
    let (mut low, mut high) = (0, best.plan.steps);
    if let Some(step) = best.step
        && let Some(same) = still(&best, with_steps(best.plan, step + 1))
    {
        high = step + 1;
        best = same;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match still(&best, with_steps(best.plan, middle)) {
            Some(same) => {
                high = middle;
                best = same;
            }
            None => low = middle + 1,
        }
    }
    best
}

fn without_kinds(failure: Box<Failure>) -> Box<Failure> {
    let mut best = failure;
    for kind in Kind::ALL {
        if best.plan.without.contains(kind) {
            continue;
        }
        let without = best.plan.without.with(kind);
        let plan = Plan {
            without,
            ..best.plan
        };
        if let Some(same) = still(&best, plan) {
            best = same;
        }
    }
    best
}

fn with_steps(plan: Plan, steps: u32) -> Plan {
    Plan { steps, ..plan }
}

/// Whether another plan fails for the same reason.
fn still(failure: &Failure, plan: Plan) -> Option<Box<Failure>> {
    let found = run(plan).err()?;
    (found.subject == failure.subject).then_some(found)
}
