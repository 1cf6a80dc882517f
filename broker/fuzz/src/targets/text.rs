//! What people write: topic configs, the broker's file, manifests.

use std::path::Path;

use taffrail_core::config::{
    BROKER_CONFIGS, BrokerConfig, ConfigMap, Layers, TOPIC_CONFIGS, TopicConfig, check_topic,
};
use taffrail_operator::manifest;

use super::{Memory, Target};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "topic_config",
        run: topic_config,
        seeds: topic_configs,
        // Each line becomes a name, a value and an error that names both and what is allowed.
        memory: Memory {
            times: 256,
            always: 256 * 1024,
        },
    },
    Target {
        name: "broker_config",
        run: broker_config,
        seeds: broker_configs,
        memory: Memory {
            times: 256,
            always: 256 * 1024,
        },
    },
    Target {
        name: "manifest",
        run: manifests,
        seeds: manifest_seeds,
        // A YAML tree of scalars: two bytes become a value, and each document is admitted against the whole schema.
        memory: Memory {
            times: 1024,
            always: 64 << 20,
        },
    },
];

/// `name=value` lines.
fn map(data: &[u8]) -> ConfigMap {
    let text = String::from_utf8_lossy(data);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn topic_config(data: &[u8]) {
    let topic = map(data);
    let checked = check_topic(&topic);
    let (_, errors) = TopicConfig::lenient(&Layers::none(), &topic);
    if checked.is_ok() {
        assert!(
            errors.is_empty(),
            "{topic:?} is accepted and cannot be read: {errors:?}"
        );
    }
}

fn broker_config(data: &[u8]) {
    let file = map(data);
    if let Err(errors) = BrokerConfig::from_file(&file) {
        assert!(!errors.to_string().is_empty());
    }
    let (_, _) = BrokerConfig::lenient(&Layers::of_file(&file));
}

fn topic_configs() -> Vec<Vec<u8>> {
    let one = |name: &str, value: &str| format!("{name}={value}\n").into_bytes();
    let mut seeds: Vec<Vec<u8>> = TOPIC_CONFIGS
        .iter()
        .filter_map(|definition| Some(one(definition.name, definition.default?)))
        .collect();
    seeds.push(one("follower.replication.throttled.replicas", "0:1,1:2"));
    seeds
}

fn broker_configs() -> Vec<Vec<u8>> {
    let head = "node.id=0\nlog.dirs=/data\ncluster.id=c\n";
    let mut seeds: Vec<Vec<u8>> = BROKER_CONFIGS
        .iter()
        .filter_map(|definition| Some((definition.name, definition.default?)))
        .map(|(name, default)| format!("{head}{name}={default}\n").into_bytes())
        .collect();
    let voters =
        "controller.quorum.voters=0@a:9093,1@[::1]:9093\nlisteners=INTERNAL://:9093,A://h:1\n";
    seeds.push(format!("{head}{voters}").into_bytes());
    seeds
}

fn manifests(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(file) = manifest::parse(Path::new("fuzz.yaml"), &text) {
        // Whatever it says of the objects.
        drop(manifest::objects(&file));
    }
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../../examples/quickstart.yaml").to_vec(),
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n".to_vec(),
    ]
}
