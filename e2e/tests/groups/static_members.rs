//! Static members of librdkafka, with its cooperative assignor: one that restarts costs no rebalance, and of two with one
//! instance id the older is fenced.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, ClientContext};
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::wait::{wait_for, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "orders";

/// Counts what it was assigned and what was taken from it.
#[derive(Clone, Default)]
struct Changes(Arc<AtomicUsize>);

impl ClientContext for Changes {}

impl ConsumerContext for Changes {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(parts) | Rebalance::Revoke(parts) if parts.count() > 0 => {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            Rebalance::Assign(_) | Rebalance::Revoke(_) | Rebalance::Error(_) => {}
        }
    }
}

struct Member {
    consumer: BaseConsumer<Changes>,
    changes: Changes,
}

impl Member {
    fn start(bootstrap: &str, instance_id: &str) -> Result<Self> {
        let changes = Changes::default();
        let consumer: BaseConsumer<Changes> = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "readers")
            .set("group.instance.id", instance_id)
            .set("partition.assignment.strategy", "cooperative-sticky")
            // Longer than the test, so that nobody leaves by itself.
            .set("session.timeout.ms", "120000")
            .set("heartbeat.interval.ms", "300")
            .set("log_level", "0")
            .create_with_context(changes.clone())?;
        consumer.subscribe(&[TOPIC])?;
        Ok(Self { consumer, changes })
    }

    /// Its partitions, after a moment for what the client has to do.
    fn partitions(&self) -> Result<Vec<i32>> {
        // Errors are looked at by who expects them.
        let _message = self.consumer.poll(Duration::from_millis(20));
        let assignment = self.consumer.assignment()?;
        let mut partitions: Vec<i32> = assignment
            .elements()
            .iter()
            .map(|part| part.partition())
            .collect();
        partitions.sort_unstable();
        Ok(partitions)
    }

    fn changes(&self) -> usize {
        self.changes.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_static_member_that_restarts_gets_its_partitions_back_and_its_double_is_fenced() -> Result<()> {
    let cluster =
        Cluster::start(ClusterSpec::new(1)?.with("group.initial.rebalance.delay.ms", "0"))?;
    let bootstrap = cluster.bootstrap();
    cluster.admin()?.create_topic(TOPIC, 4, 1, &[])?;
    let stays = Member::start(&bootstrap, "one")?;
    let restarts = Member::start(&bootstrap, "two")?;
    let (kept, given) = wait_for("each member to have two partitions", LIMIT, || {
        let shares = (stays.partitions()?, restarts.partitions()?);
        Ok((shares.0.len() == 2 && shares.1.len() == 2).then_some(shares))
    })?;
    let changes = stays.changes();

    // It closes, says nothing to the group as static members do, and starts anew.
    drop(restarts);
    let restarted = Member::start(&bootstrap, "two")?;
    wait_until("the member to have its partitions again", LIMIT, || {
        stays.partitions()?;
        Ok(restarted.partitions()? == given)
    })?;
    ensure!(stays.partitions()? == kept);
    ensure!(stays.changes() == changes, "there was a rebalance");

    let double = Member::start(&bootstrap, "two")?;
    wait_until("the older of two doubles to be fenced", LIMIT, || {
        restarted.partitions()?;
        double.partitions()?;
        let error = restarted.consumer.client().fatal_error();
        Ok(error.is_some_and(|(code, _)| code == RDKafkaErrorCode::FencedInstanceId))
    })?;
    wait_until("the newer one to have the partitions", LIMIT, || {
        Ok(double.partitions()? == given)
    })?;
    ensure!(stays.changes() == changes, "there was a rebalance");
    cluster.finish();
    Ok(())
}
