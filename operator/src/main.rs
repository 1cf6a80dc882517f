//! The operator binary: reads the command line and hands over.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use taffrail_operator::cli::{Cli, Command, LocalCommand};
use taffrail_operator::local;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("taffrail-operator: {error}");
            ExitCode::FAILURE
        }
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
        Command::Run => anyhow::bail!(
            "running in Kubernetes is not in this release; `taffrail-operator local -f FILE` runs the same manifests on \
             this machine"
        ),
    }
    Ok(())
}
