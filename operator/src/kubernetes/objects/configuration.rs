//! The ConfigMap with the brokers' properties file. It is immutable and named by its content, so that a pod can never
//! see an older or a newer file than the one that its template names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::labels::metadata;
use super::{BETWEEN_BROKERS, Blueprint, INTERNAL_PORT, METRICS_PORT, broker_listener_name};
use crate::object::content_hash;
use crate::properties;

/// The brokers' file, among the ConfigMap's data.
pub(super) const FILE: &str = "broker.properties";

/// The part of it that the Cluster's spec says, as JSON.
pub(super) const SPEC_CONFIG: &str = "spec-config.json";

/// Where volumes are mounted, each in a folder of its name.
pub(super) const DATA: &str = "/var/lib/taffrail";

/// What stays of the grace period for everything but handing over.
const EXIT_MS: i64 = 10_000;

/// Grace period where the spec says nothing, in seconds. A namespace that is deleted is looked at again only after half of
/// it, so a longer one holds up everything else in there.
const GRACE_S: i64 = 45;

/// The ConfigMap that new pods are to use.
pub fn config_map(blueprint: &Blueprint<'_>) -> ConfigMap {
    let data = BTreeMap::from([
        (
            FILE.to_owned(),
            properties::text(&broker_properties(blueprint)),
        ),
        (SPEC_CONFIG.to_owned(), json(blueprint.config)),
    ]);
    let hash = content_hash(&json(&data));
    ConfigMap {
        metadata: metadata(blueprint, blueprint.names().configuration(&hash)),
        immutable: Some(true),
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// The Cluster's configuration that a ConfigMap of [`config_map`] carries.
pub fn config_of(config_map: &ConfigMap) -> Option<BTreeMap<String, String>> {
    serde_json::from_str(config_map.data.as_ref()?.get(SPEC_CONFIG)?).ok()
}

/// What else a ConfigMap says: the names that the operator sets, with their values as written.
pub(super) fn set_by_operator(config_map: &ConfigMap) -> BTreeMap<&str, &str> {
    let file = config_map.data.as_ref().and_then(|data| data.get(FILE));
    let config = config_of(config_map).unwrap_or_default();
    file.map(String::as_str)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !config.contains_key(*name))
        .collect()
}

/// Seconds that a pod gets to stop.
pub(super) fn grace_period(blueprint: &Blueprint<'_>) -> i64 {
    let pod = blueprint.spec.pod.as_ref();
    pod.and_then(|pod| pod.termination_grace_period_seconds)
        .unwrap_or(GRACE_S)
}

fn broker_properties(blueprint: &Blueprint<'_>) -> BTreeMap<String, String> {
    let cluster = blueprint.cluster;
    let names = blueprint.names();
    let mut properties = BTreeMap::new();
    let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
    // What the spec may say otherwise.
    set("taffrail.log.format", "json".to_owned());
    let grace_ms = grace_period(blueprint).saturating_mul(1000);
    set(
        "taffrail.shutdown.timeout.ms",
        (grace_ms - EXIT_MS).max(grace_ms / 2).to_string(),
    );
    properties.extend(blueprint.config.clone());
    let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
    set("cluster.id", cluster.cluster_id.clone());
    let directories: Vec<String> = cluster
        .volumes
        .iter()
        .map(|volume| format!("{DATA}/{volume}"))
        .collect();
    set("log.dirs", directories.join(","));
    let mut listeners = vec![format!("{BETWEEN_BROKERS}://:{INTERNAL_PORT}")];
    for listener in &cluster.listeners {
        let name = broker_listener_name(&listener.name);
        listeners.push(format!("{name}://:{}", listener.port));
    }
    set("listeners", listeners.join(","));
    set("inter.broker.listener.name", BETWEEN_BROKERS.to_owned());
    let voters: Vec<String> = blueprint
        .voters
        .iter()
        .map(|voter| format!("{voter}@{}:{INTERNAL_PORT}", names.host(&names.pod(*voter))))
        .collect();
    set("controller.quorum.voters", voters.join(","));
    set("taffrail.metrics.listener", format!(":{METRICS_PORT}"));
    if cluster.racks {
        set("taffrail.rack.required", true.to_string());
    }
    properties
}

fn json(map: &BTreeMap<String, String>) -> String {
    // A map of strings has no value that JSON cannot hold.
    serde_json::to_string(map).unwrap_or_default()
}
