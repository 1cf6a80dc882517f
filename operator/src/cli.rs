//! The command line.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs Taffrail clusters from Cluster and Topic manifests.
#[derive(Debug, Parser)]
#[command(
    name = "taffrail-operator",
    version,
    about,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a cluster on this machine, from the same manifests as in Kubernetes.
    Local(Local),
    /// Print what would be done for a file of manifests, and why.
    Plan(PlanArguments),
    /// Print the CustomResourceDefinitions, for kubectl apply.
    Crds,
    /// Run in Kubernetes (not in this release).
    Run,
}

/// Arguments of `local`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Local {
    /// `local status`.
    #[command(subcommand)]
    pub command: Option<LocalCommand>,
    /// File with one Cluster and its Topics; changes to it are applied while the cluster runs.
    #[arg(short, long, required = true)]
    pub file: Option<PathBuf>,
    /// Folder for the cluster's data; made if missing.
    #[arg(long, env = "TAFFRAIL_DATA_DIR", default_value = "taffrail-data")]
    pub data_dir: PathBuf,
    /// The broker program; by default taffrail-broker beside this program, else the one in PATH.
    #[arg(long, env = "TAFFRAIL_BROKER")]
    pub broker_binary: Option<PathBuf>,
    /// Port of broker 0 for clients. Broker N is at +100·N; each broker also takes the port after its client port and
    /// the one 312 above it (metrics), the operator the one 212 above the base (metrics).
    #[arg(long, default_value_t = crate::local::ports::DEFAULT_BASE)]
    pub base_port: u16,
}

/// What else to do with a local cluster.
#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Tell what runs: brokers, topics and their conditions.
    Status(StatusArguments),
}

/// Arguments of `local status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Folder of the cluster's data.
    #[arg(long, env = "TAFFRAIL_DATA_DIR", default_value = "taffrail-data")]
    pub data_dir: PathBuf,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// File with one Cluster and its Topics.
    #[arg(short, long)]
    pub file: PathBuf,
    /// Folder of a local cluster to compare with, if it runs.
    #[arg(long, env = "TAFFRAIL_DATA_DIR", default_value = "taffrail-data")]
    pub data_dir: PathBuf,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Prints to standard output. A reader that went away (a closed terminal, `| head`) stops nobody: the cluster runs on.
pub fn print_out(text: fmt::Arguments<'_>) {
    let _ = std::io::stdout().write_fmt(text);
}

/// As `println!`, through `print_out`.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::print_out(format_args!("{}\n", format_args!($($text)*))) };
}
