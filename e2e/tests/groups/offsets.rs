//! What groups commit and are told, by requests that name the broker they go to.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::wait::wait_for;
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
/// The topic that offsets are committed for; partition 0 is enough.
pub(crate) const TOPIC: &str = "load";
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// What a group is told: an offset, or the broker's refusal.
pub(crate) type Told = Result<i64, ErrorCode>;

/// The broker that coordinates a group as another one tells, if it tells.
pub(crate) fn coordinator(
    cluster: &Cluster,
    group: &str,
    stopped: Option<usize>,
) -> Result<Option<usize>> {
    let mut members = cluster.members().iter();
    let asked = members.find(|member| Some(member.id) != stopped);
    let address = asked.context("one must run")?.client.address();
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![group.to_owned()],
        ..FindCoordinatorRequest::default()
    };
    let answer = wire::ask(&address, &request)?;
    let found = answer.coordinators.first().context("one was asked for")?;
    Ok(usize::try_from(found.node_id).ok())
}

/// Commits an offset with a coordinator that runs.
pub(crate) fn commit(
    cluster: &Cluster,
    group: &str,
    offset: i64,
    stopped: Option<usize>,
) -> Result<()> {
    wait_for("an offset to be committed", LIMIT, || {
        let found = coordinator(cluster, group, stopped)?;
        let Some(found) = found.filter(|found| Some(*found) != stopped) else {
            return Ok(None);
        };
        match commit_to(&cluster.members()[found].client.address(), group, offset)? {
            0 => Ok(Some(())),
            code => bail!("error {code}"),
        }
    })
}

/// Commits an offset with this broker, and gives its error code.
pub(crate) fn commit_to(address: &str, group: &str, offset: i64) -> Result<i16> {
    let request = OffsetCommitRequest {
        group_id: group.to_owned(),
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
    let answer = wire::ask_in_version(address, &request, NAMES_VERSION)?;
    let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    Ok(partitions.next().context("one was committed")?.error_code)
}

/// What a broker says is committed.
pub(crate) fn committed(address: &str, group: &str) -> Result<Told> {
    committed_of(address, &[group])?
        .pop()
        .context("one was asked for")
}

/// What a broker says of several groups in one answer, in the order in which they are asked for.
pub(crate) fn committed_of(address: &str, groups: &[&str]) -> Result<Vec<Told>> {
    let asked = |group: &&str| OffsetFetchRequestGroup {
        group_id: (*group).to_owned(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: TOPIC.to_owned(),
            partition_indexes: vec![0],
            ..OffsetFetchRequestTopics::default()
        }]),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest {
        groups: groups.iter().map(asked).collect(),
        ..OffsetFetchRequest::default()
    };
    let answer = wire::ask_in_version(address, &request, NAMES_VERSION)?;
    let named: Vec<&str> = answer
        .groups
        .iter()
        .map(|group| group.group_id.as_str())
        .collect();
    if named != groups {
        bail!("{named:?} were answered for {groups:?}");
    }
    let told = answer.groups.iter().map(|group| {
        if group.error_code != 0 {
            let refusal = ErrorCode::try_from(group.error_code);
            return Ok(Err(refusal.map_err(|code| anyhow::anyhow!("error {code}"))?));
        }
        let mut partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
        let partition = partitions.next().context("one was asked for")?;
        Ok(Ok(partition.committed_offset))
    });
    told.collect()
}
