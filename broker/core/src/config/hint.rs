//! What to write instead of a config name that does not exist: Kafka's names that Taffrail does not have, names of the other kind,
//! and the name that was probably meant.

use super::{BROKER_CONFIGS, Definition, TOPIC_CONFIGS, broker_definition, topic_definition};

/// So many letters may be wrong, missing, too many or swapped with the next in a name that was probably meant: slips of the hand.
const MISTAKES_MAX: usize = 2;

/// Kafka's names that people bring along, and what to do about each.
const NOT_SERVED: &[(&str, &str)] = &[
    ("broker.id", "write node.id"),
    ("log.dir", "write log.dirs"),
    (
        "process.roles",
        "every broker keeps the metadata or follows it; leave it out",
    ),
    (
        "controller.listener.names",
        "controllers use inter.broker.listener.name; leave it out",
    ),
    (
        "controller.quorum.bootstrap.servers",
        "write controller.quorum.voters",
    ),
    (
        "security.inter.broker.protocol",
        "write inter.broker.listener.name",
    ),
    ("num.network.threads", "write taffrail.worker.threads"),
    ("num.io.threads", "write taffrail.worker.threads"),
    (
        "num.replica.fetchers",
        "one connection for each pair of brokers carries all partitions; leave it out",
    ),
    (
        "queued.max.requests",
        "write taffrail.connection.requests.max",
    ),
    (
        "controlled.shutdown.max.retries",
        "write taffrail.shutdown.timeout.ms",
    ),
    (
        "controlled.shutdown.retry.backoff.ms",
        "write taffrail.shutdown.timeout.ms",
    ),
    (
        "log.cleaner.enable",
        "there is no compaction yet; leave it out",
    ),
    (
        "zookeeper.connect",
        "the brokers keep their metadata themselves; leave it out",
    ),
    (
        "remote.log.storage.system.enable",
        "there is no tiered storage; leave it out",
    ),
];

/// For a broker's file, or the config of a Cluster.
pub(super) fn broker_hint(name: &str) -> Option<String> {
    if let Some((_, advice)) = NOT_SERVED.iter().find(|(known, _)| *known == name) {
        return Some((*advice).to_string());
    }
    if topic_definition(name).is_some() {
        return Some("it is a config of topics".to_string());
    }
    meant(name, BROKER_CONFIGS)
}

/// For a topic. Whoever writes a broker's name is told the topic's.
pub(super) fn topic_hint(name: &str) -> Option<String> {
    let is_synonym = |definition: &&Definition| {
        let mut synonyms = definition.synonyms.iter();
        synonyms.any(|synonym| synonym.name == name)
    };
    if let Some(definition) = TOPIC_CONFIGS.iter().find(is_synonym) {
        return Some(format!("for a topic it is called {}", definition.name));
    }
    if broker_definition(name).is_some() {
        return Some("it is a config of brokers, not of topics".to_string());
    }
    meant(name, TOPIC_CONFIGS)
}

/// The nearest of the names that exist, if one is near.
fn meant(name: &str, definitions: &[Definition]) -> Option<String> {
    let name = squeezed(name);
    let distances = definitions.iter().filter_map(|definition| {
        let mistakes = mistakes(&name, &squeezed(definition.name))?;
        Some((mistakes, definition.name))
    });
    let (_, nearest) = distances.min_by_key(|(mistakes, _)| *mistakes)?;
    Some(format!("did you mean {nearest}?"))
}

/// Dots, dashes and capitals are the first thing to go wrong.
fn squeezed(name: &str) -> Vec<u8> {
    let letters = name.bytes().filter(|byte| !b"._-".contains(byte));
    letters.map(|byte| byte.to_ascii_lowercase()).collect()
}

/// How many letters have to be changed, added, removed or swapped with the next to make one text of the other; `None` for more
/// than are mistakes (Damerau and Levenshtein's distance).
fn mistakes(one: &[u8], other: &[u8]) -> Option<usize> {
    if one.len().abs_diff(other.len()) > MISTAKES_MAX {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let changed = row[j] + usize::from(letter != wanted);
            let mut least = changed.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *wanted {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|found| *found <= MISTAKES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_almost_right_are_known() {
        let check = |hint: fn(&str) -> Option<String>, name: &str, expected: Option<&str>| {
            let expected = expected.map(|name| format!("did you mean {name}?"));
            assert_eq!(hint(name), expected, "{name}");
        };
        check(topic_hint, "retension.ms", Some("retention.ms"));
        check(topic_hint, "retention_ms", Some("retention.ms"));
        check(topic_hint, "cleanup.polciy", Some("cleanup.policy"));
        check(
            topic_hint,
            "min.insync.replica",
            Some("min.insync.replicas"),
        );
        check(topic_hint, "max.mesage.byte", Some("max.message.bytes"));
        check(topic_hint, "ttl", None);
        check(topic_hint, "", None);
        check(broker_hint, "nodeid", Some("node.id"));
        check(broker_hint, "num.partitons", Some("num.partitions"));
        check(
            broker_hint,
            "log.retention.hour",
            Some("log.retention.hours"),
        );
        check(broker_hint, "sasl.enabled.mechanisms", None);
        check(broker_hint, &"x".repeat(1 << 20), None);
    }

    #[test]
    fn a_letter_more_or_less_or_another_or_two_swapped_is_one_mistake() {
        let check = |one: &str, other: &str, expected: Option<usize>| {
            let found = mistakes(one.as_bytes(), other.as_bytes());
            assert_eq!(found, expected, "{one} {other}");
        };
        check("abc", "abc", Some(0));
        check("abc", "abxc", Some(1));
        check("abc", "ac", Some(1));
        check("abc", "axc", Some(1));
        check("abc", "acb", Some(1));
        check("abcd", "badc", Some(2));
        check("", "ab", Some(2));
        check("abc", "xyz", None);
        check("abc", "abcdef", None);
    }
}
