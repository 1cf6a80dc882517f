//! A steady acks=all load that judges itself: every record acknowledged is read back, or the verdict says which is not.
//!
//! Prints `{"acknowledged": n}` five times a second. A line on standard input, or its end, stops the load; the last line printed is
//! the verdict.

use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use taffrail_e2e::load::{Load as Sending, LoadSpec, read_back};
use taffrail_e2e::logcheck;

use crate::Target;

/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Anomalies named in the verdict.
const NAMED_MAX: usize = 20;

/// The `load` command.
#[derive(clap::Args)]
pub(crate) struct Load {
    #[command(flatten)]
    target: Target,
    /// Partitions of the topic; the load goes round them.
    #[arg(long)]
    partitions: i32,
    /// Records per second over all partitions.
    #[arg(long, default_value_t = 2000)]
    rate: u64,
    /// How many seconds a record may wait for its acknowledgement.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

impl Load {
    /// Sends, reads back, prints the verdict.
    pub(crate) fn run(&self) -> Result<()> {
        let (start, spec) = (
            Instant::now(),
            LoadSpec {
                topic: self.target.topic.clone(),
                partitions: self.partitions,
                rate: self.rate,
            },
        );
        let limit = Duration::from_secs(self.limit);
        let sending = Sending::start_with_limit(&self.target.bootstrap, spec, limit)?;
        let stopped = stop_when_told();
        let mut last = None;
        while !stopped.is_set() {
            print_line(&json!({"acknowledged": sending.acknowledged()}))?;
            thread::sleep(PROGRESS_EVERY);
            last = Some(Instant::now());
        }
        let outcomes = sending.stop()?;
        let silence = outcomes.longest_silence_between(start, last.unwrap_or_else(Instant::now));
        let reads = read_back(&self.target.bootstrap, &self.target.topic)?;
        let verdict = logcheck::check(&outcomes.sent, &[reads]);
        let named = verdict.anomalies.iter().take(NAMED_MAX);
        print_line(&json!({
            "verdict": {
                "acknowledged": verdict.acknowledged,
                "anomalies": verdict.anomalies.len(),
                "named": named.map(|anomaly| format!("{anomaly:?}")).collect::<Vec<_>>(),
                "first_error": outcomes.first_error,
                "longest_silence_ms": u64::try_from(silence.as_millis())?,
            }
        }))
    }
}

/// Becomes true once a line or the end of standard input came.
fn stop_when_told() -> Stopped {
    let stopped = Stopped::default();
    let told = stopped.clone();
    thread::spawn(move || {
        let _ = stdin().read_line(&mut String::new());
        told.0.store(true, Ordering::Relaxed);
    });
    stopped
}

#[derive(Clone, Default)]
struct Stopped(Arc<AtomicBool>);

impl Stopped {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn print_line(line: &Value) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
