//! Tables of cases over the public functions: what is accepted, what is refused and how that is said.

use super::*;

fn map(pairs: &[(&str, &str)]) -> ConfigMap {
    pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn file(pairs: &[(&str, &str)]) -> ConfigMap {
    let mut file = map(&[("node.id", "0"), ("log.dirs", "/data")]);
    file.extend(map(pairs));
    file
}

/// Every default must itself be readable and within bounds, and every synonym must exist.
#[test]
fn tables_agree_with_themselves() {
    for definition in TOPIC_CONFIGS.iter().chain(BROKER_CONFIGS) {
        if let Some(default) = definition.default {
            assert_eq!(
                layers::check_value(definition, default),
                Ok(()),
                "{}",
                definition.name
            );
        }
        assert!(definition.doc.ends_with('.'), "{}", definition.name);
        for synonym in definition.synonyms {
            assert!(
                broker_definition(synonym.name).is_some(),
                "{} -> {}",
                definition.name,
                synonym.name
            );
        }
    }
    for table in [TOPIC_CONFIGS, BROKER_CONFIGS] {
        let names: std::collections::BTreeSet<_> =
            table.iter().map(|definition| definition.name).collect();
        assert_eq!(names.len(), table.len());
    }
}

#[test]
fn broker_files_are_refused_with_the_key_the_value_and_what_is_allowed() {
    fn check(pairs: &[(&str, &str)], expected: &str) {
        let said = BrokerConfig::from_file(&file(pairs))
            .map(|_| String::new())
            .unwrap_or_else(|errors| errors.to_string());
        assert_eq!(said, expected, "{pairs:?}");
    }
    check(&[], "");
    check(
        &[("broker.id", "1")],
        "broker.id: unknown config; write node.id",
    );
    check(
        &[("nodeid", "1")],
        "nodeid: unknown config; did you mean node.id?",
    );
    check(
        &[("retention.ms", "1")],
        "retention.ms: unknown config; it is a config of topics",
    );
    check(
        &[("num.partitions", "0"), ("log.segment.bytes", "x")],
        "num.partitions: invalid value \"0\": must be an integer (32 bits) of at least 1\n\
         log.segment.bytes: invalid value \"x\": must be an integer (32 bits) of at least 1048576",
    );
    check(
        &[("num.partitions", "0"), ("node.id", "-1")],
        "node.id: invalid value \"-1\": must be an integer (32 bits) of at least 0\n\
         num.partitions: invalid value \"0\": must be an integer (32 bits) of at least 1",
    );
    check(
        &[
            ("listeners", "A://:1,B://:1"),
            ("inter.broker.listener.name", "A"),
        ],
        "listeners: \":1\" is used by two listeners",
    );
    check(
        &[("listeners", "A://:1")],
        "inter.broker.listener.name: \"INTERNAL\" is not one of the listeners: A",
    );
    check(
        &[("listeners", "tcp:9092")],
        "listeners: invalid value \"tcp:9092\": must be a comma-separated list of NAME://host:port",
    );
    check(
        &[("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")],
        "advertised.listeners: \"PLAINTEXT://0.0.0.0:9092\" names no host that a client could connect to",
    );
    check(
        &[("broker.heartbeat.interval.ms", "2000")],
        "broker.heartbeat.interval.ms: \"2000\" must not be more than half of broker.session.timeout.ms, 1500",
    );
    check(
        &[("cluster.id", "a b")],
        "cluster.id: \"a b\" must be 1 to 64 letters, digits, - or _",
    );
    check(
        &[("log.local.retention.ms", "5")],
        "log.local.retention.ms: invalid value \"5\": must be at its default (-2): Taffrail does not have this function",
    );
    assert_eq!(
        BrokerConfig::from_file(&map(&[("log.dirs", "/data")]))
            .unwrap_err()
            .to_string(),
        "node.id: must be set to an integer (32 bits) of at least 0"
    );
}

#[test]
fn topic_values_are_checked() {
    fn check(name: &str, value: &str, expected: &str) {
        let said = check_topic_value(name, value)
            .map(|()| String::new())
            .unwrap_or_else(|error| error.to_string());
        assert_eq!(said, expected, "{name}={value}");
    }
    check("cleanup.policy", "compact, delete", "");
    check("cleanup.policy", "", "");
    check(
        "cleanup.policy",
        "purge",
        "cleanup.policy: invalid value \"purge\": must be a comma-separated list of compact, delete",
    );
    check("retention.ms", "-1", "");
    check(
        "retention.ms",
        "-2",
        "retention.ms: invalid value \"-2\": must be an integer (64 bits) of at least -1",
    );
    check(
        "retention.ms",
        "9223372036854775808",
        "retention.ms: invalid value \"9223372036854775808\": must be an integer (64 bits) of at least -1",
    );
    check("min.cleanable.dirty.ratio", "0.3", "");
    check(
        "min.cleanable.dirty.ratio",
        "NaN",
        "min.cleanable.dirty.ratio: invalid value \"NaN\": must be a number between 0 and 1",
    );
    check("remote.storage.enable", "False", "");
    check(
        "remote.storage.enable",
        "true",
        "remote.storage.enable: invalid value \"true\": must be at its default (false): Taffrail does not have this function",
    );
    check("taffrail.flush", "ack", "");
    check(
        "taffrail.flush",
        "never",
        "taffrail.flush: invalid value \"never\": must be one of os, ack",
    );
    check(
        "log.segment.bytes",
        "1",
        "log.segment.bytes: unknown config; for a topic it is called segment.bytes",
    );
    check(
        "node.id",
        "1",
        "node.id: unknown config; it is a config of brokers, not of topics",
    );
}

#[test]
fn a_minimum_above_its_maximum_is_refused() {
    let errors = check_topic(&map(&[
        ("min.compaction.lag.ms", "10"),
        ("max.compaction.lag.ms", "5"),
    ]))
    .unwrap_err();
    assert_eq!(
        errors.to_string(),
        "min.compaction.lag.ms: \"10\" is more than max.compaction.lag.ms, 5"
    );
}

#[test]
fn the_nearest_layer_wins() {
    fn check(
        topic: &[(&str, &str)],
        broker: &[(&str, &str)],
        cluster: &[(&str, &str)],
        file: &[(&str, &str)],
        expected: i64,
    ) {
        let (topic, broker, cluster, file) = (map(topic), map(broker), map(cluster), map(file));
        let layers = Layers {
            file: &file,
            cluster: &cluster,
            broker: &broker,
        };
        assert_eq!(
            TopicConfig::from_layers(&layers, &topic)
                .unwrap()
                .retention_ms,
            expected
        );
    }
    check(&[], &[], &[], &[], 604_800_000);
    check(&[], &[], &[], &[("log.retention.hours", "1")], 3_600_000);
    check(&[], &[], &[], &[("log.retention.hours", "-1")], -1);
    check(
        &[],
        &[],
        &[],
        &[("log.retention.hours", "1"), ("log.retention.minutes", "1")],
        60_000,
    );
    check(
        &[],
        &[],
        &[("log.retention.ms", "7")],
        &[("log.retention.ms", "9")],
        7,
    );
    check(
        &[],
        &[("log.retention.ms", "5")],
        &[("log.retention.ms", "7")],
        &[],
        5,
    );
    check(
        &[("retention.ms", "3")],
        &[("log.retention.ms", "5")],
        &[],
        &[],
        3,
    );
}

#[test]
fn a_committed_value_that_cannot_be_read_falls_back_and_is_reported() {
    let (config, errors) = TopicConfig::lenient(
        &Layers::none(),
        &map(&[("segment.ms", "soon"), ("preallocate", "true")]),
    );
    assert_eq!(
        (config.segment_ms, config.preallocate, errors.len()),
        (604_800_000, true, 1)
    );
}

#[test]
fn descriptions_name_the_source_and_every_synonym() {
    let (file, cluster) = (
        map(&[("log.retention.hours", "2")]),
        map(&[("log.retention.ms", "7")]),
    );
    let layers = Layers {
        file: &file,
        cluster: &cluster,
        broker: &ConfigMap::new(),
    };
    let topic = map(&[("retention.ms", "5")]);
    let entries = describe_topic(&layers, &topic);
    assert!(entries.is_sorted_by_key(|entry| entry.name));
    assert!(
        !entries
            .iter()
            .any(|entry| entry.name.starts_with("internal."))
    );
    let entry = entries
        .iter()
        .find(|entry| entry.name == "retention.ms")
        .unwrap();
    assert_eq!(
        (entry.value.as_deref(), entry.source),
        (Some("5"), ConfigSource::DynamicTopic)
    );
    let synonyms: Vec<String> = entry
        .synonyms
        .iter()
        .map(|synonym| {
            format!(
                "{}={} {:?}",
                synonym.name,
                synonym.value.as_deref().unwrap_or("-"),
                synonym.source
            )
        })
        .collect();
    assert_eq!(
        synonyms,
        [
            "retention.ms=5 DynamicTopic",
            "log.retention.ms=7 DynamicCluster",
            "log.retention.hours=2 StaticBroker",
            "log.retention.hours=168 Default",
        ]
    );
    let entry = describe_broker(&layers)
        .into_iter()
        .find(|entry| entry.name == "node.id")
        .unwrap();
    assert_eq!((entry.value, entry.read_only), (None, true));
}

#[test]
fn only_dynamic_configs_are_altered_and_only_at_their_level() {
    fn check(name: &str, value: &str, one_broker: bool, expected: bool) {
        assert_eq!(
            check_broker_dynamic(name, value, one_broker).is_ok(),
            expected,
            "{name}={value}"
        );
    }
    check("log.retention.ms", "5", true, true);
    check("log.retention.ms", "x", true, false);
    check("min.insync.replicas", "2", false, true);
    check("min.insync.replicas", "2", true, false);
    check("node.id", "2", true, false);
    check("no.such", "2", true, false);
}

#[test]
fn a_value_has_an_end() {
    let check = |length: usize, expected: bool| {
        let value = ["1:1"].repeat(length / 4).join(",");
        let name = "leader.replication.throttled.replicas";
        assert_eq!(
            check_topic_value(name, &value).is_ok(),
            expected,
            "{length}"
        );
    };
    check(500 << 10, true);
    check(600 << 10, false);
}

#[test]
fn listeners_are_advertised_where_an_address_is_known() {
    fn check(pairs: &[(&str, &str)], expected: &[&str]) {
        let config = BrokerConfig::from_file(&file(pairs)).unwrap();
        let shown: Vec<String> = config
            .advertised()
            .iter()
            .map(Listener::to_string)
            .collect();
        assert_eq!(shown, expected);
    }
    check(&[], &[]);
    check(
        &[
            ("listeners", "INTERNAL://127.0.0.1:1,OUT://:2"),
            ("advertised.listeners", "OUT://h:3"),
        ],
        &["INTERNAL://127.0.0.1:1", "OUT://h:3"],
    );
}

#[test]
fn throttled_replicas_are_all_or_pairs_of_partition_and_broker() {
    let check = |text: &str, expected: Option<[bool; 3]>| {
        for name in [
            "leader.replication.throttled.replicas",
            "follower.replication.throttled.replicas",
        ] {
            let topic = map(&[(name, text)]);
            let found = TopicConfig::from_layers(&Layers::none(), &topic).ok();
            let replicas = found.map(|config| {
                let replicas = if name.starts_with("leader") {
                    config.leader_replication_throttled_replicas
                } else {
                    config.follower_replication_throttled_replicas
                };
                [(0, 1), (1, 0), (12, 3)]
                    .map(|(partition, broker)| replicas.contains(partition, broker))
            });
            assert_eq!(replicas, expected, "{name}={text}");
        }
    };
    check("", Some([false, false, false]));
    check("*", Some([true, true, true]));
    check("0:1", Some([true, false, false]));
    check("0:1, 12:3", Some([true, false, true]));
    for wrong in [
        "0",
        "0:",
        ":1",
        "0:1,",
        "0:1:2",
        "-1:0",
        "*,0:1",
        "a:b",
        "0:99999999999",
    ] {
        check(wrong, None);
    }
}

#[test]
fn the_only_replica_selector_is_the_rack_aware_one() {
    let check = |text: &str, expected: Result<bool, &str>| {
        let file = file(&[("replica.selector.class", text)]);
        let found = BrokerConfig::from_file(&file)
            .map(|config| config.replica_selector.is_some())
            .map_err(|errors| errors.to_string());
        assert_eq!(
            found.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|text| *text)
        );
    };
    let rack_aware = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    check(rack_aware, Ok(true));
    check(
        "com.example.Mine",
        Err(
            "replica.selector.class: invalid value \"com.example.Mine\": must be one of org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    );
}

#[test]
fn of_very_many_wrong_configs_only_some_are_told() {
    let check = |wrong: usize, expected: usize| {
        let names = (0..wrong).map(|number| format!("no.such.config.{number}"));
        let topic: ConfigMap = names.map(|name| (name, String::new())).collect();
        let told = check_topic(&topic).unwrap_err();
        assert_eq!(told.0.len(), expected, "{wrong}");
    };
    check(1, 1);
    check(100, 100);
    check(5_000, 100);
}
