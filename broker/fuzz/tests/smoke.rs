//! Every target on every seed, then on mutations of them for a bounded time; every API in every version, however short that is.
//!
//! `TAFFRAIL_FUZZ_SECONDS` is the time for all targets together, 8 by default; `TAFFRAIL_FUZZ_SEED` starts another run.

use std::env;
use std::time::Duration;

use taffrail_allocation::Counting;
use taffrail_fuzz::search::{Numbers, check, mutate, search, seeds};
use taffrail_fuzz::targets::{self, Memory, Target};
use taffrail_protocol::ApiKey;

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

/// Inputs for each version of each message: some 600 versions, so that all take about a second.
const INPUTS_PER_VERSION: usize = 30;

#[test]
fn each_api_is_run_in_each_of_its_versions() {
    let mut numbers = Numbers::new(number("TAFFRAIL_FUZZ_SEED", 1));
    let mut failures = Vec::new();
    for name in ["request", "response"] {
        let mut targets = targets::all().into_iter();
        let target = targets.find(|target| target.name == name).expect("known");
        let seeds = seeds(&target).expect("a readable corpus");
        for api_key in ApiKey::all() {
            let code = api_key.code().to_be_bytes();
            let seed = seeds.iter().find(|seed| seed.starts_with(&code));
            let seed = seed.unwrap_or_else(|| panic!("no {name} of {api_key:?} in the corpus"));
            let (last, body) = (i16::from_be_bytes([seed[2], seed[3]]), seed[4..].to_vec());
            let bodies = [body];
            for version in 0..=last {
                for _ in 0..INPUTS_PER_VERSION {
                    let body = mutate(&bodies, &mut numbers);
                    let input = [&code[..], &version.to_be_bytes(), &body].concat();
                    if let Err(failure) = check(&target, &input) {
                        failures.push(format!("{api_key:?} {version}: {failure}"));
                    }
                }
            }
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
