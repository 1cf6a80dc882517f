//! Every target on every seed, then on mutations of them for a bounded time.
//!
//! `TAFFRAIL_FUZZ_SECONDS` is the time for all targets together, 8 by default; `TAFFRAIL_FUZZ_SEED` starts another run.

use std::env;
use std::time::Duration;

use taffrail_allocation::Counting;
use taffrail_fuzz::search::{Numbers, check, search};
use taffrail_fuzz::targets::{self, Memory, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn number(variable: &str, default: u64) -> u64 {
    let value = env::var(variable).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

#[test]
fn no_decoder_panics_or_takes_more_memory_than_its_input_is_worth() {
    let targets = targets::all();
    let time = Duration::from_secs(number("TAFFRAIL_FUZZ_SECONDS", 8)) / targets.len() as u32;
    let mut numbers = Numbers::new(number("TAFFRAIL_FUZZ_SEED", 1));
    let mut failures = Vec::new();
    for target in &targets {
        match search(target, time, &mut numbers) {
            Ok(runs) => println!("{}: {runs} inputs", target.name),
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_target_that_takes_too_much_or_panics_is_caught() {
    let target = |run: fn(&[u8])| Target {
        name: "planted",
        run,
        seeds: || vec![vec![1, 2, 3]],
        memory: Memory::DECODER,
    };
    let caught = |run: fn(&[u8])| check(&target(run), &[0; 100]).map_err(|failure| failure.reason);
    assert_eq!(caught(|_| {}), Ok(()));
    assert_eq!(
        caught(|data| drop(Vec::<u8>::with_capacity(16 * data.len() + 60_000))),
        Ok(())
    );
    let greedy = caught(|_| drop(Vec::<u8>::with_capacity(1 << 20)));
    assert!(greedy.is_err_and(|reason| reason.contains("67136 are allowed")));
    assert_eq!(caught(|_| panic!("planted")), Err("panicked".to_owned()));
}
