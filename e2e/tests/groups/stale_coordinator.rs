//! A coordinator that stood still while another one took over tells nobody what was committed before.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::http;
use taffrail_e2e::load::{Load, LoadSpec};
use taffrail_e2e::wait::wait_until;
use taffrail_protocol::ErrorCode;

use crate::offsets::{LIMIT, TOPIC, commit, committed, committed_of, coordinator};

const GROUP: &str = "readers";
const ROUNDS: i64 = 3;
/// Requests that lie in the sockets of the broker that stands still.
const ASKERS: usize = 8;

#[test]
fn a_coordinator_that_stood_still_tells_no_old_offset() -> Result<()> {
    let mut cluster = Cluster::start(
        ClusterSpec::new(3)?
            .with("offsets.topic.num.partitions", "1")
            .with("broker.session.timeout.ms", "1000"),
    )?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, 6, 3, &[("min.insync.replicas", "2")])?;
    // Followers then always have a request under way, which lies in a socket, too, when the leader stops.
    let load = Load::start(
        &cluster.bootstrap(),
        LoadSpec {
            topic: TOPIC.to_owned(),
            partitions: 6,
            rate: 1000,
        },
    )?;
    for round in 0..ROUNDS {
        let (old, new) = (2 * round, 2 * round + 1);
        commit(&cluster, GROUP, old, None)?;
        let stale = coordinator(&cluster, GROUP, None)?.context("somebody must coordinate")?;
        cluster.signal(stale, libc::SIGSTOP)?;
        let address = cluster.members()[stale].client.address();
        let askers: Vec<_> = (0..ASKERS)
            .map(|_| {
                let address = address.clone();
                thread::spawn(move || committed(&address, GROUP))
            })
            .collect();
        commit(&cluster, GROUP, new, Some(stale))?;
        cluster.signal(stale, libc::SIGCONT)?;
        for asker in askers {
            let told = asker
                .join()
                .map_err(|_| anyhow::anyhow!("an asker panicked"))??;
            match told {
                Ok(offset) => ensure!(offset == new, "{offset} was told, and {new} is committed"),
                Err(error) => ensure!(error == ErrorCode::NotCoordinator, "{error:?}"),
            }
        }
        admin.wait_in_sync(TOPIC, 6, 3, LIMIT)?;
        wait_until("the group's offset to be told", LIMIT, || {
            let coordinator =
                coordinator(&cluster, GROUP, None)?.context("somebody must coordinate")?;
            let told = committed(&cluster.members()[coordinator].client.address(), GROUP)?;
            Ok(told == Ok(new))
        })?;
    }
    load.stop()?;
    cluster.finish();
    Ok(())
}

#[test]
fn an_idle_cluster_tells_offsets_without_waiting_for_a_long_poll() -> Result<()> {
    let cluster = Cluster::start(
        ClusterSpec::new(3)?
            .with("offsets.topic.num.partitions", "1")
            .with("replica.fetch.wait.max.ms", "5000"),
    )?;
    cluster.admin()?.create_topic(TOPIC, 1, 3, &[])?;
    commit(&cluster, GROUP, 1, None)?;
    let coordinator = coordinator(&cluster, GROUP, None)?.context("somebody must coordinate")?;
    let address = cluster.members()[coordinator].client.address();
    // Of several, since followers may be busy with something else at first.
    let mut took = Vec::new();
    for _ in 0..5 {
        let asked = Instant::now();
        ensure!(
            committed(&address, GROUP)? == Ok(1),
            "the offset must be told"
        );
        took.push(asked.elapsed());
    }
    took.sort();
    ensure!(took[2] < Duration::from_secs(2), "it took {took:?}");
    cluster.finish();
    Ok(())
}

#[test]
fn a_silent_replica_of_one_groups_coordinator_holds_up_no_other_group() -> Result<()> {
    let mut cluster = Cluster::start(
        ClusterSpec::new(3)?
            .with("offsets.topic.num.partitions", "12")
            .with("offsets.topic.replication.factor", "2")
            .with("offsets.commit.timeout.ms", "2000")
            .with("broker.session.timeout.ms", "30000")
            // No long poll ends by itself meanwhile, which would prove it by chance.
            .with("replica.fetch.wait.max.ms", "5000"),
    )?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, 1, 3, &[])?;
    commit(&cluster, GROUP, 1, None)?;
    admin.wait_in_sync("__consumer_offsets", 12, 2, LIMIT)?;
    let partitions = admin.partitions("__consumer_offsets")?;
    // Whose silence nobody takes for its death meanwhile: the others would elect a new controller, which fences the old one.
    let controller = controller(&cluster)?;
    let mut pairs = partitions
        .iter()
        .flat_map(|one| partitions.iter().map(move |other| (one, other)))
        // The lower one is waited for first.
        .filter(|(one, other)| one.leader == other.leader && one.partition < other.partition)
        .flat_map(|(one, other)| one.isr.iter().map(move |member| (one, other, *member)))
        .filter(|(_, other, member)| !other.isr.contains(member) && *member != controller);
    let (one, other, silent) = pairs
        .next()
        .context("two partitions that differ by a replica")?;
    let silent = usize::try_from(silent)?;
    let leader = usize::try_from(one.leader)?;
    let (slow, quick) = (group_in(one.partition, 12)?, group_in(other.partition, 12)?);
    commit(&cluster, &slow, 1, None)?;
    commit(&cluster, &quick, 2, None)?;

    cluster.signal(silent, libc::SIGSTOP)?;
    wait_stopped(cluster.members()[silent].pid().context("it runs")?)?;
    let address = cluster.members()[leader].client.address();
    let told = committed_of(&address, &[&slow, &quick]);
    cluster.signal(silent, libc::SIGCONT)?;
    let told = told?;
    ensure!(
        told == [Err(ErrorCode::NotCoordinator), Ok(2)],
        "{told:?} was told"
    );
    cluster.finish();
    Ok(())
}

/// Waits until each thread of a process has seen that it is to stop; on a busy machine they go on for some milliseconds.
fn wait_stopped(pid: u32) -> Result<()> {
    wait_until("the process to stand still", LIMIT, || {
        let mut stopped = true;
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            stopped &= status.contains("State:\tT");
        }
        Ok(stopped)
    })
}

/// The active controller.
fn controller(cluster: &Cluster) -> Result<i32> {
    let (_, state) = http::get(&cluster.members()[0].http("/admin/state"))?;
    let state: Value = serde_json::from_str(&state)?;
    let controller = state["controller_id"].as_i64();
    Ok(i32::try_from(controller.context("somebody controls")?)?)
}

/// A group that falls into this partition of the offsets topic: by Java's hash of its name.
fn group_in(partition: i32, count: i32) -> Result<String> {
    let hash = |name: &str| {
        let units = name.encode_utf16().map(i32::from);
        units.fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit))
    };
    let mut names = (0..1000).map(|number| format!("group-{number}"));
    let found = names.find(|name| hash(name).checked_abs().unwrap_or(0) % count == partition);
    found.context("some name falls into each partition")
}
