//! The operator binary: reads the command line and hands over.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use taffrail_operator::cli::{Cli, Command, LocalCommand, LogFormat};
use taffrail_operator::{kafka, kubernetes, local};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    log(&command);
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be listening any more; the exit code still tells.
            let _ = writeln!(std::io::stderr(), "taffrail-operator: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `run` logs for a cluster's log collector, everything else speaks to the person at the terminal.
fn log(command: &Command) {
    let (default, format) = match command {
        Command::Run(arguments) => (arguments.log_level.as_str(), arguments.log_format),
        Command::Local(_)
        | Command::Plan(_)
        | Command::Crds
        | Command::Ping(_)
        | Command::Quorum(_) => ("warn", LogFormat::Text),
    };
    // The watcher's own warnings come several times a second while a namespace cannot be listed; ours come once.
    let default = format!("{default},kube_runtime::watcher=error");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).init(),
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Local(arguments) => match arguments.command {
            Some(LocalCommand::Status(arguments)) => local::show_status(&arguments)?,
            None => local::run(&arguments)?,
        },
        Command::Plan(arguments) => local::show_plan(&arguments)?,
        Command::Crds => {
            for definition in taffrail_crds::definitions::definitions() {
                taffrail_operator::say!("---\n{}", definition.yaml()?);
            }
        }
        Command::Ping(arguments) => kafka::run_ping(&arguments)?,
        Command::Quorum(command) => kafka::run_quorum(&command)?,
        Command::Run(arguments) => kubernetes::run(&arguments)?,
    }
    Ok(())
}
