//! The acknowledged-record load of [`crate::load`], run in the client pod, where brokers can be reached.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::wait::{wait_for, wait_until};

/// For what is under way to be acknowledged and all records to be read back.
const VERDICT_LIMIT: Duration = Duration::from_secs(120);

/// A load that runs until it is stopped.
#[derive(Debug)]
pub struct PodLoad {
    child: Child,
    stdin: ChildStdin,
    acknowledged: Arc<AtomicU64>,
    last: Arc<Mutex<Option<Value>>>,
    reader: JoinHandle<()>,
    complaints: Option<JoinHandle<String>>,
}

/// What the load found out.
#[derive(Debug)]
pub struct PodVerdict {
    /// Records acknowledged.
    pub acknowledged: u64,
    /// The longest time that some partition went without an acknowledgement.
    pub longest_silence: Duration,
    /// The first record that was given up, if any.
    pub first_error: Option<String>,
}

impl PodLoad {
    /// Starts it, and waits for the first acknowledgement.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the load")?;
        let stdin = child.stdin.take().context("standard input is piped")?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let mut stderr = child.stderr.take().context("standard error is piped")?;
        let (acknowledged, last) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let reader = {
            let (acknowledged, last) = (Arc::clone(&acknowledged), Arc::clone(&last));
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let Ok(value) = serde_json::from_str::<Value>(&line) else {
                        continue;
                    };
                    if let Some(count) = value["acknowledged"].as_u64() {
                        acknowledged.store(count, Ordering::Relaxed);
                    }
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
                }
            })
        };
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut load = Self {
            child,
            stdin,
            acknowledged,
            last,
            reader,
            complaints: Some(complaints),
        };
        load.wait_for_more(1, Duration::from_secs(60))?;
        Ok(load)
    }

    /// Records acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until `more` records have been acknowledged from now on.
    pub fn wait_for_more(&mut self, more: u64, limit: Duration) -> Result<()> {
        let aim = self.acknowledged() + more;
        wait_until("the load to go on", limit, || {
            ensure!(
                self.child.try_wait()?.is_none() || self.acknowledged() >= aim,
                "the load has ended"
            );
            Ok(self.acknowledged() >= aim)
        })
    }

    /// Stops it, and fails unless every acknowledged record was read back, in order and once.
    pub fn stop(mut self) -> Result<PodVerdict> {
        writeln!(self.stdin, "stop")?;
        self.stdin.flush()?;
        let status = wait_for("the load's verdict", VERDICT_LIMIT, || {
            Ok(self.child.try_wait()?)
        })?;
        let _ = self.reader.join();
        let complaints = self.complaints.take().map(JoinHandle::join);
        let last = self
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let verdict = last
            .as_ref()
            .and_then(|last| last.get("verdict"))
            .with_context(|| {
                format!("the load ended ({status}) without a verdict: {complaints:?}")
            })?;
        ensure!(
            verdict["anomalies"] == 0,
            "what was acknowledged is not what is read: {verdict}"
        );
        let number = |name: &str| {
            verdict[name]
                .as_u64()
                .ok_or_else(|| anyhow!("no {name} in {verdict}"))
        };
        Ok(PodVerdict {
            acknowledged: number("acknowledged")?,
            longest_silence: Duration::from_millis(number("longest_silence_ms")?),
            first_error: verdict["first_error"].as_str().map(str::to_owned),
        })
    }
}
