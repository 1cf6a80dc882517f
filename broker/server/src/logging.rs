//! Log lines: text for people or one JSON object each, to standard error; and what a panic does.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use taffrail_core::config::LogFormat;
use tracing_subscriber::EnvFilter;

/// Exit code of a broker that can no longer vouch for its state.
pub(crate) const EXIT_LOST_INVARIANT: i32 = 3;

/// Starts logging. `filter` is what `taffrail.log.level` says.
pub(crate) fn start(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let filter =
        EnvFilter::try_new(filter).with_context(|| format!("taffrail.log.level: \"{filter}\""))?;
    // A line that cannot be written is lost, and nothing else: the default would complain about it on the same
    // standard error, and panic when that fails, too.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let outcome = match format {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    outcome.map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))
}

/// A panic is a broken invariant, and a broker that has lost one stops: going on could serve or store wrong records.
pub(crate) fn stop_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let trace = std::backtrace::Backtrace::force_capture();
        tracing::error!(place, %trace, "stopping: {}", panic.payload_as_str().unwrap_or("panic"));
        std::process::exit(EXIT_LOST_INVARIANT);
    }));
}

/// Keeps strangers from filling the log: lets through so many lines a second and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// The second in the upper half, the lines of that second in the lower.
    state: AtomicU64,
    suppressed: AtomicU64,
}

/// 10 lines/s * 86,400 s * 200 bytes = 173 MB a day at the very worst.
const LINES_PER_SECOND: u64 = 10;

impl Throttle {
    /// Whether one more line may be written in this second, and how many were held back before it.
    pub(crate) fn admit(&self, second: u64) -> Option<u64> {
        let (second, mask) = (second & 0xffff_ffff, 0xffff_ffff);
        let lines = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                Some(if state >> 32 == second {
                    state + u64::from(state & mask < mask)
                } else {
                    second << 32 | 1
                })
            });
        let before = lines.map_or(0, |state| {
            if state >> 32 == second {
                state & mask
            } else {
                0
            }
        });
        if before < LINES_PER_SECOND {
            Some(self.suppressed.swap(0, Ordering::Relaxed))
        } else {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_pass_and_the_rest_is_counted() {
        let throttle = Throttle::default();
        let passed = (0..25).filter(|_| throttle.admit(7).is_some()).count();
        assert_eq!(passed, 10);
        assert_eq!(throttle.admit(8), Some(15));
        assert_eq!(throttle.admit(8), Some(0));
    }
}
