//! The properties file of one broker: what the Cluster says, and who and where the broker is.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::folder::DataFolder;
use super::ports::Ports;
use crate::validate::ValidCluster;

/// Names of the listeners in the brokers' own configuration.
const INTERNAL: &str = "INTERNAL";
const CLIENT: &str = "CLIENT";

/// How many racks there are when the Cluster asks for rack awareness. This machine has none, so brokers are told that
/// they stand in three, and topics are placed as they would be in a cluster of three zones.
const RACKS: i32 = 3;

/// The brokers that vote on metadata, fixed when the cluster's data is made: one, or three if there are as many.
pub(super) fn voters(brokers: i32) -> Vec<i32> {
    (0..if brokers < 3 { 1 } else { 3 }).collect()
}

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

/// The file's text, in Java's properties format, in which a backslash, line breaks and leading blanks are written
/// with a backslash.
pub(super) fn text(properties: &BTreeMap<String, String>) -> String {
    let mut text = String::from("# Written by taffrail-operator; changes are overwritten.\n");
    for (name, value) in properties {
        let mut escaped = String::new();
        for (index, letter) in value.chars().enumerate() {
            match letter {
                '\\' => escaped.push_str("\\\\"),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                '\t' => escaped.push_str("\\t"),
                ' ' if index == 0 => escaped.push_str("\\ "),
                letter => escaped.push(letter),
            }
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}={escaped}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_sorted() {
        let properties = BTreeMap::from([
            ("b".to_owned(), " x\\y\nz".to_owned()),
            ("a".to_owned(), "1".to_owned()),
        ]);
        assert_eq!(
            text(&properties),
            "# Written by taffrail-operator; changes are overwritten.\na=1\nb=\\ x\\\\y\\nz\n"
        );
    }

    #[test]
    fn three_brokers_vote_or_one() {
        for (brokers, expected) in [
            (1, vec![0]),
            (2, vec![0]),
            (3, vec![0, 1, 2]),
            (9, vec![0, 1, 2]),
        ] {
            assert_eq!(voters(brokers), expected);
        }
    }
}
