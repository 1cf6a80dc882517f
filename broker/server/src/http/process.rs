//! What the process uses, under the names that every Prometheus client library has for it.

use std::fs;

use prometheus::{Gauge, Registry};

/// Gauges that are read from `/proc/self` at each scrape.
pub(super) struct ProcessMetrics {
    cpu_seconds: Gauge,
    resident_bytes: Gauge,
    open_files: Gauge,
    open_files_max: Gauge,
    start_seconds: Gauge,
}

impl ProcessMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<ProcessMetrics> {
        let gauge = |name: &str, help: &str| -> prometheus::Result<Gauge> {
            let gauge = Gauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        Ok(ProcessMetrics {
            cpu_seconds: gauge(
                "process_cpu_seconds_total",
                "User and system time used, in seconds.",
            )?,
            resident_bytes: gauge(
                "process_resident_memory_bytes",
                "Resident memory, in bytes.",
            )?,
            open_files: gauge("process_open_fds", "Open file descriptors.")?,
            open_files_max: gauge(
                "process_max_fds",
                "Most file descriptors the process may have.",
            )?,
            start_seconds: gauge(
                "process_start_time_seconds",
                "Start of the process, in seconds since 1970.",
            )?,
        })
    }

    /// Reads everything again; what cannot be read keeps its value.
    pub(super) fn refresh(&self) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name in parentheses may hold blanks, so fields are counted behind it: state is the third of all.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
        let field = |number: usize| {
            fields
                .get(number - 3)
                .and_then(|text| text.parse::<f64>().ok())
        };
        let ticks_per_second = system_value(libc::_SC_CLK_TCK);
        if let (Some(user), Some(system)) = (field(14), field(15)) {
            self.cpu_seconds.set((user + system) / ticks_per_second);
        }
        if let Some(pages) = field(24) {
            self.resident_bytes
                .set(pages * system_value(libc::_SC_PAGESIZE));
        }
        if let (Some(start), Some(boot)) = (field(22), boot_seconds()) {
            self.start_seconds.set(boot + start / ticks_per_second);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // Reading the folder opens one more.
            self.open_files.set(open.count() as f64 - 1.0);
        }
        if let Some(limit) = open_files_limit() {
            self.open_files_max.set(limit);
        }
    }
}

fn system_value(name: libc::c_int) -> f64 {
    // SAFETY: sysconf takes any name and has no memory to get wrong.
    unsafe { libc::sysconf(name) as f64 }
}

fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .parse()
        .ok()
}

fn open_files_limit() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}
