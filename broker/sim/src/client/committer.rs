//! A consumer without a generation that commits ever higher offsets for a group of its own and asks for them.

use std::io;

use taffrail_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use taffrail_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};

use super::{Client, ClientEnv, PATIENCE, is_transient};
use crate::history::Event;

/// Commits and asks until it is told to stop.
pub(crate) async fn commit(env: ClientEnv, group: String) {
    let mut client = Client::new(env.clone());
    let mut coordinator = None;
    let mut offset = 0;
    while !env.is_stopping() {
        let Some(address) = coordinator.take() else {
            coordinator = client.coordinator(&group).await;
            env.pause(300).await;
            continue;
        };
        let code = if env.chance(50) {
            offset += 1;
            write(&mut client, &env, &address, &group, offset).await
        } else {
            read(&mut client, &env, &address, &group).await
        };
        match code {
            Ok(0) => coordinator = Some(address),
            Ok(code) if !is_transient(code) => {
                env.refused(format!("an offset of group {group}"), code);
            }
            Ok(_) | Err(_) => {}
        }
        env.pause(300).await;
    }
}

async fn write(
    client: &mut Client,
    env: &ClientEnv,
    address: &(String, u16),
    group: &str,
    offset: i64,
) -> io::Result<i16> {
    let request = OffsetCommitRequest {
        group_id: group.to_owned(),
        topics: vec![OffsetCommitRequestTopic {
            name: env.topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                committed_metadata: Some(String::new()),
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    let group = group.to_owned();
    // The answer may take as long as replication does.
    let called = client.call(address, &request, 8, 3 * PATIENCE).await;
    let code = called.map(|(response, _)| {
        let topic = response.topics.first();
        topic
            .and_then(|topic| topic.partitions.first())
            .map_or(-1, |partition| partition.error_code)
    });
    env.history.push(match code {
        Ok(0) => Event::Committed { group, offset },
        // Even an error may mean that it was written and not replicated in time.
        Ok(_) | Err(_) => Event::CommitUnknown { group, offset },
    });
    code
}

async fn read(
    client: &mut Client,
    env: &ClientEnv,
    address: &(String, u16),
    group: &str,
) -> io::Result<i16> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: env.topic.to_owned(),
                partition_indexes: vec![0],
                ..OffsetFetchRequestTopics::default()
            }]),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let (response, _) = client.call(address, &request, 8, PATIENCE).await?;
    let Some(answer) = response.groups.first() else {
        return Ok(-1);
    };
    if answer.error_code != 0 {
        return Ok(answer.error_code);
    }
    let partition = (answer.topics.first()).and_then(|topic| topic.partitions.first());
    let Some(partition) = partition else {
        return Ok(-1);
    };
    if partition.error_code == 0 {
        env.history.push(Event::CommittedOffset {
            group: group.to_owned(),
            offset: partition.committed_offset,
        });
    }
    Ok(partition.error_code)
}
