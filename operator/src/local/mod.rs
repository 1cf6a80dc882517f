//! Runs a Cluster on this machine: brokers as child processes, the same validate, plan and Topic reconcile as in
//! Kubernetes. For trying and developing.

mod binary;
mod broker_file;
mod folder;
mod intent;
mod memory;
pub mod ports;
mod probe;
mod report;
mod run;
mod session;
mod show;
mod supervisor;
mod table;
mod watch;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::manifest::ManifestError;

pub use run::run;
pub use show::{show_plan, show_status};

/// Why a local cluster cannot be run. Each says in one sentence what is wrong and what to do.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The manifest cannot be used.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// No Cluster in the file.
    #[error("{}: holds no Cluster; one is needed", .0.display())]
    NoCluster(PathBuf),
    /// Several Clusters in the file.
    #[error("{}: holds {number} Clusters; a local run takes one, so split the file", path.display())]
    ManyClusters {
        /// The file.
        path: PathBuf,
        /// How many.
        number: usize,
    },
    /// The brokers' configuration is refused.
    #[error("{}: Cluster {cluster}: {message}", path.display())]
    Cluster {
        /// The file.
        path: PathBuf,
        /// The Cluster.
        cluster: String,
        /// Field and what is wrong.
        message: String,
    },
    /// A program already listens there.
    #[error(
        "port {port} ({purpose}) is taken by another program; stop it, or choose other ports with --base-port"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// What it is for.
        purpose: String,
    },
    /// No port to begin at.
    #[error(
        "--base-port 0: clients have to find the brokers again, so name the first port, such as {}",
        ports::DEFAULT_BASE
    )]
    PortZero,
    /// The ports would not fit.
    #[error(
        "--base-port {base}: {brokers} brokers need ports up to {last}, and 65535 is the highest"
    )]
    PortsTooHigh {
        /// The base.
        base: u16,
        /// How many brokers.
        brokers: i32,
        /// Highest port.
        last: u32,
    },
    /// There is no broker program.
    #[error(
        "the broker program is missing: {tried} is no executable file; build it with `cargo build --release`, or name it \
         with --broker-binary"
    )]
    NoBinary {
        /// Where it was looked for.
        tried: String,
    },
    /// The folder holds another cluster's data.
    #[error("{}: holds the data of {found}, not of {wanted}; choose another --data-dir", folder.display())]
    OtherCluster {
        /// The folder.
        folder: PathBuf,
        /// Whose data it is.
        found: String,
        /// Whose was expected.
        wanted: String,
    },
    /// The folder holds something else.
    #[error("{}: is not empty and holds no cluster's data; choose another --data-dir", .0.display())]
    NotOurs(PathBuf),
    /// Another run has the folder.
    #[error("{}: is in use by the local cluster of process {pid}; stop that one first, or choose another --data-dir", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process, as it wrote itself down.
        pid: String,
    },
    /// There is no cluster in the folder.
    #[error("{}: no local cluster has run here; start one with `taffrail-operator local -f FILE`", .0.display())]
    NothingHere(PathBuf),
    /// A file of the folder cannot be read as what it should be.
    #[error("{}: {error}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The file asks for what cannot be done.
    #[error("{}: {number} of what it asks for cannot be done as it stands; the plan says what and why", path.display())]
    NotDone {
        /// The file.
        path: PathBuf,
        /// How many refusals.
        number: usize,
    },
    /// The data folder, or something in it, cannot be used.
    #[error("{}: {error}{}", path.display(), data_advice(error))]
    Data {
        /// The folder or the file in it.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The disk says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The runtime, signals or metrics could not be set up.
    #[error("{what}: {error}")]
    Setup {
        /// What could not be set up.
        what: &'static str,
        /// Why.
        error: String,
    },
}

impl LocalError {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }

    fn data(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Data { path, error }
    }
}

/// What to do about a data folder that cannot be used, to follow the error.
fn data_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "; a folder is needed there, so choose another --data-dir"
        }
        io::ErrorKind::PermissionDenied => {
            "; run as the user whose folder it is, or choose another --data-dir"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull => {
            "; nothing can be written there, so make room, or choose another --data-dir"
        }
        _ => "",
    }
}
