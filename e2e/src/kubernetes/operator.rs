//! The operator, installed by Helm for the whole cluster.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::kubernetes::command::{attempt, bed, helm, run, text};
use crate::kubernetes::environment::environment;
use crate::kubernetes::namespace::{Namespace, delete_left_ones};
use crate::tools::repository;

/// Where it is installed.
pub const NAMESPACE: &str = "taffrail-system";
/// The Helm release.
pub const RELEASE: &str = "taffrail";
/// Its pods.
pub const SELECTOR: &str =
    "app.kubernetes.io/name=taffrail-operator,app.kubernetes.io/instance=taffrail";
/// For its pod to be ready.
const INSTALL_LIMIT: &str = "60s";

/// Installs it once for all tests of this process.
pub fn installed() -> Result<()> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            delete_left_ones()
                .and_then(|()| install())
                .map_err(|error| format!("{error:#}"))
        })
        .clone()
        .map_err(|error| anyhow!("the operator cannot be installed: {error}"))
}

/// `helm upgrade --install`, and waits until it is ready.
pub fn install() -> Result<()> {
    Namespace::ensure(NAMESPACE)?;
    let image = &environment()?.image;
    let (repository_of_image, tag) = image
        .rsplit_once(':')
        .with_context(|| format!("TAFFRAIL_IMAGE is {image}, which has no tag"))?;
    let chart = repository().join("charts/taffrail");
    run(
        helm(&["upgrade", "--install", RELEASE])
            .arg(chart)
            .args(["--namespace", NAMESPACE])
            .args(["--set", &format!("image.repository={repository_of_image}")])
            .args(["--set", &format!("image.tag={tag}")])
            .args(["--wait", "--timeout", INSTALL_LIMIT]),
        &[],
    )?;
    Ok(())
}

/// `helm uninstall`, and waits until its pod is gone.
pub fn uninstall() -> Result<()> {
    run(
        &mut helm(&[
            "uninstall",
            RELEASE,
            "--namespace",
            NAMESPACE,
            "--wait",
            "--timeout",
            INSTALL_LIMIT,
        ]),
        &[],
    )?;
    Ok(())
}

/// Takes away the Lease of an uninstalled operator. Its rights go with the release, so it cannot release the Lease any more, and the
/// next one waits until it has run out; where nothing was installed before, there is none.
pub fn forget_lease() -> Result<()> {
    Namespace::ensure(NAMESPACE)?.kubectl(&["delete", "leases", "--all"])?;
    Ok(())
}

/// Its pods that are not being deleted.
pub fn pods() -> Result<Vec<Value>> {
    let mut pods = Namespace::ensure(NAMESPACE)?.list("pods", SELECTOR)?;
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    Ok(pods)
}

/// While this is held, no test kills the operator: for what is measured and needs one.
pub fn undisturbed() -> MutexGuard<'static, ()> {
    static KILLS: Mutex<()> = Mutex::new(());
    KILLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills it without a word, as a node's end would, and takes its pod away, so that a new one starts without the kubelet's back-off.
pub fn kill() -> Result<()> {
    let _turn = undisturbed();
    let pods = pods()?;
    ensure!(!pods.is_empty(), "the operator has no pod");
    for pod in pods {
        if environment()?.bed.is_some() {
            let node = pod["spec"]["nodeName"]
                .as_str()
                .context("its pod has no node")?;
            kill_process(node)?;
        }
        let name = pod["metadata"]["name"]
            .as_str()
            .context("a pod has a name")?;
        Namespace::ensure(NAMESPACE)?.kubectl(&[
            "delete",
            "pod",
            name,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])?;
    }
    Ok(())
}

/// SIGKILL for every operator process of that machine, which shows only its own processes.
fn kill_process(node: &str) -> Result<()> {
    let found = attempt(
        &mut bed(&[
            "exec",
            node,
            "pgrep",
            "-f",
            "^/usr/bin/taffrail-operator run",
        ])?,
        &[],
    )?;
    for pid in String::from_utf8_lossy(&found.stdout).split_whitespace() {
        // It may have ended by itself in the meantime.
        attempt(&mut bed(&["exec", node, "kill", "-KILL", pid])?, &[])?;
    }
    Ok(())
}

/// Kills the operator once `moment` has passed since now: in the middle of what it was just told.
pub fn kill_after(moment: Duration) -> Result<()> {
    std::thread::sleep(moment);
    kill()
}

/// The end of its log.
pub fn log() -> Result<String> {
    text(
        &mut crate::kubernetes::command::kubectl(&[
            "-n",
            NAMESPACE,
            "logs",
            "-l",
            SELECTOR,
            "--tail=200",
        ]),
        "",
    )
}
