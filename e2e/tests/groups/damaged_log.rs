//! A coordinator does not take what a disk made of a committed offset for one.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::http;
use taffrail_e2e::wait::{wait_for, wait_until};
use taffrail_e2e::wire;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};

use crate::offsets::{LIMIT, TOPIC, commit, committed, coordinator};

const GROUP: &str = "readers";
const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Eight bytes that stand nowhere else in the log.
const OFFSET: i64 = 0x0102_3b5c_7d9e_0a64;

#[test]
fn a_damaged_offset_is_told_by_nobody_and_another_replica_takes_over() -> Result<()> {
    let spec = ClusterSpec::new(3)?.with("offsets.topic.num.partitions", "1");
    let mut cluster = Cluster::start(spec)?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, 1, 3, &[])?;
    commit(&cluster, GROUP, OFFSET, None)?;
    admin.wait_in_sync(OFFSETS_TOPIC, 1, 3, LIMIT)?;
    let damaged = coordinator(&cluster, GROUP, None)?.context("somebody must coordinate")?;
    cluster.stop(damaged)?;
    flip(&cluster, damaged)?;
    cluster.start_broker(damaged)?;
    admin.wait_in_sync(OFFSETS_TOPIC, 1, 3, LIMIT)?;

    // It led first, so it is the preferred leader.
    let address = cluster.members()[damaged].client.address();
    let elect = ElectLeadersRequest {
        topic_partitions: Some(vec![TopicPartitions {
            topic: OFFSETS_TOPIC.to_owned(),
            partitions: vec![0],
        }]),
        timeout_ms: 10_000,
        ..ElectLeadersRequest::default()
    };
    let answer = wire::ask(&address, &elect)?;
    let mut results = answer.replica_election_results.iter();
    let result = results
        .next()
        .and_then(|topic| topic.partition_result.first());
    ensure!(result.context("one was elected")?.error_code == 0);
    wait_until("another replica to tell what was committed", LIMIT, || {
        let by_damaged = committed(&address, GROUP)?;
        ensure!(
            by_damaged.is_err() || by_damaged == Ok(OFFSET),
            "{by_damaged:?} was told"
        );
        let Some(now) = coordinator(&cluster, GROUP, None)? else {
            return Ok(false);
        };
        let told = committed(&cluster.members()[now].client.address(), GROUP)?;
        Ok(now != damaged && told == Ok(OFFSET))
    })?;
    let log = fs::read_to_string(cluster.members()[damaged].log())?;
    ensure!(log.contains("a group coordinator cannot be loaded"));
    wait_until("the damaged replica to be mended", LIMIT, || {
        Ok(position(&fs::read(segment(&cluster, damaged)?)?).is_some())
    })?;
    admin.wait_in_sync(OFFSETS_TOPIC, 1, 3, LIMIT)?;
    cluster.finish();
    Ok(())
}

#[test]
fn a_coordinator_that_cannot_be_loaded_says_why() -> Result<()> {
    let spec = ClusterSpec::new(1)?.with("offsets.topic.num.partitions", "1");
    let mut cluster = Cluster::start(spec)?;
    cluster.admin()?.create_topic(TOPIC, 1, 1, &[])?;
    commit(&cluster, GROUP, OFFSET, None)?;
    ensure!(loading(&cluster)?.is_empty());
    cluster.stop(0)?;
    flip(&cluster, 0)?;
    cluster.start_broker(0)?;
    cluster.wait_ready()?;
    let trouble = wait_for("the broker to tell of the damage", LIMIT, || {
        let loading = loading(&cluster)?;
        let trouble = loading.first().and_then(|entry| entry["trouble"].as_str());
        Ok(trouble.map(str::to_owned))
    })?;
    ensure!(
        trouble.starts_with("the log is damaged at offset "),
        "{trouble}"
    );
    let told = committed(&cluster.members()[0].client.address(), GROUP)?;
    ensure!(
        told == Err(ErrorCode::CoordinatorLoadInProgress),
        "{told:?} was told"
    );
    cluster.finish();
    Ok(())
}

/// The coordinators that a one-broker cluster shows to be loading.
fn loading(cluster: &Cluster) -> Result<Vec<Value>> {
    let (_, state) = http::get(&cluster.members()[0].http("/admin/state"))?;
    let state: Value = serde_json::from_str(&state)?;
    let loading = state["loading_coordinators"].as_array();
    Ok(loading.context("loading_coordinators")?.clone())
}

/// Changes one bit of the committed offset in a broker's log, as a failing medium does.
fn flip(cluster: &Cluster, broker: usize) -> Result<()> {
    let path = segment(cluster, broker)?;
    let bytes = fs::read(&path)?;
    let at = position(&bytes).context("the offset must be in the log")? + 7;
    let file = OpenOptions::new().write(true).open(&path)?;
    file.write_all_at(&[bytes[at] ^ 4], u64::try_from(at)?)?;
    Ok(())
}

fn position(log: &[u8]) -> Option<usize> {
    log.windows(8)
        .position(|bytes| bytes == OFFSET.to_be_bytes().as_slice())
}

/// The only segment of the offsets topic.
fn segment(cluster: &Cluster, broker: usize) -> Result<PathBuf> {
    let folder = cluster.partition_folder(broker, OFFSETS_TOPIC, 0);
    let mut paths = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
    paths.pop().context("a segment")
}
