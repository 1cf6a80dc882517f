//! The first minutes with Taffrail, and what is left when it goes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use taffrail_e2e::kubernetes::command::{kubectl, text};
use taffrail_e2e::kubernetes::kafka::Kafka;
use taffrail_e2e::kubernetes::kinds::{cluster, topic};
use taffrail_e2e::kubernetes::operator;
use taffrail_e2e::kubernetes::turn::alone;
use taffrail_e2e::text::Text;
use taffrail_e2e::wait::patient;

use crate::{READY_LIMIT, client};

/// From `kubectl apply` of three brokers to Ready, with the image present.
const APPLY_LIMIT: Duration = Duration::from_secs(20);
/// From `helm install` to the first consumed record.
const FIRST_RECORD_LIMIT: Duration = Duration::from_secs(60);
const LINES: usize = 1000;

#[test]
fn install_is_quick_and_uninstall_leaves_kinds_and_data() -> Result<()> {
    alone("install", |namespace| {
        let kafka = Kafka::of(namespace, client()?);
        let text_sent = Text::of(LINES)?;
        operator::uninstall()?;
        operator::forget_lease()?;

        let began = Instant::now();
        operator::install()?;
        let applied = Instant::now();
        namespace.apply(&cluster(3))?;
        namespace.apply(&topic("orders", 6))?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        let ready = applied.elapsed();
        namespace.wait_ready("topic/orders", READY_LIMIT)?;
        kafka.produce("orders", &text_sent, 0, 1)?;
        kafka.must_hold("orders", &text_sent, 1)?;
        let first_record = began.elapsed();
        println!(
            "installed in {:.1} s, three brokers ready {:.1} s after apply, first record {:.1} s after helm install",
            (applied - began).as_secs_f64(),
            ready.as_secs_f64(),
            first_record.as_secs_f64()
        );
        ensure!(
            ready < patient(APPLY_LIMIT),
            "three brokers were ready only {ready:?} after apply"
        );
        ensure!(
            first_record < patient(FIRST_RECORD_LIMIT),
            "the first record came only {first_record:?} after helm install"
        );

        operator::uninstall()?;
        for name in ["clusters.taffrail.io", "topics.taffrail.io"] {
            text(&mut kubectl(&["get", "crd", name]), "")?;
        }
        ensure!(
            namespace.get("cluster/demo")?.is_some() && namespace.get("topic/orders")?.is_some(),
            "the objects went with the operator"
        );
        // Brokers need no operator to serve.
        kafka.produce("orders", &text_sent, 1, LINES)?;
        kafka.must_hold("orders", &text_sent, LINES)?;

        operator::install()?;
        namespace.apply(&topic("later", 3))?;
        namespace.wait_ready("topic/later", READY_LIMIT)?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        kafka.must_hold("orders", &text_sent, LINES)
    })
}
