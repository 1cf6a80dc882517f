//! A coordinator that stood still while another one took over tells nobody what was committed before.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::load::{Load, LoadSpec};
use taffrail_e2e::wait::{wait_for, wait_until};
use taffrail_e2e::wire;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use taffrail_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use taffrail_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};

/// The last version of OffsetCommit and OffsetFetch that names topics.
const NAMES_VERSION: i16 = 9;
const GROUP: &str = "readers";
const TOPIC: &str = "load";
const ROUNDS: i64 = 3;
/// Requests that lie in the sockets of the broker that stands still.
const ASKERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);

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
        commit(&cluster, old, None)?;
        let stale = coordinator(&cluster, None)?.context("somebody must coordinate")?;
        cluster.signal(stale, libc::SIGSTOP)?;
        let address = cluster.members()[stale].client.address();
        let askers: Vec<_> = (0..ASKERS)
            .map(|_| {
                let address = address.clone();
                thread::spawn(move || committed(&address))
            })
            .collect();
        commit(&cluster, new, Some(stale))?;
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
            let coordinator = coordinator(&cluster, None)?.context("somebody must coordinate")?;
            let told = committed(&cluster.members()[coordinator].client.address())?;
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
    commit(&cluster, 1, None)?;
    let coordinator = coordinator(&cluster, None)?.context("somebody must coordinate")?;
    let address = cluster.members()[coordinator].client.address();
    // Of several, since followers may be busy with something else at first.
    let mut took = Vec::new();
    for _ in 0..5 {
        let asked = Instant::now();
        ensure!(committed(&address)? == Ok(1), "the offset must be told");
        took.push(asked.elapsed());
    }
    took.sort();
    ensure!(took[2] < Duration::from_secs(2), "it took {took:?}");
    cluster.finish();
    Ok(())
}

/// The broker that coordinates the group as another one tells, if it tells.
fn coordinator(cluster: &Cluster, stopped: Option<usize>) -> Result<Option<usize>> {
    let mut members = cluster.members().iter();
    let asked = members.find(|member| Some(member.id) != stopped);
    let address = asked.context("there are three")?.client.address();
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![GROUP.to_owned()],
        ..FindCoordinatorRequest::default()
    };
    let answer = wire::ask(&address, &request)?;
    let found = answer.coordinators.first().context("one was asked for")?;
    Ok(usize::try_from(found.node_id).ok())
}

/// Commits an offset with a coordinator that runs.
fn commit(cluster: &Cluster, offset: i64, stopped: Option<usize>) -> Result<()> {
    wait_for("an offset to be committed", LIMIT, || {
        let Some(found) = coordinator(cluster, stopped)?.filter(|found| Some(*found) != stopped)
        else {
            return Ok(None);
        };
        let request = OffsetCommitRequest {
            group_id: GROUP.to_owned(),
            topics: vec![OffsetCommitRequestTopic {
                name: TOPIC.to_owned(),
                partitions: vec![OffsetCommitRequestPartition {
                    committed_offset: offset,
                    ..OffsetCommitRequestPartition::default()
                }],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let answer = wire::ask_in_version(
            &cluster.members()[found].client.address(),
            &request,
            NAMES_VERSION,
        )?;
        match answer
            .topics
            .first()
            .and_then(|topic| topic.partitions.first())
        {
            Some(partition) if partition.error_code == 0 => Ok(Some(())),
            Some(partition) => bail!("error {}", partition.error_code),
            None => bail!("nothing was answered"),
        }
    })
}

/// What a broker says is committed, or its refusal.
fn committed(address: &str) -> Result<Result<i64, ErrorCode>> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: GROUP.to_owned(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: TOPIC.to_owned(),
                partition_indexes: vec![0],
                ..OffsetFetchRequestTopics::default()
            }]),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let answer = wire::ask_in_version(address, &request, NAMES_VERSION)?;
    let group = answer.groups.first().context("one was asked for")?;
    if group.error_code != 0 {
        return Ok(Err(ErrorCode::try_from(group.error_code)
            .map_err(|code| anyhow::anyhow!("error {code}"))?));
    }
    let mut partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
    let partition = partitions.next().context("one was asked for")?;
    Ok(Ok(partition.committed_offset))
}
