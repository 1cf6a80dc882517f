//! The command line.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use taffrail_protocol::Uuid;

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
    /// Print what would be done for a file of manifests, and why; fails if something in it cannot be done.
    Plan(PlanArguments),
    /// Print the CustomResourceDefinitions, for kubectl apply.
    Crds,
    /// Produce records to each partition of a topic and read them back: are clients served?
    Ping(PingArguments),
    /// Tell who votes on a cluster's metadata, take a voter out or have one come in.
    #[command(subcommand)]
    Quorum(QuorumCommand),
    /// Reconcile Clusters and Topics in Kubernetes.
    Run(RunArguments),
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

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub struct PingArguments {
    /// Address of a broker or of the bootstrap Service, as host:port.
    #[arg(long)]
    pub bootstrap: String,
    /// An existing topic; the records stay in it.
    #[arg(long)]
    pub topic: String,
    /// Records for each partition.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub records: u32,
    /// Seconds to go on trying.
    #[arg(long, default_value_t = 30)]
    pub wait: u64,
}

/// What to do with the voters.
#[derive(Debug, Subcommand)]
pub enum QuorumCommand {
    /// Tell who votes, with which log directory, and how far each voter is.
    Describe(DescribeQuorumArguments),
    /// Have a broker vote. It must run, be named in controller.quorum.voters of all brokers, and have no metadata log of an earlier
    /// time: it gets the log, and then votes.
    AddVoter(VoterArguments),
    /// Take a voter out: one whose disk is lost, or that is not to vote any more. It is not taken in again by itself.
    ///
    /// Refused if no majority of those that stay lives.
    RemoveVoter(VoterArguments),
}

/// Arguments of `quorum describe`.
#[derive(Debug, Args)]
pub struct DescribeQuorumArguments {
    /// Addresses of brokers, as host:port, separated by commas.
    #[arg(long)]
    pub bootstrap: String,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Arguments of `quorum add-voter` and `quorum remove-voter`.
#[derive(Debug, Args)]
pub struct VoterArguments {
    /// Addresses of brokers, as host:port, separated by commas.
    #[arg(long)]
    pub bootstrap: String,
    /// The broker.
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..))]
    pub id: i32,
    /// Id of the log directory that holds its metadata log, as `quorum describe` and meta.properties give it; by default the one
    /// that it votes with, or comes with. Any other one is refused.
    #[arg(long)]
    pub directory: Option<Uuid>,
    /// Seconds to go on trying.
    #[arg(long, default_value_t = 30)]
    pub wait: u64,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Namespaces to look after, separated by commas; empty for all.
    #[arg(long, env = "TAFFRAIL_WATCH_NAMESPACES", default_value = "")]
    pub watch_namespaces: String,
    /// Namespace of the Lease by which one of several operators leads; by default the pod's own.
    #[arg(long = "leader-election-namespace", env = "TAFFRAIL_LEASE_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of that Lease.
    #[arg(long, env = "TAFFRAIL_LEASE_NAME", default_value = "taffrail-operator")]
    pub lease_name: String,
    /// Address that serves /metrics, /livez and /readyz.
    #[arg(long, env = "TAFFRAIL_HTTP_LISTENER", default_value = "0.0.0.0:8080")]
    pub http_listener: String,
    /// Image of brokers whose Cluster names none.
    #[arg(long, env = "TAFFRAIL_BROKER_IMAGE")]
    pub broker_image: Option<String>,
    /// Its pull policy: Always, IfNotPresent or Never; by default as Kubernetes does.
    #[arg(long, env = "TAFFRAIL_IMAGE_PULL_POLICY")]
    pub broker_image_pull_policy: Option<String>,
    /// Form of the logs.
    #[arg(long, env = "TAFFRAIL_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug or trace, also by module (info,taffrail_operator=debug).
    #[arg(long, env = "TAFFRAIL_LOG", default_value = "info")]
    pub log_level: String,
    /// Name of this operator's pod, which is what it leads under.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Namespace of this operator's pod.
    #[arg(long, env = "POD_NAMESPACE")]
    pub pod_namespace: Option<String>,
}

/// Form of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
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
