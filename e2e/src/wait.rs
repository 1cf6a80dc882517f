//! Waiting for something to become true, with a deadline and a message that says what did not happen.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::tools::number;

/// `E2E_PATIENCE` multiplies every limit: for a machine that does other work meanwhile.
pub fn patient(limit: Duration) -> Duration {
    limit * u32::try_from(number("E2E_PATIENCE", 1)).unwrap_or(1)
}

/// How often a condition is looked at again.
const PAUSE: Duration = Duration::from_millis(50);

/// Calls `probe` until it gives a value, and fails after `limit` with `what` and the probe's last answer.
///
/// `Ok(None)` and `Err` both mean "not yet": an error is kept for the message.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    wait_for_every(PAUSE, what, limit, probe)
}

/// [`wait_for`] with a `pause` of its own, for a probe that costs more than a look.
pub fn wait_for_every<T>(
    pause: Duration,
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let (start, limit) = (Instant::now(), patient(limit));
    loop {
        let last = match probe() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => String::from("not yet"),
            Err(error) => format!("{error:#}"),
        };
        if start.elapsed() > limit {
            bail!("waited {} s for {what}: {last}", limit.as_secs());
        }
        thread::sleep(pause);
    }
}

/// [`wait_for`] over a plain condition.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<bool>,
) -> Result<()> {
    wait_for(what, limit, || Ok(probe()?.then_some(())))
}
