//! Runs a target on its seeds and on mutations of them, from one number, and says on which input it failed.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use taffrail_allocation::measure;

use crate::targets::Target;

/// Inputs grow by splicing; beyond this they are cut. Twice the largest seed.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// A stream of numbers from a seed (splitmix64).
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// An input on which a target fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The target's name.
    pub target: &'static str,
    /// What happened.
    pub reason: String,
    /// On what.
    pub input: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "target {} {} on {} bytes: {:?}",
            self.target,
            self.reason,
            self.input.len(),
            &self.input[..self.input.len().min(256)]
        )
    }
}

impl std::error::Error for Failure {}

/// Runs a target once.
pub fn check(target: &Target, input: &[u8]) -> Result<(), Failure> {
    let failed = |reason: String| Failure {
        target: target.name,
        reason,
        input: input.to_vec(),
    };
    let run = || panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let (outcome, taken) = measure(run);
    let allowed = target.memory.allowed(input.len());
    match outcome {
        Err(_) => Err(failed("panicked".to_owned())),
        Ok(()) if taken.peak > allowed => Err(failed(format!(
            "held {} bytes, {allowed} are allowed,",
            taken.peak
        ))),
        Ok(()) => Ok(()),
    }
}

/// The seeds of a target: those that its file makes, and the files in the corpus.
pub fn seeds(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut seeds = (target.seeds)();
    let folder = corpus().join(target.name);
    if folder.exists() {
        let entries = fs::read_dir(&folder)?.collect::<io::Result<Vec<_>>>()?;
        let mut files: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        files.sort();
        for file in files {
            seeds.push(fs::read(file)?);
        }
    }
    Ok(seeds)
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Runs a target on its seeds and then on mutations for about `time`. Tells how many inputs there were.
pub fn search(target: &Target, time: Duration, numbers: &mut Numbers) -> Result<u64, Failure> {
    let none = |reason: String| Failure {
        target: target.name,
        reason,
        input: Vec::new(),
    };
    let seeds = seeds(target).map_err(|error| none(format!("cannot read its corpus: {error}")))?;
    if seeds.is_empty() {
        return Err(none("has no seeds".to_owned()));
    }
    let mut runs = 0;
    for seed in &seeds {
        check(target, seed)?;
        runs += 1;
    }
    let until = Instant::now() + time;
    while Instant::now() < until {
        for _ in 0..16 {
            check(target, &mutate(&seeds, numbers))?;
            runs += 1;
        }
    }
    Ok(runs)
}

/// A seed with a few bytes changed, removed, inserted, made a large number, or taken from another seed.
pub fn mutate(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut data = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(data.len() + 1);
        let byte = [0, 1, 0x7f, 0x80, 0xff, numbers.next() as u8][numbers.below(6)];
        match numbers.below(7) {
            0 => data.truncate(at),
            1 => data.insert(at, byte),
            2 if at < data.len() => drop(data.remove(at)),
            3 => {
                let other = &seeds[numbers.below(seeds.len())];
                data.truncate(at);
                data.extend_from_slice(&other[numbers.below(other.len() + 1)..]);
            }
            4 => {
                // Lengths are one, two, four or eight bytes, big-endian, or varints.
                let large = [0x7f, 0xff, 0xff, 0xff, 0x07];
                let width = [1, 2, 4, 5][numbers.below(4)];
                let places = data.iter_mut().skip(at);
                places
                    .zip(large)
                    .take(width)
                    .for_each(|(place, byte)| *place = byte);
            }
            5 => {
                let part = data[at..].to_vec();
                data.extend_from_slice(&part);
            }
            _ => {
                let places = data.iter_mut().skip(at);
                places
                    .take(1 + numbers.below(4))
                    .for_each(|place| *place = byte);
            }
        }
        data.truncate(INPUT_BYTES_MAX);
    }
    data
}
