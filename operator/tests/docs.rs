//! The documentation keeps up with the code: it names every reason, its manifests are admitted, and its metrics exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use taffrail_crds::admission::admit;
use taffrail_operator::refusal::Reason;

const DOCUMENTS: [&str; 2] = ["README.md", "docs/kubernetes.md"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_reason_is_explained() {
    let document = read("docs/kubernetes.md");
    let words = Reason::ALL.iter().map(|reason| reason.word());
    // Those that are no refusals stand in the code that computes status.
    let others = [
        "AsSpecified",
        "AllReady",
        "AllInSync",
        "NoLeader",
        "UnderReplicated",
        "NotObserved",
    ];
    let missing: Vec<&str> = words
        .chain(others)
        .filter(|word| !document.contains(&format!("`{word}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/kubernetes.md does not name {missing:?}"
    );
}

#[test]
fn manifests_are_admitted() {
    for path in DOCUMENTS {
        let document = read(path);
        for block in document.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            for manifest in serde_yaml::Deserializer::from_str(block) {
                let manifest = Value::deserialize(manifest).expect("YAML");
                if manifest.get("kind").is_some() {
                    let admitted = admit(&manifest, None);
                    assert!(admitted.is_ok(), "{path}: {admitted:?} in {block}");
                }
            }
        }
    }
}

#[test]
fn metrics_exist() {
    let sources = [
        "broker/node/src/metrics.rs",
        "broker/server/src/connection/connections.rs",
        "broker/server/src/http/process.rs",
        "operator/src/metrics.rs",
    ];
    let code: String = sources.into_iter().map(read).collect();
    // Where names are put together from a prefix.
    let code = code
        .replace("{server}", "kafka_server_replicamanager_")
        .replace("{controller}", "kafka_controller_kafkacontroller_")
        .replace("{prefix}", "kafka_server_socketservermetrics");
    for path in DOCUMENTS {
        let document = read(path);
        let words: BTreeSet<&str> = document
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| {
                ["kafka_", "taffrail_", "process_"]
                    .iter()
                    .any(|prefix| word.starts_with(prefix))
            })
            // `kafka_server_…` is an ellipsis.
            .filter(|word| !word.ends_with('_'))
            .collect();
        assert!(!words.is_empty(), "{path} names no metric");
        for word in words {
            assert!(
                code.contains(&format!("\"{word}\"")),
                "{path}: no metric {word}"
            );
        }
    }
}

#[test]
fn what_the_bed_needs_is_said_where_it_is_offered() {
    let demands = read("e2e/kubernetes/testbed/requirements.py");
    let document = read("README.md");
    let paragraphs = document.split("\n\n");
    let offered: Vec<&str> = paragraphs
        .filter(|paragraph| paragraph.contains("`make cluster-up`"))
        .collect();
    assert!(!offered.is_empty(), "README.md does not name it");
    for (demand, word) in [
        ("require_root()", "root"),
        ("cgroups.hierarchies()", "mounted as v1"),
        ("\"Linux\"", "Linux"),
    ] {
        assert!(
            demands.contains(demand),
            "the bed no longer asks for {word}"
        );
        for paragraph in &offered {
            assert!(paragraph.contains(word), "{word} is not said: {paragraph}");
        }
    }
}
