//! Runs seeds. `TAFFRAIL_SIM_SEEDS=200` runs more of them, `TAFFRAIL_SIM_FIRST_SEED=1000` others,
//! `TAFFRAIL_SIM_STEPS=200` longer ones.

use taffrail_sim::{Plan, run};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// The default is what fits well below a minute on two cores without optimisation.
#[test]
fn seeds_hold_every_invariant() {
    let first = number("TAFFRAIL_SIM_FIRST_SEED", 0);
    let count = number("TAFFRAIL_SIM_SEEDS", 24);
    let steps = number("TAFFRAIL_SIM_STEPS", 20) as u32;
    let next = std::sync::atomic::AtomicU64::new(first);
    let failures = std::sync::Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    if let Err(failure) = run(Plan { seed, steps }) {
                        failures.lock().unwrap().push(failure.to_string());
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn a_seed_repeats() {
    let plan = Plan { seed: 5, steps: 12 };
    let first = run(plan).map_err(|failure| failure.to_string());
    assert_eq!(first, run(plan).map_err(|failure| failure.to_string()));
}
