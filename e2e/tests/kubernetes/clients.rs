//! Clients in a pod and outside: every byte arrives.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use taffrail_e2e::kubernetes::environment::environment;
use taffrail_e2e::kubernetes::kafka::{Kafka, consume_words, must_be, produce_words};
use taffrail_e2e::kubernetes::kinds::{cluster, topic, with};
use taffrail_e2e::kubernetes::outside::run_outside;
use taffrail_e2e::kubernetes::turn::together;
use taffrail_e2e::text::Text;

use crate::{READY_LIMIT, client};

/// Lines that travel each way.
const LINES: usize = 100_000;

#[test]
fn records_arrive_byte_for_byte_in_a_pod_and_through_node_ports() -> Result<()> {
    together("clients", |namespace| {
        let listeners = json!([
            {"name": "internal", "port": 9092, "type": "Internal"},
            {"name": "external", "port": 9094, "type": "NodePort", "allowUnauthenticated": true},
        ]);
        namespace.apply(&with(cluster(3), "listeners", listeners))?;
        for name in ["inside", "outside"] {
            namespace.apply(&topic(name, 6))?;
        }
        let ready = namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        for name in ["inside", "outside"] {
            namespace.wait_ready(&format!("topic/{name}"), READY_LIMIT)?;
        }
        let text = Text::of(LINES)?;
        let kafka = Kafka::of(namespace, client()?);
        kafka.produce("inside", &text, 0, LINES)?;
        kafka.must_hold("inside", &text, LINES)?;

        let external = ready["status"]["listeners"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|listener| listener["name"] == "external")
            .and_then(|listener| listener["bootstrapServers"].as_str())
            .with_context(|| format!("no external listener in {}", ready["status"]))?;
        ensure!(
            external.contains(&environment()?.node_address),
            "outside clients are sent to {external}"
        );
        let outside = |words: Vec<&str>, input: &[u8]| {
            let mut all = vec!["timeout", "120", "kcat", "-b", external];
            all.extend(words);
            run_outside(&all, input)
        };
        outside(produce_words("outside"), &text.keyed(0, LINES))?;
        must_be(&text, LINES, &outside(consume_words("outside"), &[])?)?;
        // What came in by one door goes out by the other.
        must_be(&text, LINES, &outside(consume_words("inside"), &[])?)?;
        kafka.must_hold("outside", &text, LINES)
    })
}
