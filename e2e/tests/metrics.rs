//! The metrics of broker and operator, read by the reference parser of the Prometheus text format.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::local::{BROKERS, Local};
use taffrail_e2e::python::parse_metrics;
use taffrail_e2e::read::read_all;
use taffrail_e2e::text::Text;

const MANIFEST: &str = "
apiVersion: taffrail.io/v1alpha1
kind: Cluster
metadata: {name: measured}
spec:
  brokers: 3
  storage:
    volumes:
      - {name: data-0, size: 1Gi}
---
apiVersion: taffrail.io/v1alpha1
kind: Topic
metadata: {name: orders}
spec:
  clusterRef: {name: measured}
  partitions: 6
  replicationFactor: 3
";

/// What dashboards for Kafka ask brokers for, as the parser names families: counters without `_total`.
const BROKER: &[(&str, &str)] = &[
    ("kafka_server_brokertopicmetrics_messagesin", "counter"),
    ("kafka_server_brokertopicmetrics_bytesin", "counter"),
    ("kafka_server_brokertopicmetrics_bytesout", "counter"),
    (
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
    ),
    ("kafka_server_replicamanager_partitioncount", "gauge"),
    ("kafka_server_replicamanager_leadercount", "gauge"),
    (
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
    ),
    (
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "gauge",
    ),
    ("kafka_network_requestmetrics_requests", "counter"),
];

/// What the operator tells of itself.
const OPERATOR: &[(&str, &str)] = &[
    ("taffrail_operator_reconcile", "counter"),
    ("taffrail_operator_reconcile_duration_seconds", "histogram"),
];

#[test]
fn metrics_of_both_programs_are_what_a_prometheus_parser_expects() -> Result<()> {
    let local = Local::start(MANIFEST)?;
    local
        .admin()?
        .wait_in_sync("orders", 6, 3, Duration::from_secs(30))?;
    let text = Text::of(10_000)?;
    text.produce(&local.bootstrap(), "orders", 0, text.count(), &[])?;
    // What was written is read once, so that bytes go out as well.
    read_all(&local.bootstrap(), "orders", |_| ())?;
    for broker in 0..BROKERS {
        check(&local.broker_metrics(broker), BROKER)?;
    }
    check(&local.operator_metrics(), OPERATOR)?;
    local.finish()
}

/// Every family is there with its type and at least one sample.
fn check(url: &str, expected: &[(&str, &str)]) -> Result<()> {
    let page = parse_metrics(url).with_context(|| url.to_owned())?;
    for (name, kind) in expected {
        let found = page
            .lines()
            .find(|line| line.split('\t').next() == Some(name));
        let line = found.with_context(|| format!("{url} has no {name}; it has:\n{page}"))?;
        let fields: Vec<&str> = line.split('\t').collect();
        ensure!(
            fields.get(1) == Some(kind),
            "{url}: {line}, and not a {kind}"
        );
        ensure!(
            fields.get(2).is_some_and(|samples| *samples != "0"),
            "{url}: {name} has no samples"
        );
    }
    Ok(())
}
