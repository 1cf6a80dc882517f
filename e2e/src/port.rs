//! Ports that this test alone uses, also after its broker was killed and before it is started again.
//!
//! A port that was merely free a moment ago is not enough: a test that runs beside this one, or an outgoing connection, may take it
//! while the broker is down. So ports come from below the range of outgoing connections, each held by a lock file until it is dropped.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
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
        let folder = std::env::temp_dir().join("taffrail-e2e-ports");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let count = u32::from(RANGE.1 - RANGE.0) + 1;
        // Processes start at different places, so that the first try usually holds.
        let start = process::id().wrapping_mul(97) % count;
        for step in 0..count {
            let number = RANGE.0 + u16::try_from((start + step) % count)?;
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join(number.to_string()))?;
            if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self {
                    number,
                    _claim: file,
                });
            }
        }
        bail!("no free port between {} and {}", RANGE.0, RANGE.1);
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
