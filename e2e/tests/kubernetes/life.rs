//! The life of a Cluster from its first apply to the end of its namespace, once as it is, and once with an operator that is killed
//! in the middle of every change. The result is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use taffrail_e2e::kubernetes::kafka::Kafka;
use taffrail_e2e::kubernetes::kinds::{cluster, topic, with};
use taffrail_e2e::kubernetes::namespace::{LOOK_EVERY, Namespace};
use taffrail_e2e::kubernetes::operator;
use taffrail_e2e::kubernetes::turn::together;
use taffrail_e2e::text::Text;
use taffrail_e2e::wait::{patient, wait_for_every};

use crate::{READY_LIMIT, client};

const BROKERS: usize = 3;
const LINES: usize = 10_000;
/// A producer with this limit on a record's delivery fails none while pods roll.
const RECORD_LIMIT: Duration = Duration::from_secs(30);
/// For all brokers to be replaced one after the other.
const ROLL_LIMIT: Duration = Duration::from_secs(180);
/// For a namespace with everything in it.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(60);
/// From a change to the end of the operator: it has begun by then, and is not through.
const MIDDLE: Duration = Duration::from_millis(400);

/// What happens to the operator after each change.
#[derive(Clone, Copy, Debug)]
enum Operator {
    Lives,
    IsKilled,
}

impl Operator {
    fn in_the_middle(self) -> Result<()> {
        match self {
            Self::Lives => Ok(()),
            Self::IsKilled => operator::kill_after(MIDDLE),
        }
    }
}

#[test]
fn life_of_a_cluster() -> Result<()> {
    together("life", |namespace| live(namespace, Operator::Lives))
}

#[test]
fn life_of_a_cluster_whose_operator_is_killed_in_the_middle_of_each_change() -> Result<()> {
    together("killed", |namespace| live(namespace, Operator::IsKilled))
}

fn live(namespace: &Namespace, operator: Operator) -> Result<()> {
    let kafka = Kafka::of(namespace, client()?);
    let text = Text::of(LINES)?;
    let mut manifest = cluster(u32::try_from(BROKERS)?);
    let step = Steps::begin();

    namespace.apply(&manifest)?;
    operator.in_the_middle()?;
    namespace.wait_ready("cluster/demo", READY_LIMIT)?;
    step.done("the Cluster is ready");

    for name in ["orders", "load", "kept"] {
        namespace.apply(&topic(name, 6))?;
    }
    let dropped = with(topic("dropped", 3), "deletionPolicy", json!("Delete"));
    namespace.apply(&dropped)?;
    operator.in_the_middle()?;
    for name in ["orders", "load", "kept", "dropped"] {
        namespace.wait_ready(&format!("topic/{name}"), READY_LIMIT)?;
    }
    step.done("the Topics are ready");
    kafka.produce("orders", &text, 0, LINES / 2)?;

    manifest["spec"]["config"]["num.partitions"] = json!(4);
    roll(namespace, &kafka, &manifest, operator)?;
    step.done("a config is rolled out");

    pod_comes_back(namespace, &kafka, operator)?;
    step.done("a pod is replaced");

    grow(namespace, &kafka, operator)?;
    step.done("partitions are added");

    delete_topics(namespace, &kafka, operator)?;
    step.done("Topics are deleted");

    kafka.produce("orders", &text, LINES / 2, LINES)?;
    delete_and_apply_again(namespace, &manifest, operator)?;
    kafka.wait_in_sync("orders", 9, BROKERS, READY_LIMIT)?;
    kafka.must_hold("orders", &text, LINES)?;
    step.done("the Cluster is back with its data");

    // The other life kills the operator of this one too. From here on it lives, as the Topic's readiness proves.
    let _undisturbed = matches!(operator, Operator::Lives).then(operator::undisturbed);
    // Nothing of it may hold the namespace up, finalizers included.
    namespace.apply(&with(topic("last", 3), "deletionPolicy", json!("Delete")))?;
    namespace.wait_ready("topic/last", READY_LIMIT)?;
    namespace.apply(&with_storage_deleted(manifest))?;
    namespace.wait_ready("cluster/demo", READY_LIMIT)?;
    namespace.delete()?;
    let asked = Instant::now();
    operator.in_the_middle()?;
    namespace.wait_deleted(READY_LIMIT)?;
    step.done("the namespace is gone");
    ensure!(
        asked.elapsed() < patient(NAMESPACE_LIMIT),
        "the namespace was gone after {:?}",
        asked.elapsed()
    );
    Ok(())
}

/// A changed config replaces one pod after the other, and no produce fails.
fn roll(
    namespace: &Namespace,
    kafka: &Kafka<'_>,
    manifest: &Value,
    operator: Operator,
) -> Result<()> {
    let before = uids(namespace)?;
    let mut load = kafka.load("load", 6, RECORD_LIMIT)?;
    load.wait_for_more(2000, READY_LIMIT)?;
    let rolled = AtomicBool::new(false);
    let one_by_one = thread::scope(|scope| -> Result<Result<()>> {
        let watcher = scope.spawn(|| one_by_one_until(namespace, &rolled));
        let outcome = (|| {
            namespace.apply(manifest)?;
            operator.in_the_middle()?;
            wait_for_every(LOOK_EVERY, "every pod to be replaced", ROLL_LIMIT, || {
                let now = uids(namespace)?;
                let new = now
                    .iter()
                    .filter(|(pod, uid)| before.get(*pod) != Some(*uid));
                if new.count() == BROKERS {
                    return Ok(Some(()));
                }
                Err(anyhow!("before {before:?}, now {now:?}"))
            })?;
            namespace.wait_ready("cluster/demo", READY_LIMIT)
        })();
        rolled.store(true, Ordering::Relaxed);
        let one_by_one = watcher
            .join()
            .map_err(|_| anyhow!("the watcher panicked"))?;
        outcome?;
        Ok(one_by_one)
    })?;
    kafka.wait_in_sync("load", 6, BROKERS, READY_LIMIT)?;
    let verdict = load.stop()?;
    println!("rolled under load: {verdict:?}");
    one_by_one?;
    ensure!(
        verdict.first_error.is_none(),
        "a produce failed: {verdict:?}"
    );
    Ok(())
}

/// Looks at the pods until `done`; fails with what was seen if more than one was not ready at the same time.
fn one_by_one_until(namespace: &Namespace, done: &AtomicBool) -> Result<()> {
    while !done.load(Ordering::Relaxed) {
        let pods = namespace.list("pods", "taffrail.io/cluster=demo")?;
        let up = pods.iter().filter(|pod| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && pod["status"]["containerStatuses"][0]["ready"] == true
        });
        let seen: Vec<String> = pods
            .iter()
            .map(|pod| {
                let meta = &pod["metadata"];
                format!(
                    "{} made {} deleted {}: {}",
                    meta["name"],
                    meta["creationTimestamp"],
                    meta["deletionTimestamp"],
                    pod["status"]["conditions"]
                )
            })
            .collect();
        ensure!(
            up.count() + 1 >= BROKERS,
            "more than one pod is down: {seen:#?}"
        );
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A pod that is deleted comes back, and its replicas catch up.
fn pod_comes_back(namespace: &Namespace, kafka: &Kafka<'_>, operator: Operator) -> Result<()> {
    let before = uids(namespace)?;
    namespace.kubectl(&["delete", "pod", "demo-broker-1", "--wait=false"])?;
    operator.in_the_middle()?;
    let old = before.get("demo-broker-1").context("broker 1 has a pod")?;
    namespace.wait_for("pod/demo-broker-1", "a new one", READY_LIMIT, |pod| {
        ensure!(pod["metadata"]["uid"] != old.as_str(), "it is the old one");
        Ok(())
    })?;
    kafka.wait_in_sync("orders", 6, BROKERS, READY_LIMIT)?;
    namespace.wait_ready("cluster/demo", READY_LIMIT)?;
    Ok(())
}

/// More partitions go on with the rotation where it ended.
fn grow(namespace: &Namespace, kafka: &Kafka<'_>, operator: Operator) -> Result<()> {
    let before = kafka.partitions("orders")?;
    namespace.apply(&topic("orders", 9))?;
    operator.in_the_middle()?;
    namespace.wait_ready("topic/orders", READY_LIMIT)?;
    let after = kafka.wait_in_sync("orders", 9, BROKERS, READY_LIMIT)?;
    let leaders: Vec<i32> = after.iter().map(|p| p.replicas[0]).collect();
    let brokers = i32::try_from(BROKERS)?;
    let rotation: Vec<i32> = (0..9).map(|n| (leaders[0] + n) % brokers).collect();
    ensure!(
        leaders == rotation,
        "preferred leaders {leaders:?} do not go on with the rotation"
    );
    for (old, new) in before.iter().zip(&after) {
        ensure!(
            old.replicas == new.replicas,
            "partition {} was moved from {:?} to {:?}",
            old.partition,
            old.replicas,
            new.replicas
        );
    }
    Ok(())
}

/// One Topic goes with its data, the other one leaves it.
fn delete_topics(namespace: &Namespace, kafka: &Kafka<'_>, operator: Operator) -> Result<()> {
    namespace.kubectl(&["delete", "topic", "kept", "dropped", "--wait=false"])?;
    operator.in_the_middle()?;
    for name in ["kept", "dropped"] {
        namespace.wait_gone(&format!("topic/{name}"), READY_LIMIT)?;
    }
    let topics = kafka.topics()?;
    ensure!(
        !topics.iter().any(|name| name == "dropped"),
        "the topic with the policy Delete is still among {topics:?}"
    );
    ensure!(
        topics.iter().any(|name| name == "kept"),
        "the topic with the policy Retain is not among {topics:?}"
    );
    Ok(())
}

/// Deleted with Retain, the Cluster leaves its claims; applied again, it takes them up.
fn delete_and_apply_again(
    namespace: &Namespace,
    manifest: &Value,
    operator: Operator,
) -> Result<()> {
    let claims = |namespace: &Namespace| -> Result<BTreeSet<String>> {
        let claims = namespace.list("pvc", "")?;
        Ok(claims
            .iter()
            .map(|claim| claim["metadata"]["uid"].to_string())
            .collect())
    };
    let before = claims(namespace)?;
    namespace.kubectl(&["delete", "cluster", "demo", "--wait=false"])?;
    operator.in_the_middle()?;
    namespace.wait_gone("cluster/demo", READY_LIMIT)?;
    wait_for_every(LOOK_EVERY, "the pods to be gone", READY_LIMIT, || {
        let pods = namespace.list("pods", "taffrail.io/cluster=demo")?;
        Ok(pods.is_empty().then_some(()))
    })?;
    ensure!(
        claims(namespace)? == before && before.len() == BROKERS,
        "the claims were {before:?} and are {:?}",
        claims(namespace)?
    );
    namespace.apply(manifest)?;
    operator.in_the_middle()?;
    namespace.wait_ready("cluster/demo", READY_LIMIT)?;
    namespace.wait_ready("topic/orders", READY_LIMIT)?;
    ensure!(claims(namespace)? == before, "there are other claims now");
    Ok(())
}

fn with_storage_deleted(mut manifest: Value) -> Value {
    manifest["spec"]["storage"]["deletionPolicy"] = json!("Delete");
    manifest
}

/// The pods of the Cluster by name.
fn uids(namespace: &Namespace) -> Result<BTreeMap<String, String>> {
    let pods = namespace.list("pods", "taffrail.io/cluster=demo")?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(pods
        .iter()
        .map(|pod| {
            (
                word(&pod["metadata"]["name"]),
                word(&pod["metadata"]["uid"]),
            )
        })
        .collect())
}

/// Says how long each step took.
struct Steps(Instant);

impl Steps {
    fn begin() -> Self {
        Self(Instant::now())
    }

    fn done(&self, what: &str) {
        println!("{:6.1} s: {what}", self.0.elapsed().as_secs_f64());
    }
}
