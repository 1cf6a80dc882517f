//! Ports that this test alone uses, also after its broker was killed and before it is started again.
//!
//! A port that was merely free a moment ago is not enough: a test that runs beside this one, or an outgoing connection, may take it
//! while the broker is down. So ports come from below the range of outgoing connections, each held by a lock file until it is dropped.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::Path;
use std::process;

use anyhow::{Context, Result, bail};

/// First and last port handed out: below Linux's default range for outgoing connections (32768-60999), above the usual services.
const RANGE: (u16, u16) = (18_000, 31_999);

/// A claimed port of 127.0.0.1.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: File,
}

impl Port {
    /// Claims a port that nothing listens on.
    pub fn claim() -> Result<Self> {
        let mut block = Self::claim_block(&[0])?;
        block.pop().context("a block of one port has one port")
    }

    /// Claims the ports at these distances from a first one, all of them or none. Each is held: a neighbour that was only looked at could be
    /// claimed by the next test before the program that it is for has bound it.
    pub fn claim_block(offsets: &[u16]) -> Result<Vec<Self>> {
        let folder = std::env::temp_dir().join("taffrail-e2e-ports");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let longest = offsets.iter().max().copied().unwrap_or(0);
        let count = u32::from(RANGE.1 - RANGE.0 - longest) + 1;
        // Processes start at different places, so that the first try usually holds.
        let start = process::id().wrapping_mul(97) % count;
        for step in 0..count {
            let first = RANGE.0 + u16::try_from((start + step) % count)?;
            let mut block = Vec::with_capacity(offsets.len());
            for offset in offsets {
                match Self::claim_number(&folder, first + offset)? {
                    Some(port) => block.push(port),
                    None => break,
                }
            }
            if block.len() == offsets.len() {
                return Ok(block);
            }
        }
        bail!("no free ports between {} and {}", RANGE.0, RANGE.1);
    }

    /// The claim comes first: who only looks whether a port is free holds it for a moment, which must not meet its owner.
    fn claim_number(folder: &Path, number: u16) -> Result<Option<Self>> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(number.to_string()))?;
        let free = file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok();
        Ok(free.then_some(Self {
            number,
            _claim: file,
        }))
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn blocks_that_are_held_at_once_share_no_port() -> Result<()> {
        let offsets = [0, 1, 312];
        let blocks: Vec<Vec<Port>> = (0..20)
            .map(|_| Port::claim_block(&offsets))
            .collect::<Result<_>>()?;
        let numbers: BTreeSet<u16> = blocks.iter().flatten().map(Port::number).collect();
        assert_eq!(numbers.len(), blocks.len() * offsets.len());
        for block in &blocks {
            assert_eq!(block[1].number() - block[0].number(), offsets[1]);
            assert_eq!(block[2].number() - block[0].number(), offsets[2]);
        }
        Ok(())
    }
}
