//! A broker's wall clock, which jumps when told to: libfaketime reads the offset from a file. Timers stay right.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// A clock that one broker runs by.
#[derive(Debug)]
pub(crate) struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A right clock, whose offset stands in `file`.
    pub(crate) fn create(file: PathBuf) -> Result<Self> {
        let clock = Self { file };
        clock.jump(0)?;
        Ok(clock)
    }

    /// Where Debian puts libfaketime.
    pub(crate) fn library() -> PathBuf {
        let folder = format!("/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH);
        PathBuf::from(folder).join("libfaketimeMT.so.1")
    }

    /// From now on the clock is this many seconds ahead.
    pub(crate) fn jump(&self, seconds: i64) -> Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n"))?;
        fs::rename(new, &self.file)?;
        Ok(())
    }

    /// A process that ran by this clock was killed: what libfaketime shares between threads goes, lest a later process with
    /// the same id trips over it.
    pub(crate) fn forget(process: u32) -> Result<()> {
        for name in ["sem.faketime_sem_", "faketime_shm_"] {
            let shared = Path::new("/dev/shm").join(format!("{name}{process}"));
            match fs::remove_file(&shared) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", shared.display()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Lets a command run by this clock.
    pub(crate) fn govern(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", Self::library())
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}
