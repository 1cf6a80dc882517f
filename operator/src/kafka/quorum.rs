//! `taffrail-operator quorum`: who votes on the metadata, for a person to see and to change, by Kafka's own requests (KIP-853).
//! It never decides who should vote.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use taffrail_protocol::messages::describe_quorum_request::{
    DescribeQuorumRequest, PartitionData, TopicData,
};
use taffrail_protocol::messages::describe_quorum_response::{
    PartitionData as Quorum, ReplicaState,
};
use taffrail_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
};
use taffrail_protocol::{ErrorCode, Request, Uuid};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep};

use super::admin::{Admin, AdminError, refused};
use super::observe::{CONTROLLER_WAIT_MS, METADATA_TOPIC};
use crate::cli::{DescribeQuorumArguments, Output, QuorumCommand, VoterArguments};

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Does what a command of `quorum` asks for.
pub fn run_quorum(command: &QuorumCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match command {
            QuorumCommand::Describe(arguments) => describe(arguments).await,
            QuorumCommand::AddVoter(arguments) => add_voter(arguments).await,
            QuorumCommand::RemoveVoter(arguments) => remove_voter(arguments).await,
        }
    })
}

async fn describe(arguments: &DescribeQuorumArguments) -> Result<()> {
    let mut admin = connect(&arguments.bootstrap).await?;
    let quorum = observe(&mut admin).await?;
    match arguments.output {
        Output::Json => crate::say!("{}", serde_json::to_string_pretty(&as_json(&quorum))?),
        Output::Text => {
            for line in as_text(&quorum) {
                crate::say!("{line}");
            }
        }
    }
    Ok(())
}

/// Asks again until the broker votes. What is under way goes on in the cluster if this command ends.
async fn add_voter(arguments: &VoterArguments) -> Result<()> {
    let mut admin = connect(&arguments.bootstrap).await?;
    let request = AddRaftVoterRequest {
        timeout_ms: CONTROLLER_WAIT_MS,
        voter_id: arguments.id,
        voter_directory_id: arguments.directory.unwrap_or_default(),
        ..AddRaftVoterRequest::default()
    };
    let deadline = Instant::now() + Duration::from_secs(arguments.wait);
    let judge =
        |answer: AddRaftVoterResponse| refused(answer.error_code, answer.error_message.as_deref());
    let done = ErrorCode::DuplicateVoter;
    ask_until_done(&mut admin, &request, judge, done, deadline).await?;
    let quorum = observe(&mut admin).await?;
    let voter = find(&quorum.current_voters, arguments.id)
        .with_context(|| format!("broker {} does not vote after all", arguments.id))?;
    let directory = voter.replica_directory_id;
    ensure!(
        arguments.directory.is_none_or(|wanted| wanted == directory),
        "broker {} votes with directory {directory}",
        arguments.id
    );
    crate::say!("broker {} votes, with directory {directory}", arguments.id);
    Ok(())
}

async fn remove_voter(arguments: &VoterArguments) -> Result<()> {
    let mut admin = connect(&arguments.bootstrap).await?;
    let deadline = Instant::now() + Duration::from_secs(arguments.wait);
    let directory = match arguments.directory {
        Some(directory) => directory,
        None => {
            let quorum = observe(&mut admin).await?;
            let member = find(&quorum.current_voters, arguments.id);
            let member = member.or_else(|| find(&quorum.observers, arguments.id));
            match member {
                Some(member) => member.replica_directory_id,
                None => bail!("broker {} does not vote", arguments.id),
            }
        }
    };
    let request = RemoveRaftVoterRequest {
        cluster_id: None,
        voter_id: arguments.id,
        voter_directory_id: directory,
    };
    let judge = |answer: RemoveRaftVoterResponse| {
        refused(answer.error_code, answer.error_message.as_deref())
    };
    let done = ErrorCode::VoterNotFound;
    ask_until_done(&mut admin, &request, judge, done, deadline).await?;
    crate::say!(
        "broker {} with directory {directory} does not vote any more",
        arguments.id
    );
    Ok(())
}

/// Asks again until what is asked for is done. A repeated request is refused with `done` where an earlier one was carried out and
/// its answer lost.
async fn ask_until_done<R: Request>(
    admin: &mut Admin,
    request: &R,
    judge: impl Fn(R::Response) -> Result<(), AdminError>,
    done: ErrorCode,
    deadline: Instant,
) -> Result<()> {
    let mut asked_before = false;
    loop {
        match admin.call(request).await.and_then(&judge) {
            Ok(()) => return Ok(()),
            Err(error) if asked_before && is(&error, done) => return Ok(()),
            Err(error) => wait_or_fail(error, deadline).await?,
        }
        asked_before = true;
    }
}

/// Waits before another attempt, if there is time for one and a chance.
async fn wait_or_fail(error: AdminError, deadline: Instant) -> Result<()> {
    let may_pass = error.is_connection()
        || is(&error, ErrorCode::RequestTimedOut)
        || is(&error, ErrorCode::NotController);
    if !may_pass || Instant::now() + PAUSE > deadline {
        return Err(error.into());
    }
    crate::say!("not yet: {error}");
    sleep(PAUSE).await;
    Ok(())
}

fn is(error: &AdminError, code: ErrorCode) -> bool {
    matches!(error, AdminError::Refused { error, .. } if error.0 == code.code())
}

async fn connect(bootstrap: &str) -> Result<Admin> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in bootstrap.split(',') {
        let resolved = lookup_host(address)
            .await
            .with_context(|| format!("{address} cannot be resolved"))?;
        addresses.extend(resolved);
    }
    Ok(Admin::new(addresses))
}

/// The voters and learners, as the leader knows them.
async fn observe(admin: &mut Admin) -> Result<Quorum> {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: METADATA_TOPIC.to_owned(),
            partitions: vec![PartitionData::default()],
        }],
    };
    let response = admin.call(&request).await?;
    refused(response.error_code, response.error_message.as_deref())?;
    let mut partitions = response
        .topics
        .into_iter()
        .flat_map(|topic| topic.partitions);
    let quorum = partitions
        .next()
        .context("the answer says nothing of the quorum")?;
    refused(quorum.error_code, quorum.error_message.as_deref())?;
    Ok(quorum)
}

fn find(replicas: &[ReplicaState], id: i32) -> Option<&ReplicaState> {
    replicas.iter().find(|replica| replica.replica_id == id)
}

fn as_text(quorum: &Quorum) -> Vec<String> {
    let mut lines = vec![format!(
        "broker {} leads in term {}; the metadata is committed up to {}",
        quorum.leader_id,
        quorum.leader_epoch,
        quorum.high_watermark - 1
    )];
    let mut push = |replica: &ReplicaState, what: &str| {
        let directory = named(replica.replica_directory_id);
        let heard = if replica.last_fetch_timestamp >= 0 {
            ""
        } else {
            ", not heard of lately"
        };
        lines.push(format!(
            "broker {:<4} {what:<8} directory {directory:<22}  log ends at {}{heard}",
            replica.replica_id,
            replica.log_end_offset - 1
        ));
    };
    for voter in &quorum.current_voters {
        push(voter, "votes");
    }
    for learner in &quorum.observers {
        push(learner, "learns");
    }
    lines
}

fn named(directory: Uuid) -> String {
    if directory.is_zero() {
        "unknown".to_owned()
    } else {
        directory.to_string()
    }
}

fn as_json(quorum: &Quorum) -> serde_json::Value {
    let replicas = |replicas: &[ReplicaState]| {
        let entry = |replica: &ReplicaState| {
            let directory = replica.replica_directory_id;
            serde_json::json!({
                "id": replica.replica_id,
                "directoryId": (!directory.is_zero()).then(|| directory.to_string()),
                "logEnd": replica.log_end_offset - 1,
                "heardOfLately": replica.last_fetch_timestamp >= 0,
            })
        };
        replicas.iter().map(entry).collect::<Vec<_>>()
    };
    serde_json::json!({
        "leader": quorum.leader_id,
        "term": quorum.leader_epoch,
        "committed": quorum.high_watermark - 1,
        "voters": replicas(&quorum.current_voters),
        "learners": replicas(&quorum.observers),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_and_learners_are_told_with_their_directories() {
        let replica = |id: i32, directory: u8, heard: i64| ReplicaState {
            replica_id: id,
            replica_directory_id: Uuid([directory; 16]),
            log_end_offset: 8,
            last_fetch_timestamp: heard,
            last_caught_up_timestamp: heard,
        };
        let quorum = Quorum {
            leader_id: 1,
            leader_epoch: 3,
            high_watermark: 8,
            current_voters: vec![replica(0, 7, -1), replica(1, 9, 5)],
            observers: vec![replica(2, 0, 5)],
            ..Quorum::default()
        };
        let text = as_text(&quorum);
        assert_eq!(text.len(), 4);
        assert!(text[0].contains("broker 1 leads in term 3"), "{text:?}");
        assert!(text[1].contains(&Uuid([7; 16]).to_string()), "{text:?}");
        assert!(text[1].contains("not heard of lately"), "{text:?}");
        assert!(text[3].contains("learns"), "{text:?}");
        let json = as_json(&quorum);
        assert_eq!(json["voters"][1]["heardOfLately"], true);
        assert_eq!(json["learners"][0]["directoryId"], serde_json::Value::Null);
        assert_eq!(
            find(&quorum.current_voters, 2).map(|voter| voter.replica_id),
            None
        );
    }
}
