//! Carries ISR proposals from leaders to the controller: all that are waiting in one request, one request at a time,
//! and the answers back. Deciding about an ISR is the leader's (`core::replica`), committing it the controller's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId, TopicPartition,
};
use taffrail_core::replica::{AlterPartitionAnswer, IsrChange, Proposal};
use taffrail_core::time::Instant;
use taffrail_protocol::messages::alter_partitions_request::{
    AlterPartitionsPartition, AlterPartitionsRequest, AlterPartitionsTopic, IsrMember,
};
use taffrail_protocol::messages::alter_partitions_response::AlterPartitionsPartitionResult as PartitionAnswer;
use taffrail_protocol::{ErrorCode, Uuid};
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
use crate::partition::Partition;

/// Partitions in one request; the rest waits for the next one.
const PARTITIONS_MAX: usize = 2_000;
/// How often leaders are asked whether a follower has lagged for too long or a proposal is due again; a resend waits
/// 100 ms, so this may double it.
const TIMEOUT_CHECK: Duration = Duration::from_millis(200);

/// Proposals that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct IsrProposals {
    waiting: Mutex<BTreeMap<TopicPartition, Proposal>>,
    wake: Notify,
}

impl IsrProposals {
    /// Takes a proposal; a newer one of the same partition replaces an older one.
    pub(crate) fn push(&self, partition: TopicPartition, proposal: Proposal) {
        self.waiting
            .lock()
            .expect("no panic while locked")
            .insert(partition, proposal);
        self.wake.notify_one();
    }

    /// Makes the task look around.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeMap<TopicPartition, Proposal> {
        let mut waiting = self.waiting.lock().expect("no panic while locked");
        if waiting.len() <= PARTITIONS_MAX {
            return std::mem::take(&mut *waiting);
        }
        let mut taken = BTreeMap::new();
        while taken.len() < PARTITIONS_MAX {
            let Some((partition, proposal)) = waiting.pop_first() else {
                break;
            };
            taken.insert(partition, proposal);
        }
        self.wake.notify_one();
        taken
    }
}

/// Sends proposals as they come.
pub(super) async fn send_proposals<E: Env>(broker: Arc<Broker<E>>) {
    while !broker.is_stopping() {
        broker.replication.proposals.wake.notified().await;
        let proposals = broker.replication.proposals.take();
        if proposals.is_empty() {
            continue;
        }
        let answers = ask_controller(&broker, &proposals).await;
        for (id, proposal) in proposals {
            let Some(partition) = broker.partition(id) else {
                continue;
            };
            let answer = answers
                .get(&id)
                .cloned()
                .unwrap_or(AlterPartitionAnswer::Unknown);
            count(&broker, &proposal, &answer);
            let leaving = leaving(&partition, &proposal, broker.env.now());
            tracing::info!(partition = %partition.name(), change = ?proposal.change, new_isr = ?proposal.new_isr, leaving, ?answer, "ISR change");
            partition.handle_alter_partition_answer(broker.env.now(), &proposal, answer);
        }
    }
}

/// Whom a proposal leaves out of an ISR, and how far they are behind.
fn leaving<E: Env>(partition: &Partition<E>, proposal: &Proposal, now: Instant) -> Option<String> {
    let stays = |id: BrokerId| proposal.new_isr.iter().any(|(member, _)| *member == id);
    let numbers = partition.numbers(now)?;
    let members = numbers.followers.iter();
    let leave =
        members.filter(|follower| follower.out_of_sync.is_none() && !stays(follower.broker));
    let told = leave.map(|follower| {
        let (broker, lag) = (follower.broker, follower.lag);
        let records = lag
            .records
            .map_or("unknown".to_owned(), |records| records.to_string());
        let ms = lag.since_caught_up.map_or(0, |time| time.as_millis());
        format!("{broker} (lag {records}, caught up {ms} ms ago)")
    });
    let told = told.collect::<Vec<_>>().join(", ");
    (!told.is_empty()).then_some(told)
}

/// Tells leaders that time has passed.
pub(super) async fn check_lag<E: Env>(broker: Arc<Broker<E>>) {
    while !broker.is_stopping() {
        let check = broker.env.next_round(TIMEOUT_CHECK);
        broker.env.sleep_until(check).await;
        let now = broker.env.now();
        for partition in broker.partitions() {
            partition.handle_timeout(now);
        }
    }
}

fn count<E: Env>(broker: &Broker<E>, proposal: &Proposal, answer: &AlterPartitionAnswer) {
    match (answer, proposal.change) {
        (AlterPartitionAnswer::Committed { .. }, IsrChange::Expand) => {
            broker.metrics().isr_expands.inc()
        }
        (AlterPartitionAnswer::Committed { .. }, IsrChange::Shrink) => {
            broker.metrics().isr_shrinks.inc()
        }
        (AlterPartitionAnswer::NotApplied | AlterPartitionAnswer::AwaitMetadata, _) => {
            broker.metrics().failed_isr_updates.inc();
        }
        (AlterPartitionAnswer::Unknown, _) => {}
    }
}

async fn ask_controller<E: Env>(
    broker: &Arc<Broker<E>>,
    proposals: &BTreeMap<TopicPartition, Proposal>,
) -> BTreeMap<TopicPartition, AlterPartitionAnswer> {
    let Some(broker_epoch) = broker.cluster.broker_epoch() else {
        return BTreeMap::new();
    };
    let request = request_for(broker.id, broker_epoch, proposals);
    match broker.cluster.alter_partitions(request).await {
        Ok(response) if response.error_code == ErrorCode::None.code() => response
            .topics
            .iter()
            .flat_map(|topic| {
                let topic_id = TopicId(topic.topic_id.0);
                topic.partitions.iter().map(move |answer| {
                    (
                        TopicPartition::new(topic_id, answer.partition),
                        answer_of(answer),
                    )
                })
            })
            .collect(),
        Ok(response) => {
            tracing::debug!(
                error_code = response.error_code,
                "the controller did not take ISR changes"
            );
            BTreeMap::new()
        }
        Err(error) => {
            tracing::debug!(%error, "the controller could not be asked for ISR changes");
            BTreeMap::new()
        }
    }
}

fn request_for(
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    proposals: &BTreeMap<TopicPartition, Proposal>,
) -> AlterPartitionsRequest {
    let mut topics: Vec<AlterPartitionsTopic> = Vec::new();
    for (id, proposal) in proposals {
        let partition = AlterPartitionsPartition {
            partition: id.partition,
            leader_epoch: proposal.leader_epoch.0,
            partition_epoch: proposal.partition_epoch.0,
            new_isr: proposal
                .new_isr
                .iter()
                .map(|(broker, epoch)| IsrMember {
                    broker_id: broker.0,
                    broker_epoch: epoch.0,
                })
                .collect(),
        };
        // The map is ordered by topic, so partitions of one topic come together.
        match topics.last_mut() {
            Some(topic) if topic.topic_id.0 == id.topic_id.0 => topic.partitions.push(partition),
            Some(_) | None => topics.push(AlterPartitionsTopic {
                topic_id: Uuid(id.topic_id.0),
                partitions: vec![partition],
            }),
        }
    }
    AlterPartitionsRequest {
        broker_id: broker.0,
        broker_epoch: broker_epoch.0,
        topics,
    }
}

fn answer_of(answer: &PartitionAnswer) -> AlterPartitionAnswer {
    match ErrorCode::try_from(answer.error_code) {
        Ok(ErrorCode::None) => AlterPartitionAnswer::Committed {
            leader_epoch: LeaderEpoch(answer.leader_epoch),
            partition_epoch: PartitionEpoch(answer.partition_epoch),
            isr: answer.isr.iter().copied().map(BrokerId).collect(),
            has_eligible: !answer.elr.is_empty(),
        },
        Ok(ErrorCode::IneligibleReplica | ErrorCode::OperationNotAttempted) => {
            AlterPartitionAnswer::NotApplied
        }
        Ok(
            ErrorCode::FencedLeaderEpoch
            | ErrorCode::InvalidUpdateVersion
            | ErrorCode::InvalidRequest
            | ErrorCode::NewLeaderElected
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownTopicOrPartition,
        ) => AlterPartitionAnswer::AwaitMetadata,
        Ok(_) | Err(_) => AlterPartitionAnswer::Unknown,
    }
}
