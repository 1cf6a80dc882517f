//! The broker binary: sockets, files, signals and HTTP around one node.

mod cli;
mod clock;
mod connection;
mod dump;
mod env;
mod http;
mod limits;
mod listener;
mod logging;
mod peer;
mod properties;
mod run;
mod settings;
mod socket;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

use cli::Command;

const _: () = assert!(
    !taffrail_node::MUTANTS,
    "a broker with planted faults is for nobody: build it without the feature `mutants`"
);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = cli::parse();
    let outcome = match (
        &arguments.command,
        arguments.config.as_deref().or(arguments.file.as_deref()),
    ) {
        (Some(Command::CheckConfig { file }), _) => check_config(file),
        (
            Some(Command::DumpLog {
                files,
                print_records,
            }),
            _,
        ) => dump_log(files, *print_records),
        (Some(Command::Verify { directory }), _) => verify(directory),
        (None, Some(file)) => run::run(file),
        (None, None) => no_file(),
    };
    outcome.unwrap_or_else(|error| {
        // Nobody may be listening any more; the exit code still tells.
        let _ = writeln!(std::io::stderr(), "taffrail-broker: {error:#}");
        ExitCode::FAILURE
    })
}

fn no_file() -> anyhow::Result<ExitCode> {
    bail!(
        "which configuration? Give a properties file: taffrail-broker --config FILE (--help says more)"
    )
}

/// Prints files of the log; a failure in one of them does not keep the others from being printed.
fn dump_log(files: &[PathBuf], print_records: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut good = true;
    for file in files {
        match dump::dump(file, print_records, &mut out) {
            Ok(whole) => good &= whole,
            // Whoever read the output has seen enough.
            Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
            Err(error) => {
                good = false;
                writeln!(std::io::stderr(), "taffrail-broker: {error:#}")?;
            }
        }
    }
    out.flush()?;
    Ok(exit_code(good))
}

fn verify(directory: &Path) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let good = verify::verify(directory, &mut out, &mut std::io::stderr())?;
    Ok(exit_code(good))
}

fn exit_code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints every value that is set, by the file or the environment, and what listens where.
fn check_config(file: &Path) -> anyhow::Result<ExitCode> {
    let settings = settings::load(file, std::env::vars())?;
    let mut out = std::io::stdout().lock();
    for (name, value) in &settings.written {
        writeln!(out, "{name}={value}")?;
    }
    for line in settings::places(&settings.config) {
        writeln!(out, "# {line}")?;
    }
    for warning in &settings.warnings {
        writeln!(std::io::stderr(), "warning: {warning}")?;
    }
    writeln!(
        out,
        "# {} is fine: broker {}; what it does not name has its default, which --help tells",
        file.display(),
        settings.config.node_id
    )?;
    Ok(ExitCode::SUCCESS)
}
