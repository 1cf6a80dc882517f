//! Who wrote what to the API server: from its audit log, which names the writer and the verb of every request.
//!
//! Where the log cannot be read, the versions of the objects tell at least which of them changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::kubernetes::environment::environment;
use crate::kubernetes::namespace::Namespace;
use crate::kubernetes::operator;

/// Everything that an operator might write to in a namespace of its Clusters.
const KINDS: &str = "clusters,topics,statefulsets,services,configmaps,serviceaccounts,poddisruptionbudgets,pods,persistentvolumeclaims,events";

/// A moment from which on writes are counted.
#[derive(Debug)]
pub enum Moment {
    /// The end of the audit log.
    Audit {
        /// The log.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// The version of each object.
    Versions(BTreeMap<String, String>),
}

/// Now.
pub fn now(namespace: &Namespace) -> Result<Moment> {
    match &environment()?.audit_log {
        Some(path) => Ok(Moment::Audit {
            path: path.clone(),
            size: std::fs::metadata(path)
                .with_context(|| format!("cannot see the audit log {}", path.display()))?
                .len(),
        }),
        None => Ok(Moment::Versions(versions(namespace)?)),
    }
}

/// Requests by which the operator wrote since then, the renewal of its own Lease not counted.
pub fn since(moment: &Moment, namespace: &Namespace) -> Result<Vec<String>> {
    match moment {
        Moment::Audit { path, size } => audited(path, *size),
        Moment::Versions(before) => {
            let now = versions(namespace)?;
            let changed = now
                .iter()
                .filter(|(name, version)| before.get(*name) != Some(*version));
            Ok(changed.map(|(name, _)| name.clone()).collect())
        }
    }
}

/// How often the operator renewed its Lease since then, if the audit log tells.
pub fn renewals_since(moment: &Moment) -> Result<Option<usize>> {
    match moment {
        Moment::Audit { path, size } => {
            let events = events(path, *size)?;
            Ok(Some(
                events.iter().filter(|event| is_own_lease(event)).count(),
            ))
        }
        Moment::Versions(_) => Ok(None),
    }
}

fn audited(path: &PathBuf, size: u64) -> Result<Vec<String>> {
    let events = events(path, size)?;
    let others = events.iter().filter(|event| !is_own_lease(event));
    Ok(others
        .map(|event| {
            let object = &event["objectRef"];
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!(
                "{} {}/{} {}/{} ({})",
                word(&event["verb"]),
                word(&object["resource"]),
                word(&object["subresource"]),
                word(&object["namespace"]),
                word(&object["name"]),
                event["responseStatus"]["code"],
            )
        })
        .collect())
}

/// The operator's writes behind that place of the log.
fn events(path: &PathBuf, size: u64) -> Result<Vec<Value>> {
    let user = format!("system:serviceaccount:{}:", operator::NAMESPACE);
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(size))?;
    let mut events = Vec::new();
    for line in BufReader::new(file).lines() {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let is_write = ["create", "update", "patch", "delete", "deletecollection"]
            .iter()
            .any(|verb| event["verb"] == *verb);
        let is_operator = event["user"]["username"]
            .as_str()
            .is_some_and(|name| name.starts_with(&user));
        if is_write && is_operator {
            events.push(event);
        }
    }
    Ok(events)
}

fn is_own_lease(event: &Value) -> bool {
    let object = &event["objectRef"];
    object["resource"] == "leases" && object["namespace"] == operator::NAMESPACE
}

fn versions(namespace: &Namespace) -> Result<BTreeMap<String, String>> {
    let objects = namespace.list(KINDS, "")?;
    Ok(objects
        .iter()
        .map(|object| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let meta = &object["metadata"];
            (
                format!("{}/{}", word(&object["kind"]), word(&meta["name"])),
                word(&meta["resourceVersion"]),
            )
        })
        .collect())
}
