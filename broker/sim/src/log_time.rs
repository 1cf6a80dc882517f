//! What the lines of a log are stamped with: the simulated clock of the thread that writes them.

use std::cell::Cell;
use std::fmt;

use taffrail_core::time::Instant;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Notes the time of this thread's simulation.
pub(crate) fn set(now: Instant) {
    NOW.set(now.0);
}

/// Writes the simulated time, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulatedTime;

impl FormatTime for SimulatedTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:>12.3}", NOW.get() as f64 / 1e6)
    }
}
