//! The broker binary: sockets, files, signals and HTTP around one node.

mod cli;
mod clock;
mod connection;
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

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

use cli::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = cli::parse();
    let outcome = match (
        &arguments.command,
        arguments.config.as_deref().or(arguments.file.as_deref()),
    ) {
        (Some(Command::CheckConfig { file }), _) => check_config(file),
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

/// Prints every value that is not a default, and what listens where.
fn check_config(file: &Path) -> anyhow::Result<ExitCode> {
    let settings = settings::load(file, std::env::vars())?;
    for (name, value) in &settings.written {
        println!("{name}={value}");
    }
    for warning in &settings.warnings {
        eprintln!("warning: {warning}");
    }
    println!(
        "# {} is fine: broker {}",
        file.display(),
        settings.config.node_id
    );
    Ok(ExitCode::SUCCESS)
}
