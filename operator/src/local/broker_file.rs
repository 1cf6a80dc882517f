//! The properties file of one broker: what the Cluster says, and who and where the broker is.

use std::collections::BTreeMap;

use super::folder::DataFolder;
use super::ports::Ports;
use crate::validate::ValidCluster;

/// Names of the listeners in the brokers' own configuration.
const INTERNAL: &str = "INTERNAL";
const CLIENT: &str = "CLIENT";

/// How many racks there are when the Cluster asks for rack awareness. This machine has none, so brokers are told that
/// they stand in three, and topics are placed as they would be in a cluster of three zones.
const RACKS: i32 = 3;

/// A broker's rack, if the Cluster wants racks.
pub(super) fn rack(cluster: &ValidCluster, broker: i32) -> Option<String> {
    cluster
        .racks
        .then(|| format!("rack-{}", broker.rem_euclid(RACKS)))
}

/// Everything in a broker's file.
pub(super) fn properties(
    cluster: &ValidCluster,
    config: &BTreeMap<String, String>,
    voters: &[i32],
    broker: i32,
    ports: Ports,
    folder: &DataFolder,
) -> BTreeMap<String, String> {
    let directories: Vec<String> = cluster
        .volumes
        .iter()
        .map(|volume| folder.volume(broker, volume).display().to_string())
        .collect();
    let quorum: Vec<String> = voters
        .iter()
        .map(|voter| format!("{voter}@{}", ports.internal(*voter)))
        .collect();
    let client = format!("{CLIENT}://{}", ports.client(broker));
    let internal = format!("{INTERNAL}://{}", ports.internal(broker));
    let listeners = format!("{internal},{client}");
    let mut properties = config.clone();
    let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
    set("node.id", broker.to_string());
    set("cluster.id", cluster.cluster_id.clone());
    set("log.dirs", directories.join(","));
    set("listeners", listeners.clone());
    set("advertised.listeners", listeners);
    set("inter.broker.listener.name", INTERNAL.to_owned());
    set("controller.quorum.voters", quorum.join(","));
    set(
        "taffrail.metrics.listener",
        ports.metrics(broker).to_string(),
    );
    if let Some(rack) = rack(cluster, broker) {
        set("broker.rack", rack);
    }
    properties
}
