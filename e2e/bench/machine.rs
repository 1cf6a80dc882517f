//! What the kernel tells of processes and of the machine, and page-cache memory that is touched before it is needed.

use std::fs;
use std::process::Command;
use std::ptr;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// CPU use and time at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: Instant,
    /// User and system seconds of the watched processes.
    cpu: (f64, f64),
    /// Seconds that the host took from this machine, over all cores.
    steal: f64,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// User seconds of the watched processes.
    pub(crate) user: f64,
    /// System seconds of the watched processes.
    pub(crate) system: f64,
    /// Percent of all cores that the host took.
    pub(crate) steal_percent: f64,
}

impl Moment {
    /// Now, for these processes.
    pub(crate) fn now(pids: &[u32]) -> Result<Self> {
        let tick = ticks_per_second()?;
        let mut cpu = (0.0, 0.0);
        for pid in pids {
            // The name in parentheses may hold spaces; fields 14 and 15 of the line are the 12th and 13th after it.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
                .with_context(|| format!("process {pid} is gone"))?;
            let fields: Vec<&str> = stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            cpu.0 += fields
                .get(11)
                .and_then(|f| f.parse::<f64>().ok())
                .context("utime")?
                / tick;
            cpu.1 += fields
                .get(12)
                .and_then(|f| f.parse::<f64>().ok())
                .context("stime")?
                / tick;
        }
        let stat = fs::read_to_string("/proc/stat")?;
        let steal = stat
            .split_whitespace()
            .nth(8)
            .and_then(|f| f.parse::<f64>().ok())
            .context("steal")?
            / tick;
        Ok(Self {
            at: Instant::now(),
            cpu,
            steal,
        })
    }

    /// From `self` to `later`.
    pub(crate) fn until(&self, later: &Self) -> Span {
        let seconds = later.at.duration_since(self.at).as_secs_f64();
        let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        Span {
            user: later.cpu.0 - self.cpu.0,
            system: later.cpu.1 - self.cpu.1,
            steal_percent: (later.steal - self.steal) / (seconds * cores) * 100.0,
        }
    }
}

/// Touches that much free memory and gives it back.
///
/// A virtual machine's host takes free memory back; the first touch after that costs two CPU seconds per GB, several times what a
/// broker needs to store it, and falls on whichever peer comes first.
pub(crate) fn warm_memory(bytes: u64) -> Result<()> {
    let length = usize::try_from(bytes)?;
    // SAFETY: a private anonymous mapping of our own, which nobody reads or writes before it is unmapped again.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let address = libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        if address == libc::MAP_FAILED {
            bail!(
                "cannot touch {length} bytes: {}",
                std::io::Error::last_os_error()
            );
        }
        libc::munmap(address, length);
    }
    Ok(())
}

/// The commit that is checked out, with a mark if the tree differs from it.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|text| !text.is_empty());
    if changed {
        format!("{commit} with local changes")
    } else {
        commit
    }
}

/// Processor, cores, memory and kernel, in one line.
pub(crate) fn description() -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map_or("unknown processor", |l| {
            l.trim_start_matches([' ', '\t', ':'])
        });
    let cores = cpuinfo
        .lines()
        .filter(|l| l.starts_with("processor"))
        .count();
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let kib: f64 = meminfo
        .split_whitespace()
        .nth(1)
        .and_then(|f| f.parse().ok())
        .unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!(
        "{cores} x {model}, {:.0} GB, Linux {}",
        kib * 1024.0 / 1e9,
        kernel.trim().split('-').next().unwrap_or_default()
    ))
}

fn ticks_per_second() -> Result<f64> {
    // SAFETY: sysconf(3) takes and gives integers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    anyhow::ensure!(ticks > 0, "the kernel does not tell its clock ticks");
    Ok(ticks as f64)
}
