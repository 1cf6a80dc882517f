//! Judges a history of sends and polls: what was acknowledged must be read, once, in order, and by everybody alike.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use taffrail_e2e::history::FORMAT;
use taffrail_e2e::history::check::{VALUES_MAX, check};

/// Reports every anomaly of a history of sends and polls.
#[derive(Parser)]
#[command(name = "taffrail-logcheck", version, after_help = FORMAT)]
struct Arguments {
    /// The history, as JSON lines.
    history: PathBuf,
    /// How many values a history may have; each takes about 200 bytes of memory.
    #[arg(long, default_value_t = VALUES_MAX)]
    values_max: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match check(&arguments.history, arguments.values_max) {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(report.anomalies() > 0))
        }
        Err(error) => {
            eprintln!(
                "taffrail-logcheck: {}: {error}",
                arguments.history.display()
            );
            ExitCode::from(2)
        }
    }
}
