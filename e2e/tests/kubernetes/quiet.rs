//! Many Topics at once, and then silence.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use taffrail_e2e::kubernetes::kinds::{cluster, topic};
use taffrail_e2e::kubernetes::namespace::{LOOK_EVERY, condition};
use taffrail_e2e::kubernetes::turn::alone;
use taffrail_e2e::kubernetes::writes;
use taffrail_e2e::tools::number;
use taffrail_e2e::wait::{patient, wait_for_every};

use crate::READY_LIMIT;

const TOPICS: usize = 200;
/// From `kubectl apply` of all Topics to the last one that is ready.
const TOPICS_LIMIT: Duration = Duration::from_secs(30);
/// For what the last Topic's readiness changes in the Cluster's status.
const SETTLE: Duration = Duration::from_secs(5);
/// How long nothing may be written; `E2E_QUIET_SECONDS=300` for the full proof.
const QUIET_SECONDS: usize = 60;

#[test]
fn many_topics_at_once_are_soon_ready_and_then_nothing_is_written() -> Result<()> {
    alone("quiet", |namespace| {
        namespace.apply(&cluster(3))?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        let topics: Vec<_> = (0..TOPICS)
            .map(|n| topic(&format!("topic-{n:03}"), 3))
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": topics});
        let began = Instant::now();
        namespace.kubectl_with(&["apply", "--server-side", "-f", "-"], &list.to_string())?;
        let applied = began.elapsed();
        wait_for_every(LOOK_EVERY, "all Topics to be ready", READY_LIMIT, || {
            let topics = namespace.list("topics.taffrail.io", "")?;
            let waits = topics.iter().find(|topic| {
                condition(topic, "Ready").is_none_or(|ready| ready["status"] != "True")
            });
            match waits {
                None if topics.len() == TOPICS => Ok(Some(())),
                None => Err(anyhow!("{} Topics", topics.len())),
                Some(topic) => Err(anyhow!(
                    "{}: {}",
                    topic["metadata"]["name"],
                    topic["status"]
                )),
            }
        })?;
        let ready = began.elapsed();
        println!(
            "{TOPICS} Topics: applied in {:.1} s, ready after {:.1} s",
            applied.as_secs_f64(),
            ready.as_secs_f64()
        );
        ensure!(
            ready < patient(TOPICS_LIMIT),
            "{TOPICS} Topics were ready only after {ready:?}"
        );

        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        thread::sleep(SETTLE);
        let moment = writes::now(namespace)?;
        let seconds = number("E2E_QUIET_SECONDS", QUIET_SECONDS);
        thread::sleep(Duration::from_secs(u64::try_from(seconds)?));
        let written = writes::since(&moment, namespace)?;
        let renewals = writes::renewals_since(&moment)?;
        println!(
            "{seconds} s: {} writes, {renewals:?} renewals of the Lease",
            written.len()
        );
        ensure!(
            written.is_empty(),
            "a settled operator wrote {} times: {:#?}",
            written.len(),
            &written[..written.len().min(20)]
        );
        // Else the log would be of nothing.
        ensure!(
            renewals != Some(0),
            "the operator did not even renew its Lease"
        );
        Ok(())
    })
}
