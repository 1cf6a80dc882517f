//! Reading a history line by line, with an error that says which line and why.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::event::Event;

/// Longest line: one poll of 100,000 records has about 3 MiB.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Why a history cannot be judged.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line is none of a history.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// More than memory was allowed for.
    #[error(
        "line {line}: more than {max} values; allow more with --values-max (about 200 bytes of memory each)"
    )]
    TooMany {
        /// Counted from 1.
        line: u64,
        /// The limit.
        max: u64,
    },
}

impl HistoryError {
    pub(super) fn at(line: u64, problem: impl Into<String>) -> Self {
        Self::Line {
            line,
            problem: problem.into(),
        }
    }
}

/// Calls `each` with every event and its line.
pub(super) fn for_each_event(
    path: &Path,
    mut each: impl FnMut(u64, Event) -> Result<(), HistoryError>,
) -> Result<(), HistoryError> {
    let unreadable = |error| HistoryError::File {
        path: path.to_owned(),
        error,
    };
    let mut file = BufReader::with_capacity(1 << 18, File::open(path).map_err(unreadable)?);
    let (mut line, mut text) = (0, Vec::new());
    loop {
        text.clear();
        line += 1;
        let read = (&mut file)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut text)
            .map_err(unreadable)?;
        if read == 0 {
            return Ok(());
        }
        if text.last() != Some(&b'\n') && read as u64 == LINE_BYTES_MAX {
            let problem = format!("longer than {LINE_BYTES_MAX} bytes");
            return Err(HistoryError::at(line, problem));
        }
        let text = text.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        let event =
            serde_json::from_slice(text).map_err(|error| HistoryError::at(line, words(&error)))?;
        each(line, event)?;
    }
}

/// What is wrong with a line, without the number that its only line has for the parser.
fn words(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&place).unwrap_or(&text);
    format!("column {}: {text}", error.column())
}
