//! A manifest in, a cluster out: what is edited while it runs, or while it does not, is soon seen by clients.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use taffrail_e2e::http;
use taffrail_e2e::java;
use taffrail_e2e::local::Local;
use taffrail_e2e::text::Text;
use taffrail_e2e::tools::{binary, repository};
use taffrail_e2e::wait::{wait_for, wait_until};

/// An edit is seen by clients within this.
const SEEN_LIMIT: Duration = Duration::from_secs(5);
/// After a start, with recovery.
const START_LIMIT: Duration = Duration::from_secs(30);

const CLUSTER: &str = "
apiVersion: taffrail.io/v1alpha1
kind: Cluster
metadata: {name: edited}
spec:
  brokers: 3
  storage:
    volumes:
      - {name: data-0, size: 1Gi}
  config:
    min.insync.replicas: 2
    default.replication.factor: 3
";

/// A Topic of that cluster; `more` are further lines of its spec.
fn topic(name: &str, partitions: u32, more: &str) -> String {
    format!(
        "---
apiVersion: taffrail.io/v1alpha1
kind: Topic
metadata: {{name: {name}}}
spec:
  clusterRef: {{name: edited}}
  partitions: {partitions}
  replicationFactor: 3
{more}"
    )
}

/// What `kcat -L` says.
fn kcat_list(bootstrap: &str) -> Result<String> {
    let output = Command::new("kcat")
        .args(["-L", "-b", bootstrap])
        .output()?;
    ensure!(
        output.status.success(),
        "kcat -L failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn edits_of_a_running_manifest_are_seen_by_clients() -> Result<()> {
    let orders = topic("orders", 6, "");
    let local = Local::start(&format!("{CLUSTER}{orders}"))?;
    let admin = local.admin()?;
    admin.wait_in_sync("orders", 6, 3, START_LIMIT)?;
    let leaders: Vec<i32> = admin
        .partitions("orders")?
        .iter()
        .map(|p| p.replicas[0])
        .collect();
    let rotation: Vec<i32> = (0..6).map(|n| (leaders[0] + n) % 3).collect();
    ensure!(
        leaders == rotation,
        "preferred leaders {leaders:?} do not rotate over the brokers"
    );

    let listed = kcat_list(&local.bootstrap())?;
    ensure!(
        listed.contains("topic \"orders\" with 6 partitions"),
        "kcat -L shows {listed}"
    );

    // More partitions, a config, and two new Topics, of which one shall go with its data.
    let grown = topic("orders", 9, "  config:\n    retention.ms: 3600000\n");
    let kept = topic("kept", 1, "");
    let dropped = topic("dropped", 1, "  deletionPolicy: Delete\n");
    local.write(&format!("{CLUSTER}{grown}{kept}{dropped}"))?;
    admin.wait_in_sync("orders", 9, 3, SEEN_LIMIT)?;
    for new in ["kept", "dropped"] {
        admin.wait_in_sync(new, 1, 3, SEEN_LIMIT)?;
    }
    wait_for("the new retention", SEEN_LIMIT, || {
        match admin.topic_config("orders", "retention.ms")? {
            Some(value) if value == "3600000" => Ok(Some(())),
            other => Err(anyhow!("retention.ms is {other:?}")),
        }
    })?;
    let shown = java::configs(
        &local.bootstrap(),
        &[
            "--describe",
            "--entity-type",
            "topics",
            "--entity-name",
            "orders",
        ],
    )?;
    ensure!(
        shown.contains("retention.ms=3600000"),
        "Kafka's own tool shows {shown}"
    );

    // Both Topics are removed: one goes, one stays and is told.
    local.write(&format!("{CLUSTER}{grown}"))?;
    wait_until(
        "the topic with deletionPolicy Delete to go",
        SEEN_LIMIT,
        || Ok(!admin.topics()?.contains(&"dropped".to_owned())),
    )?;
    ensure!(
        admin.topics()?.contains(&"kept".to_owned()),
        "the topic with deletionPolicy Retain went as well"
    );
    wait_until(
        "the status to tell of the topic that stays",
        SEEN_LIMIT,
        || Ok(local.status_text()?.contains("kept")),
    )?;
    local.finish()
}

/// Plans a file where nothing runs.
fn plan(manifest: &Path) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    Ok(Command::new(binary("taffrail-operator")?)
        .args(["plan", "-f"])
        .arg(manifest)
        .arg("--data-dir")
        .arg(folder.path().join("nothing-runs-here"))
        .output()?)
}

#[test]
fn plan_of_what_cannot_be_done_fails_and_of_a_broken_field_names_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let manifest = folder.path().join("manifest.yaml");
    let check = |topic: &str, expected: &str| -> Result<()> {
        fs::write(&manifest, format!("{CLUSTER}{topic}"))?;
        let output = plan(&manifest)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1), "{:?}", output.status);
        ensure!(said.contains(expected), "{expected} is not in {said}");
        Ok(())
    };
    check(
        &topic("orders", 3, "").replace("replicationFactor: 3", "replicationFactor: 4"),
        "1 of what it asks for cannot be done as it stands",
    )?;
    check(
        &topic("orders", 3, "  replicationFactor: 4\n"),
        "document 2 is not YAML: spec: replicationFactor is written twice",
    )?;
    let huge = topic("orders", 3, "").replace("partitions: 3", "partitions: 99999999999999999999");
    check(
        &huge,
        "Topic orders: spec.partitions: must be an integer, not",
    )
}

#[test]
fn plan_of_the_quickstart_names_its_topics_and_their_placement() -> Result<()> {
    let output = plan(&repository().join("examples/quickstart.yaml"))?;
    let plan = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "plan failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "  start broker 2: ",
        "  create topic orders with 6 partitions of 3 replicas: the topic does not exist",
        "    partition 0: brokers 0, 2, 1",
        "    partition 5: brokers 2, 0, 1",
        "  create topic events with 3 partitions of 3 replicas: the topic does not exist",
    ] {
        ensure!(
            plan.contains(line),
            "the plan does not say {line:?}:\n{plan}"
        );
    }
    Ok(())
}

#[test]
fn what_is_removed_while_nothing_runs_goes_or_stays_by_its_policy() -> Result<()> {
    let (kept, dropped) = (
        topic("kept", 1, ""),
        topic("dropped", 1, "  deletionPolicy: Delete\n"),
    );
    let orders = topic("orders", 3, "");
    let mut local = Local::start(&format!("{CLUSTER}{orders}{kept}{dropped}"))?;
    for (name, partitions) in [("orders", 3), ("kept", 1), ("dropped", 1)] {
        local
            .admin()?
            .wait_in_sync(name, partitions, 3, START_LIMIT)?;
    }
    let text = Text::of(10_000)?;
    text.produce(&local.bootstrap(), "orders", 0, text.count(), &[])?;
    local.stop()?;

    local.write(&format!("{CLUSTER}{orders}"))?;
    local.run()?;
    local.wait_ready()?;
    let admin = local.admin()?;
    admin.wait_in_sync("orders", 3, 3, START_LIMIT)?;
    wait_until(
        "the topic with deletionPolicy Delete to go",
        START_LIMIT,
        || Ok(!admin.topics()?.contains(&"dropped".to_owned())),
    )?;
    ensure!(
        admin.topics()?.contains(&"kept".to_owned()),
        "the topic with deletionPolicy Retain went as well"
    );
    wait_until(
        "the status to tell of the topic that stays",
        START_LIMIT,
        || Ok(local.status_text()?.contains("kept")),
    )?;

    // What was there before the stop is there after it.
    let mut checker = text.checker();
    let mut fault = Ok(());
    taffrail_e2e::read::read_all(&local.bootstrap(), "orders", |record| {
        if fault.is_ok() {
            fault = checker.in_order(record.partition, record.key, record.value);
        }
    })?;
    fault?;
    checker.complete()?;
    local.finish()
}

#[test]
fn refused_manifest_leaves_the_cluster_as_it_is_and_names_the_field() -> Result<()> {
    let orders = topic("orders", 3, "");
    let local = Local::start(&format!("{CLUSTER}{orders}"))?;
    let admin = local.admin()?;
    admin.wait_in_sync("orders", 3, 3, START_LIMIT)?;
    let cases = [
        (
            "more replicas than brokers",
            topic("orders", 3, "").replace("replicationFactor: 3", "replicationFactor: 4"),
            "replication",
        ),
        ("fewer partitions", topic("orders", 1, ""), "partitions"),
        (
            "an unknown config",
            topic("orders", 3, "  config:\n    no.such.config: 1\n"),
            "no.such.config",
        ),
    ];
    for (name, wrong, named) in cases {
        local.write(&format!("{CLUSTER}{wrong}"))?;
        wait_for(&format!("{name} to be told"), SEEN_LIMIT, || {
            let status = local.status()?.to_string();
            if status.contains(named) && status.contains("\"False\"") {
                Ok(Some(()))
            } else {
                Err(anyhow!("{status}"))
            }
        })?;
        ensure!(
            admin.partitions("orders")?.len() == 3,
            "{name}: the topic was changed all the same"
        );
        local.write(&format!("{CLUSTER}{orders}"))?;
    }
    local.finish()
}

/// What a broker says of the metadata: the voters' ids, and index and hash as its metrics give them.
fn metadata_of(local: &Local, broker: u16) -> Result<(Vec<i64>, String, String)> {
    let base = local.broker_metrics(broker);
    let state: serde_json::Value =
        serde_json::from_str(&http::get(&base.replace("/metrics", "/admin/state"))?.1)?;
    let voters = state["voters"].as_array().context("no voters")?;
    let ids = voters.iter().filter_map(|voter| voter["id"].as_i64());
    let (_, metrics) = http::get(&base)?;
    let value = |name: &str| {
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with(&format!("{name} ")));
        line.map(str::to_owned)
            .with_context(|| format!("no {name}"))
    };
    Ok((
        ids.collect(),
        value("taffrail_metadata_index")?,
        value("taffrail_metadata_hash")?,
    ))
}

#[test]
fn one_voter_becomes_three_when_the_manifest_has_three_brokers() -> Result<()> {
    let one = CLUSTER.replace("brokers: 3", "brokers: 1").replace(
        "    min.insync.replicas: 2\n    default.replication.factor: 3",
        "    min.insync.replicas: 1",
    );
    let three = one.replace("brokers: 1", "brokers: 3");
    let local = Local::begin(&one)?;
    wait_for("one voter", START_LIMIT, || {
        let (voters, ..) = metadata_of(&local, 0)?;
        Ok((voters == [0]).then_some(()))
    })?;
    local.write(&three)?;
    wait_for("three voters that know the same", START_LIMIT, || {
        let known = [0, 1, 2].map(|broker| metadata_of(&local, broker));
        let [first, second, third] = known.map(|known| known.map_err(|e| e.to_string()));
        let agree = first == second && second == third;
        match first {
            Ok((voters, ..)) if voters == [0, 1, 2] && agree => Ok(Some(())),
            first => Err(anyhow!("{first:?} {second:?} {third:?}")),
        }
    })?;
    local.write(&one)?;
    wait_for("the refusal to be told", SEEN_LIMIT, || {
        let status = local.status()?.to_string();
        if status.contains("BrokerVotes") {
            Ok(Some(()))
        } else {
            Err(anyhow!("{status}"))
        }
    })?;
    local.finish()
}

#[test]
fn broker_that_dies_is_started_again() -> Result<()> {
    let local = Local::start(&format!("{CLUSTER}{}", topic("orders", 3, "")))?;
    local.admin()?.wait_in_sync("orders", 3, 3, START_LIMIT)?;
    let pid = |broker: usize| -> Result<i64> {
        let status = local.status()?;
        status
            .pointer(&format!("/brokers/{broker}/pid"))
            .and_then(serde_json::Value::as_i64)
            .with_context(|| format!("no pid in {status}"))
    };
    let before = pid(1)?;
    // SAFETY: kill(2) takes two integers; the process is the one that the status names.
    ensure!(
        unsafe { libc::kill(i32::try_from(before)?, libc::SIGKILL) } == 0,
        "cannot kill broker 1"
    );
    wait_until("another process for broker 1", START_LIMIT, || {
        Ok(pid(1)? != before)
    })?;
    local.admin()?.wait_in_sync("orders", 3, 3, START_LIMIT)?;
    local.finish()
}
