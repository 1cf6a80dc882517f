//! The targets, by what takes the bytes.

mod disk;
mod metadata;
mod text;
mod wire;

use taffrail_allocation::measure;

/// One decoder, or one family of them.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, as on the command line and in `corpus/<name>/`.
    pub name: &'static str,
    /// What is done with an input. It fails by a panic.
    pub run: fn(&[u8]),
    /// Inputs to start from, besides the files of the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What it may hold at once.
    pub memory: Memory,
}

/// How much memory a target may take for an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// So many times the input.
    pub times: usize,
    /// And so much whatever the input.
    pub always: usize,
}

impl Memory {
    /// What every decoder is held to: 16 times the input and 64 KiB.
    pub const DECODER: Self = Self {
        times: 16,
        always: 64 * 1024,
    };

    /// For targets that decode, encode and decode again; the decoder alone is held to the above in them.
    pub const THERE_AND_BACK: Self = Self {
        times: 64,
        always: 256 * 1024,
    };

    /// What a decoder may, with more whatever the input, for a reason that the target names.
    const fn and(always: usize) -> Self {
        Self {
            times: Self::DECODER.times,
            always: Self::DECODER.always + always,
        }
    }

    /// In bytes.
    pub fn allowed(self, input: usize) -> usize {
        self.times * input + self.always
    }
}

/// Runs a decoder on an input of this size, and fails if it held more than it may.
fn decoder<T>(input: usize, work: impl FnOnce() -> T) -> T {
    let (result, taken) = measure(work);
    let allowed = Memory::DECODER.allowed(input);
    assert!(
        taken.peak <= allowed,
        "decoding {input} bytes held {}, {allowed} are allowed",
        taken.peak
    );
    result
}

/// All of them.
pub fn all() -> Vec<Target> {
    [
        wire::TARGETS,
        metadata::TARGETS,
        disk::TARGETS,
        text::TARGETS,
    ]
    .concat()
}
