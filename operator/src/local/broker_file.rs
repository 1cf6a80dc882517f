//! The properties file of one broker: what the Cluster says, and who and where the broker is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
fn rack(cluster: &ValidCluster, broker: i32) -> Option<String> {
    cluster
        .racks
        .then(|| format!("rack-{}", broker.rem_euclid(RACKS)))
}

/// What a broker is told of its cluster, beside what the spec's config and volumes say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    /// Who votes on metadata.
    pub(super) voters: Vec<i32>,
    /// Its rack.
    pub(super) rack: Option<String>,
}

impl Told {
    /// What a broker would be told now.
    pub(super) fn now(cluster: &ValidCluster, voters: &[i32], broker: i32) -> Self {
        Self {
            voters: voters.to_vec(),
            rack: rack(cluster, broker),
        }
    }

    /// In what it differs from what a broker would be told now, as phrases.
    pub(super) fn outdated(&self, now: &Self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.voters != now.voters {
            reasons.push(format!(
                "the voters on metadata change from {:?} to {:?}",
                self.voters, now.voters
            ));
        }
        if self.rack != now.rack {
            let name = |told: &Self| told.rack.clone().unwrap_or_else(|| "none".to_owned());
            reasons.push(format!(
                "the rack changes from {} to {}",
                name(self),
                name(now)
            ));
        }
        reasons
    }
}

/// Everything in a broker's file.
pub(super) fn properties(
    cluster: &ValidCluster,
    config: &BTreeMap<String, String>,
    told: &Told,
    broker: i32,
    ports: Ports,
    folder: &DataFolder,
) -> BTreeMap<String, String> {
    let directories: Vec<String> = cluster
        .volumes
        .iter()
        .map(|volume| folder.volume(broker, volume).display().to_string())
        .collect();
    let quorum: Vec<String> = told
        .voters
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
    if let Some(rack) = &told.rack {
        set("broker.rack", rack.clone());
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world;

    #[test]
    fn what_a_broker_was_told_of_its_cluster_becomes_outdated() {
        let [plain, racks] = ["  brokers: 3", "  brokers: 3\n  rack: {topologyKey: zone}"]
            .map(|spec| world::valid(&world::cluster(spec)).cluster);
        let before = Told::now(&plain, &[0], 4);
        for (now, expected) in [
            (Told::now(&plain, &[0], 4), vec![]),
            (
                Told::now(&plain, &[0, 1, 2], 4),
                vec!["the voters on metadata change from [0] to [0, 1, 2]"],
            ),
            (
                Told::now(&racks, &[0], 4),
                vec!["the rack changes from none to rack-1"],
            ),
        ] {
            assert_eq!(before.outdated(&now), expected, "{now:?}");
        }
    }
}
