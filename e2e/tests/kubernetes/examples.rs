//! The manifests that the documentation begins with.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use taffrail_e2e::kubernetes::turn::together;
use taffrail_e2e::tools::repository;

use crate::client;

#[test]
fn examples_become_ready_and_their_leaders_rotate_over_the_pods() -> Result<()> {
    together("examples", |namespace| {
        let examples = repository().join("examples");
        namespace.apply_file(&examples.join("cluster.yaml"))?;
        namespace.apply_file(&examples.join("topic.yaml"))?;
        // As the chart's notes say it.
        for kind in ["clusters.taffrail.io", "topics.taffrail.io"] {
            namespace.kubectl(&[
                "wait",
                "--for=condition=Ready",
                "--all",
                kind,
                "--timeout=90s",
            ])?;
        }
        let clusters = namespace.list("clusters.taffrail.io", "")?;
        ensure!(clusters.len() == 1, "{} Clusters", clusters.len());
        let cluster = &clusters[0];
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
        let brokers = cluster["spec"]["brokers"].as_u64().unwrap_or_default();
        let pods = namespace.list("pods", &format!("taffrail.io/cluster={name}"))?;
        ensure!(
            pods.len() as u64 == brokers,
            "{} pods for {brokers} brokers",
            pods.len()
        );

        for topic in namespace.list("topics.taffrail.io", "")? {
            let topic_name = topic["status"]["topicName"].as_str().unwrap_or_default();
            let partitions = topic["spec"]["partitions"].as_u64().unwrap_or_default();
            let bootstrap = format!("{name}-bootstrap.{}.svc:9092", namespace.name());
            let listed = client()?.kcat(&["-b", &bootstrap, "-L", "-J"], &[])?;
            let listed: serde_json::Value = serde_json::from_slice(&listed)?;
            let found = listed["topics"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|found| found["topic"] == topic_name);
            let leaders: Vec<u64> = found
                .and_then(|found| found["partitions"].as_array())
                .into_iter()
                .flatten()
                .filter_map(|partition| partition["replicas"][0]["id"].as_u64())
                .collect();
            let first = leaders.first().copied().unwrap_or_default();
            let rotation: Vec<u64> = (0..partitions).map(|n| (first + n) % brokers).collect();
            ensure!(
                leaders == rotation,
                "preferred leaders of {topic_name} are {leaders:?} and not {rotation:?}"
            );
            let balance = &topic["status"]["preferredLeaders"];
            let counted: BTreeSet<&str> = balance
                .as_object()
                .into_iter()
                .flatten()
                .map(|(broker, _)| broker.as_str())
                .collect();
            ensure!(
                counted.len() as u64 == brokers.min(partitions),
                "the status of {topic_name} counts leaders as {balance}"
            );
        }
        Ok(())
    })
}
