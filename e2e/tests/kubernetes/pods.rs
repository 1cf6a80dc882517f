//! Broker pods that are taken away under load.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;
use taffrail_e2e::kubernetes::kafka::Kafka;
use taffrail_e2e::kubernetes::kinds::{cluster, topic};
use taffrail_e2e::kubernetes::turn::together;

use crate::{READY_LIMIT, client};

/// How long a record may wait for its acknowledgement: longer than any outage.
const RECORD_LIMIT: Duration = Duration::from_secs(300);
/// Between two deletions, so that a broker is known to be well.
const CALM: u64 = 4000;

#[test]
fn pod_deleted_under_load_comes_back_with_its_data() -> Result<()> {
    together("pods", |namespace| {
        namespace.apply(&cluster(3))?;
        namespace.apply(&topic("load", 6))?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        namespace.wait_ready("topic/load", READY_LIMIT)?;
        let kafka = Kafka::of(namespace, client()?);
        let mut load = kafka.load("load", 6, RECORD_LIMIT)?;
        let ways: [(usize, &[&str]); 3] = [
            (0, &[]),
            (1, &["--grace-period=0", "--force"]),
            (2, &["--grace-period=1"]),
        ];
        for (broker, way) in ways {
            load.wait_for_more(CALM, READY_LIMIT)?;
            let pod = format!("demo-broker-{broker}");
            let what = format!("pod/{pod}");
            let claim = |pod: &Value| pod["spec"]["volumes"].to_string();
            let before = namespace.get(&what)?.unwrap_or_default();
            let mut words = vec!["delete", "pod", &pod, "--wait=false"];
            words.extend(way);
            namespace.kubectl(&words)?;
            let after =
                namespace.wait_for(&what, "another one, and ready", READY_LIMIT, |pod| {
                    let again = pod["metadata"]["uid"] != before["metadata"]["uid"];
                    if again && pod["status"]["containerStatuses"][0]["ready"] == true {
                        return Ok(());
                    }
                    Err(anyhow!("{}", pod["status"]))
                })?;
            ensure!(
                claim(&after).contains(&format!("data-0-{pod}")),
                "{pod} came back with other volumes: {}",
                claim(&after)
            );
            kafka.wait_in_sync("load", 6, 3, READY_LIMIT)?;
            namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        }
        let verdict = load.stop()?;
        println!("{verdict:?}");
        ensure!(
            verdict.first_error.is_none(),
            "a record was given up: {verdict:?}"
        );
        Ok(())
    })
}
