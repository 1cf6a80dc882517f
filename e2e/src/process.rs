//! A child process with its output in a file: stopped by its own id, never by name, and at the latest when dropped.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::wait::wait_for;

/// A running (or ended) child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both outputs appended to the file `log`.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        Self::spawn_printing(name, command, log, log)
    }

    /// Starts `command` with its standard output appended to `output` and its standard error to `log`.
    pub fn spawn_printing(
        name: &str,
        command: &mut Command,
        output: &Path,
        log: &Path,
    ) -> Result<Self> {
        let append = |path: &Path| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("cannot write {}", path.display()))
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(append(output)?)
            .stderr(append(log)?)
            .spawn()
            .with_context(|| format!("cannot start {name} ({:?})", command.get_program()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// The operating system's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its standard error goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Fails, with the end of its output, if it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended ({status}); its last words:\n{}",
                self.name,
                tail(&self.log, 30)
            ),
        }
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child
            .kill()
            .with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits up to `limit`; gives how long it took.
    pub fn terminate(&mut self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        self.signal(libc::SIGTERM)?;
        wait_for(
            &format!("{} to stop after SIGTERM", self.name),
            limit,
            || self.ended(),
        )?;
        Ok(start.elapsed())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let pid = i32::try_from(self.pid())?;
        // SAFETY: kill(2) takes two integers; the child has not been waited for, so its id is still its own.
        if unsafe { libc::kill(pid, signal) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot signal {}", self.name));
        }
        Ok(())
    }

    /// Waits up to `limit` for its end, and fails unless it succeeded.
    pub fn succeed_within(&mut self, limit: Duration) -> Result<()> {
        let status = wait_for(&format!("{} to end", self.name), limit, || self.ended())?;
        if !status.success() {
            bail!(
                "{} failed ({status}); its last words:\n{}",
                self.name,
                tail(&self.log, 30)
            );
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last `lines` lines of a file, or a note that it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("({} cannot be read: {error})", path.display()),
    }
}

/// Resident memory of a process, in MB of 10^6 bytes.
pub fn resident_mb(pid: u32) -> Result<f64> {
    memory_mb(pid, "VmRSS:")
}

/// The most that was resident at once, in MB of 10^6 bytes.
pub fn peak_mb(pid: u32) -> Result<f64> {
    memory_mb(pid, "VmHWM:")
}

fn memory_mb(pid: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let missing = || format!("a process without {name}");
    let mut lines = status.lines();
    let line = lines
        .find(|line| line.starts_with(name))
        .with_context(missing)?;
    let kib = line.split_whitespace().nth(1);
    let kib: f64 = kib.and_then(|f| f.parse().ok()).with_context(missing)?;
    Ok(kib * 1024.0 / 1e6)
}
