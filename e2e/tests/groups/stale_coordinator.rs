//! A coordinator that stood still while another one took over tells nobody what was committed before.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::load::{Load, LoadSpec};
use taffrail_e2e::wait::wait_until;
use taffrail_protocol::ErrorCode;

use crate::offsets::{LIMIT, TOPIC, commit, committed, coordinator};

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
