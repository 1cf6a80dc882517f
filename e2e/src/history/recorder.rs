//! Writes a history while it happens: one file, lines whole and in the order in which things ended.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::event::Event;

/// How often the time stands in the file.
const TIME_EVERY: Duration = Duration::from_millis(100);

/// A history that is being written; shared by all clients.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    start: Instant,
    processes: AtomicU32,
    page: Mutex<Page>,
}

#[derive(Debug)]
struct Page {
    out: BufWriter<File>,
    timed: Instant,
    /// The first error of writing; what follows is not written.
    error: Option<std::io::Error>,
}

impl Recorder {
    /// Starts a history in a new file.
    pub fn create(path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let start = Instant::now();
        Ok(Self {
            path: path.to_owned(),
            start,
            processes: AtomicU32::new(0),
            page: Mutex::new(Page {
                out: BufWriter::with_capacity(1 << 18, file),
                timed: start,
                error: None,
            }),
        })
    }

    /// A process number that no other client has.
    pub fn process(&self) -> u32 {
        self.processes.fetch_add(1, Ordering::Relaxed)
    }

    /// Milliseconds since the history began.
    pub fn ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds a line. Clients go on if the disk is full; [`Recorder::finish`] tells.
    pub fn record(&self, event: &Event) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if page.error.is_some() {
            return;
        }
        let time = Event::Time { ms: self.ms() };
        let timed = page.timed.elapsed() >= TIME_EVERY;
        let written = (|| {
            if timed {
                write_line(&mut page.out, &time)?;
                page.timed = Instant::now();
            }
            write_line(&mut page.out, event)
        })();
        page.error = written.err();
    }

    /// Adds a line for people.
    pub fn note(&self, text: impl Into<String>) {
        self.record(&Event::Note { text: text.into() });
    }

    /// Completes the file and gives its path.
    pub fn finish(&self) -> Result<PathBuf> {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let broken = || format!("cannot write {}", self.path.display());
        if let Some(error) = page.error.take() {
            return Err(error).with_context(broken);
        }
        page.out.flush().with_context(broken)?;
        Ok(self.path.clone())
    }
}

fn write_line(out: &mut BufWriter<File>, event: &Event) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, event)?;
    out.write_all(b"\n")
}
