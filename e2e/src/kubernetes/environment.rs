//! What `make e2e` tells the suite about the cluster that it runs on.

use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

/// Where the suite runs.
#[derive(Debug)]
pub struct Environment {
    /// The image under test, as nodes know it.
    pub image: String,
    /// An image with kcat and busybox.
    pub client_image: String,
    /// The test bed's program, if the cluster is one of its own: it reaches into machines and pulls their plugs.
    pub bed: Option<PathBuf>,
    /// An address of a node that NodePorts answer at.
    pub node_address: String,
    /// The API server's audit log of writes by service accounts, if it can be read.
    pub audit_log: Option<PathBuf>,
}

/// Reads the environment once; what is missing is named.
pub fn environment() -> Result<&'static Environment> {
    static ENVIRONMENT: OnceLock<Result<Environment, String>> = OnceLock::new();
    ENVIRONMENT
        .get_or_init(read)
        .as_ref()
        .map_err(|missing| anyhow!("{missing}"))
}

fn read() -> Result<Environment, String> {
    let optional = |name: &str| {
        env::var(name)
            .ok()
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    // kubectl and Helm read it themselves.
    required("KUBECONFIG", "the cluster to test on")?;
    Ok(Environment {
        image: required("TAFFRAIL_IMAGE", "the image under test")?,
        client_image: required("TAFFRAIL_CLIENT_IMAGE", "an image with kcat and busybox")?,
        bed: optional("TAFFRAIL_BED"),
        node_address: required("TAFFRAIL_NODE_ADDRESS", "an address of a node")?,
        audit_log: optional("TAFFRAIL_AUDIT_LOG"),
    })
}

fn required(name: &str, what: &str) -> Result<String, String> {
    match env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        _ => Err(format!(
            "{name} does not say {what}: run the suite by `make e2e`, which sets it"
        )),
    }
}
