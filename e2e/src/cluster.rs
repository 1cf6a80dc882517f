//! A cluster of broker processes on this machine, in a folder of its own.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::admin::Admin;
use crate::port::Port;
use crate::process::{Process, tail};
use crate::wait::wait_for;
use crate::{kafka, taffrail};

/// Long enough for three JVMs that start on two busy cores.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a broker may take over SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// Whose brokers a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    /// The broker of this repository.
    Taffrail,
    /// Apache Kafka, the reference.
    Kafka,
}

impl BrokerKind {
    /// `E2E_BROKER`: `taffrail` (the default) or `kafka`.
    pub fn from_environment() -> Result<Self> {
        match env::var("E2E_BROKER").as_deref() {
            Err(_) | Ok("" | "taffrail") => Ok(Self::Taffrail),
            Ok("kafka") => Ok(Self::Kafka),
            Ok(other) => bail!("E2E_BROKER is taffrail or kafka, not {other}"),
        }
    }
}

/// What a test asks for.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// Whose brokers.
    pub kind: BrokerKind,
    /// How many of them; ids count from 0.
    pub brokers: usize,
    /// More broker properties, under names that Kafka and Taffrail share.
    pub config: Vec<(String, String)>,
    /// The folder for the cluster's data; `None` is a temporary one that goes with the cluster.
    pub folder: Option<PathBuf>,
}

impl ClusterSpec {
    /// `brokers` brokers of the kind that the environment names.
    pub fn new(brokers: usize) -> Result<Self> {
        Ok(Self {
            kind: BrokerKind::from_environment()?,
            brokers,
            config: Vec::new(),
            folder: None,
        })
    }

    /// Adds a broker property.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// One broker's place in the cluster, whether it runs or not.
#[derive(Debug)]
pub struct Member {
    /// The broker id.
    pub id: usize,
    /// Where clients connect.
    pub client: Port,
    /// Where brokers (and, for Kafka, controllers) connect.
    pub internal: Port,
    /// Where metrics are served (Taffrail only).
    pub metrics: Port,
    /// Its own folder: configuration, output and data.
    pub folder: PathBuf,
    process: Option<Process>,
}

impl Member {
    /// Its log directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Where its HTTP port answers (Taffrail only), with this path.
    pub fn http(&self, path: &str) -> String {
        format!("http://{}{path}", self.metrics.address())
    }

    /// Where its output goes.
    pub fn log(&self) -> PathBuf {
        self.folder.join("broker.log")
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }
}

/// A running cluster. Dropped without [`Cluster::finish`], it prints the end of every broker's output.
#[derive(Debug)]
pub struct Cluster {
    spec: ClusterSpec,
    members: Vec<Member>,
    passed: bool,
    _folder: Option<TempDir>,
}

impl Cluster {
    /// Starts `brokers` brokers and waits until each is known to clients.
    pub fn of(brokers: usize) -> Result<Self> {
        Self::start(ClusterSpec::new(brokers)?)
    }

    /// Starts what `spec` asks for and waits until each broker is known to clients.
    pub fn start(spec: ClusterSpec) -> Result<Self> {
        let mut cluster = Self::prepare(spec)?;
        for id in 0..cluster.members.len() {
            cluster.start_broker(id)?;
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Lays out folders, ports and configuration without starting anything.
    pub fn prepare(spec: ClusterSpec) -> Result<Self> {
        let (root, folder) = match &spec.folder {
            Some(path) => (path.clone(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("taffrail-e2e-").tempdir()?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let members = (0..spec.brokers)
            .map(|id| prepare_member(id, &root))
            .collect::<Result<Vec<_>>>()?;
        let cluster_id = kafka::random_id()?;
        match spec.kind {
            BrokerKind::Taffrail => taffrail::configure(&members, &cluster_id, &spec.config)?,
            BrokerKind::Kafka => kafka::configure(&members, &cluster_id, &spec.config)?,
        }
        Ok(Self {
            spec,
            members,
            passed: false,
            _folder: folder,
        })
    }

    /// Starts broker `id`, which must not run.
    pub fn start_broker(&mut self, id: usize) -> Result<()> {
        let kind = self.spec.kind;
        let member = self.member_mut(id)?;
        if member.process.is_some() {
            bail!("broker {id} runs already");
        }
        let mut command: Command = match kind {
            BrokerKind::Taffrail => taffrail::command(&member.folder)?,
            BrokerKind::Kafka => kafka::command(&member.folder)?,
        };
        member.process = Some(Process::spawn(
            &format!("broker {id}"),
            &mut command,
            &member.log(),
        )?);
        Ok(())
    }

    /// Waits until every broker that runs is part of the cluster, as each of them tells it.
    pub fn wait_ready(&mut self) -> Result<()> {
        let running = self.members.iter().filter(|m| m.process.is_some()).count();
        for member in &mut self.members {
            let (id, address) = (member.id, member.client.address());
            let Some(process) = &mut member.process else {
                continue;
            };
            let admin = Admin::connect(&address)?;
            // A broker that gave up is reported at once, with its output, instead of at the deadline.
            let known = wait_for(
                &format!("broker {id} to know {running} brokers"),
                START_LIMIT,
                || {
                    if let Err(gone) = process.must_run() {
                        return Ok(Some(Err(gone)));
                    }
                    Ok((admin.brokers()?.len() >= running).then_some(Ok(())))
                },
            )?;
            known?;
        }
        Ok(())
    }

    /// kill -9.
    pub fn kill(&mut self, id: usize) -> Result<()> {
        let member = self.member_mut(id)?;
        member
            .process
            .take()
            .with_context(|| format!("broker {id} does not run"))?
            .kill()
    }

    /// SIGTERM; gives how long the broker took to stop.
    pub fn stop(&mut self, id: usize) -> Result<Duration> {
        let member = self.member_mut(id)?;
        member
            .process
            .take()
            .with_context(|| format!("broker {id} does not run"))?
            .terminate(STOP_LIMIT)
    }

    /// Sends a signal (SIGSTOP, SIGCONT) to a broker that runs.
    pub fn signal(&mut self, id: usize, signal: i32) -> Result<()> {
        let member = self.member_mut(id)?;
        member
            .process
            .as_ref()
            .with_context(|| format!("broker {id} does not run"))?
            .signal(signal)
    }

    /// The bootstrap string of all brokers.
    pub fn bootstrap(&self) -> String {
        self.members
            .iter()
            .map(|m| m.client.address())
            .collect::<Vec<_>>()
            .join(",")
    }

    /// An admin client of this cluster.
    pub fn admin(&self) -> Result<Admin> {
        Admin::connect(&self.bootstrap())
    }

    /// The cluster's brokers, in order of their ids.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whose brokers these are.
    pub fn kind(&self) -> BrokerKind {
        self.spec.kind
    }

    /// The folder of one partition on one broker.
    pub fn partition_folder(&self, broker: usize, topic: &str, partition: i32) -> PathBuf {
        self.members[broker]
            .data()
            .join(format!("{topic}-{partition}"))
    }

    /// Says that the test has passed: nothing is printed when the cluster is dropped.
    pub fn finish(mut self) {
        self.passed = true;
    }

    /// Fails if a broker that should run has ended.
    pub fn must_run(&mut self) -> Result<()> {
        for member in &mut self.members {
            if let Some(process) = &mut member.process {
                process.must_run()?;
            }
        }
        Ok(())
    }

    fn member_mut(&mut self, id: usize) -> Result<&mut Member> {
        self.members
            .get_mut(id)
            .with_context(|| format!("there is no broker {id}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.passed {
            return;
        }
        for member in &self.members {
            eprintln!(
                "---- end of the output of broker {} ----\n{}",
                member.id,
                tail(&member.log(), 40)
            );
        }
    }
}

fn prepare_member(id: usize, root: &Path) -> Result<Member> {
    let folder = root.join(format!("broker-{id}"));
    std::fs::create_dir_all(folder.join("data"))?;
    Ok(Member {
        id,
        client: Port::claim()?,
        internal: Port::claim()?,
        metrics: Port::claim()?,
        folder,
        process: None,
    })
}
