//! Runs some seeds without optimization, and those that once found something. `make test` runs five hundred with it,
//! `make sim` as many as one likes.

use std::sync::Mutex;

use taffrail_sim::{Going, Plan, Profile, REGRESSIONS, STEPS, Troubles, run, run_all, threads};

fn check(plans: impl Iterator<Item = Plan> + Send) {
    let failures = Mutex::new(Vec::new());
    run_all(plans, threads(), |outcome| {
        if let Err(failure) = outcome {
            failures.lock().unwrap().push(failure.to_string());
        }
        Going::On
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn seeds_hold_every_invariant() {
    check((0..8).map(|seed| Plan::new(seed, STEPS)));
}

#[test]
fn disks_fail_fill_up_and_rot_and_nothing_is_lost() {
    let seen = Mutex::new(Troubles::default());
    let failures = Mutex::new(Vec::new());
    let of_disks = |seed: &u64| Profile::of_seed(*seed) == Profile::Disks;
    let plans = (8..).filter(of_disks).take(4);
    let plans = plans.map(|seed| Plan::new(seed, STEPS));
    run_all(plans, threads(), |outcome| {
        match outcome {
            Ok(report) => *seen.lock().unwrap() += report.troubles,
            Err(failure) => failures.lock().unwrap().push(failure.to_string()),
        }
        Going::On
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let seen = seen.into_inner().unwrap();
    assert!(
        seen.offline > 0 && seen.filled > 0 && seen.flipped > 0,
        "{seen:?}"
    );
}

#[test]
fn seeds_that_once_found_something_hold_every_invariant() {
    check((REGRESSIONS.iter()).map(|(seed, steps, _)| Plan::new(*seed, *steps)));
}

#[test]
fn a_seed_repeats_to_the_byte() {
    let trace = |seed| run(Plan::new(seed, 12)).map(|report| report.trace);
    let first = trace(5);
    assert!(first.is_ok(), "{first:?}");
    assert_eq!(first, trace(5));
    assert_ne!(first, trace(6));
    let of_disks = trace(7);
    assert!(of_disks.is_ok(), "{of_disks:?}");
    assert_eq!(of_disks, trace(7));
}
