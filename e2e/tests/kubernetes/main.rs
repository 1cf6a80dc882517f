//! On a real Kubernetes: install, apply, produce, consume, and everything that happens to a Cluster in its life.
//!
//! Runs by `make e2e` on one node or more; `kubernetes_zones` is what needs three.

mod admission;
mod clients;
mod examples;
mod install;
mod life;
mod metrics;
mod pods;
mod quiet;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use taffrail_e2e::kubernetes::client::{self, Client};

/// For a Cluster or a Topic to become ready, also on a machine that runs other tests, and with an operator that was just killed.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// The pod that clients run in.
fn client() -> Result<&'static Client> {
    client::client(Path::new(env!("CARGO_BIN_EXE_taffrail-e2e-client")))
}
