//! What is measured: a broker or a cluster of one kind, started by the bench itself.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use taffrail_e2e::admin::Admin;
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::port::Port;
use taffrail_e2e::process::{Process, resident_mb};
use taffrail_e2e::tools::sibling;
use taffrail_e2e::wait::wait_until;
use tempfile::TempDir;

/// How long a broker may take to answer after its start.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Whose broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerKind {
    /// The machine's limit.
    NullBroker,
    /// This repository's.
    Taffrail,
    /// Apache Kafka.
    Kafka,
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NullBroker => "null broker",
            Self::Taffrail => "Taffrail",
            Self::Kafka => "Apache Kafka",
        })
    }
}

/// A running peer.
pub(crate) struct Peer {
    kind: PeerKind,
    running: Running,
}

enum Running {
    Null {
        process: Process,
        port: Port,
        _folder: TempDir,
    },
    Cluster(Cluster),
}

impl Peer {
    /// Starts a peer of that many brokers.
    pub(crate) fn start(kind: PeerKind, brokers: usize) -> Result<Self> {
        let running = match kind {
            PeerKind::NullBroker => start_null_broker()?,
            PeerKind::Taffrail => Running::Cluster(start_cluster(BrokerKind::Taffrail, brokers)?),
            PeerKind::Kafka => Running::Cluster(
                start_cluster(BrokerKind::Kafka, brokers)
                    .context("Apache Kafka is missing; PEERS=none leaves it out")?,
            ),
        };
        Ok(Self { kind, running })
    }

    pub(crate) fn kind(&self) -> PeerKind {
        self.kind
    }

    /// The bootstrap string.
    pub(crate) fn bootstrap(&self) -> String {
        match &self.running {
            Running::Null { port, .. } => port.address(),
            Running::Cluster(cluster) => cluster.bootstrap(),
        }
    }

    /// The ids of all its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match &self.running {
            Running::Null { process, .. } => vec![process.pid()],
            Running::Cluster(cluster) => cluster.members().iter().filter_map(|m| m.pid()).collect(),
        }
    }

    /// Makes a topic; with three brokers it has three replicas, two of which must be in sync.
    pub(crate) fn create_topic(&self, topic: &str, partitions: i32) -> Result<()> {
        match &self.running {
            // It makes topics as they are named.
            Running::Null { .. } => Ok(()),
            Running::Cluster(cluster) if cluster.members().len() == 1 => {
                cluster.admin()?.create_topic(topic, partitions, 1, &[])
            }
            Running::Cluster(cluster) => {
                cluster
                    .admin()?
                    .create_topic(topic, partitions, 3, &[("min.insync.replicas", "2")])
            }
        }
    }

    /// Deletes a topic and its files.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<()> {
        Admin::connect(&self.bootstrap())?.delete_topic(topic)
    }

    /// Stops the broker, starts it again, and gives the seconds from the start of the process to the first answered Metadata.
    pub(crate) fn restart(&mut self) -> Result<f64> {
        let Running::Cluster(cluster) = &mut self.running else {
            bail!("the null broker keeps nothing")
        };
        cluster.stop(0)?;
        let address = cluster.members()[0].client.address();
        let start = Instant::now();
        cluster.start_broker(0)?;
        crate::cell::wait_for_metadata(&address, START_LIMIT)?;
        let seconds = start.elapsed().as_secs_f64();
        cluster.wait_ready()?;
        Ok(seconds)
    }

    /// Resident memory of all its processes, in MB.
    pub(crate) fn resident_mb(&self) -> Result<f64> {
        self.pids().iter().map(|pid| resident_mb(*pid)).sum()
    }

    /// Stops it; what it printed is of no interest.
    pub(crate) fn finish(self) {
        if let Running::Cluster(cluster) = self.running {
            cluster.finish();
        }
    }
}

fn start_null_broker() -> Result<Running> {
    let folder = tempfile::Builder::new()
        .prefix("taffrail-bench-")
        .tempdir()?;
    let port = Port::claim()?;
    let mut command = Command::new(sibling("null-broker")?);
    command
        .args(["--port", &port.number().to_string(), "--folder"])
        .arg(folder.path());
    let mut process = Process::spawn(
        "null broker",
        &mut command,
        &folder.path().join("null-broker.log"),
    )?;
    wait_until("the null broker to listen", START_LIMIT, || {
        process.must_run()?;
        Ok(std::net::TcpStream::connect(port.address()).is_ok())
    })?;
    Ok(Running::Null {
        process,
        port,
        _folder: folder,
    })
}

fn start_cluster(kind: BrokerKind, brokers: usize) -> Result<Cluster> {
    let mut spec = ClusterSpec {
        kind,
        brokers,
        config: Vec::new(),
        folder: None,
    };
    if kind == BrokerKind::Kafka {
        // A deleted topic's files go within the pause after its run, not in the middle of another peer's.
        spec = spec.with("log.segment.delete.delay.ms", "100");
    }
    Cluster::start(spec)
}
