//! Produce: batches go from the request's frame to the log, checked and patched where they lie.
//! With acks=all the answer waits for the high watermark; the connection reads on meanwhile.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{BrokerId, LeaderEpoch, TopicId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_core::replica::Acknowledgement;
use taffrail_protocol::frame::encode_response;
use taffrail_protocol::messages::produce_request::{PartitionProduceData, ProduceRequest};
use taffrail_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    ProduceResponse, TopicProduceResponse,
};
use taffrail_protocol::{ErrorCode, Message, Reader, Records};

use crate::access::access_of;
use crate::api::leader_hints::LeaderHints;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;
use crate::groups::is_internal_topic;
use crate::partition::{AppendRequest, Partition, ProduceRefusal};
use crate::replication::Waiter;
use crate::response::{Handled, Response};

/// The one client that may write to internal topics: Kafka's own tools (`KafkaApis.handleProduceRequest`).
const ADMIN_CLIENT_ID: &str = "__admin_client";
/// First version with leader hints (KIP-951).
const LEADER_HINT_VERSION: i16 = 10;
/// First version that may carry zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;

/// Handles a Produce request that starts at `body` of `frame`.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    frame: &mut [u8],
    body: usize,
) -> Handled<E> {
    let request = match ProduceRequest::decode(&mut Reader::at(frame, body), context.version) {
        Ok(request) => request,
        Err(error) => {
            return Handled::Close(format!(
                "Produce request version {}: {error}",
                context.version
            ));
        }
    };
    let acks = request.acks;
    let produce = Produce::append_all(broker, context, &request, frame);
    if acks == 0 {
        return match produce.first_error() {
            // There is no response that could carry it, and the producer must learn that something is wrong.
            Some(error) => Handled::Close(format!("Produce with acks=0 failed: {error:?}")),
            None => Handled::NoReply,
        };
    }
    if produce.waiting.is_empty()
        || produce
            .waiter
            .as_ref()
            .is_some_and(|waiter| waiter.is_over())
    {
        return produce.finish(broker, context);
    }
    let deadline =
        broker.env.now() + Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let (broker, context) = (Arc::clone(broker), context.clone());
    let future = Box::pin(async move {
        if let Some(waiter) = &produce.waiter {
            waiter.wait(&broker.env, deadline).await;
        }
        produce.finish(&broker, &context)
    });
    Handled::Pending {
        future,
        read_ahead: true,
    }
}

/// A request whose batches are in the logs, with what its answer waits for.
struct Produce<E: Env> {
    responses: Vec<TopicProduceResponse>,
    waiting: Vec<Waiting<E>>,
    waiter: Option<Arc<Waiter>>,
}

/// One partition that in-sync replicas still have to confirm.
struct Waiting<E: Env> {
    partition: Arc<Partition<E>>,
    topic_index: usize,
    partition_index: usize,
    end_offset: i64,
    leader_epoch: LeaderEpoch,
}

impl<E: Env> Produce<E> {
    fn append_all(
        broker: &Arc<Broker<E>>,
        context: &RequestContext,
        request: &ProduceRequest,
        frame: &mut [u8],
    ) -> Self {
        let image = broker.cluster.image();
        let partitions: usize = request
            .topic_data
            .iter()
            .map(|topic| topic.partition_data.len())
            .sum();
        let waiter = (request.acks == -1)
            .then(|| Waiter::new(i64::try_from(partitions).unwrap_or(i64::MAX)));
        let mut produce = Self {
            responses: Vec::with_capacity(request.topic_data.len()),
            waiting: Vec::new(),
            waiter,
        };
        for (topic_index, topic) in request.topic_data.iter().enumerate() {
            let found = find_topic(
                &image,
                context.version,
                &topic.name,
                TopicId(topic.topic_id.0),
            );
            let mut answers = Vec::with_capacity(topic.partition_data.len());
            for (partition_index, data) in topic.partition_data.iter().enumerate() {
                let result = match &found {
                    Ok((id, name)) => append_one(
                        broker,
                        context,
                        request,
                        produce.waiter.as_ref(),
                        *id,
                        name,
                        data,
                        frame,
                    ),
                    Err(refusal) => Err(refusal.clone()),
                };
                let answer = match result {
                    Ok(appended) => {
                        if appended.waits {
                            produce.waiting.push(Waiting {
                                partition: appended.partition,
                                topic_index,
                                partition_index,
                                end_offset: appended.end_offset,
                                leader_epoch: appended.leader_epoch,
                            });
                        }
                        PartitionProduceResponse {
                            index: data.index,
                            ..appended.answer
                        }
                    }
                    Err(refusal) => refused(data.index, &refusal),
                };
                answers.push(answer);
            }
            produce.responses.push(TopicProduceResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: answers,
            });
        }
        if let Some(waiter) = &produce.waiter {
            let done = partitions - produce.waiting.len();
            waiter.credit(i64::try_from(done).unwrap_or(i64::MAX));
        }
        produce
    }

    fn first_error(&self) -> Option<ErrorCode> {
        self.responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .find(|partition| partition.error_code != 0)
            .map(|partition| {
                ErrorCode::try_from(partition.error_code).unwrap_or(ErrorCode::UnknownServerError)
            })
    }

    /// Looks once more at every partition that had to be waited for, and answers.
    fn finish(mut self, broker: &Arc<Broker<E>>, context: &RequestContext) -> Handled<E> {
        for waiting in &self.waiting {
            let error = match waiting
                .partition
                .acknowledgement(waiting.end_offset, waiting.leader_epoch)
            {
                Ok(Acknowledgement::Committed) => continue,
                Ok(Acknowledgement::TooFew) => ErrorKind::NotEnoughReplicasAfterAppend,
                Ok(Acknowledgement::Waiting) => ErrorKind::RequestTimedOut,
                Err(error) => error,
            };
            let answer = &mut self.responses[waiting.topic_index].partition_responses
                [waiting.partition_index];
            *answer = refused(answer.index, &ProduceRefusal::from(error));
        }
        let mut response = ProduceResponse {
            responses: self.responses,
            ..ProduceResponse::default()
        };
        if context.version >= LEADER_HINT_VERSION {
            add_leader_hints(&broker.cluster.image(), broker.id, context, &mut response);
        }
        match encode_response(
            context.correlation_id,
            context.api,
            context.version,
            &response,
        ) {
            Ok(writer) => Handled::Ready(Response::from(writer.buf)),
            Err(error) => Handled::Close(format!("Produce response: {error}")),
        }
    }
}

/// One partition's batch is in the log, or was before.
struct AppendedOne<E: Env> {
    partition: Arc<Partition<E>>,
    answer: PartitionProduceResponse,
    end_offset: i64,
    leader_epoch: LeaderEpoch,
    waits: bool,
}

/// The topic that a request means: by name up to version 12, by id from 13 on.
fn find_topic<'a>(
    image: &'a Image,
    version: i16,
    name: &str,
    id: TopicId,
) -> Result<(TopicId, &'a str), ProduceRefusal> {
    let (topic, error) = if version >= 13 {
        (image.topic(id), ErrorKind::UnknownTopicId)
    } else {
        (
            image.topic_by_name(name),
            ErrorKind::UnknownTopicOrPartition,
        )
    };
    topic
        .map(|topic| (topic.id, topic.name.as_str()))
        .ok_or(ProduceRefusal::from(error))
}

#[allow(clippy::too_many_arguments)] // one call site; the loop around it holds them all
fn append_one<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: &ProduceRequest,
    waiter: Option<&Arc<Waiter>>,
    topic_id: TopicId,
    topic: &str,
    data: &PartitionProduceData,
    frame: &mut [u8],
) -> Result<AppendedOne<E>, ProduceRefusal> {
    if !(-1..=1).contains(&request.acks) {
        return Err(ErrorKind::InvalidRequiredAcks.into());
    }
    if request.transactional_id.is_some() {
        return Err(ProduceRefusal::with_message(
            ErrorKind::InvalidTxnState,
            "this version has no transactions: produce without a transactional.id",
        ));
    }
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), topic)
    {
        return Err(ErrorKind::TopicAuthorizationFailed.into());
    }
    if is_internal_topic(topic) && context.client_id.as_deref() != Some(ADMIN_CLIENT_ID) {
        return Err(ErrorKind::InvalidTopicException.into());
    }
    let id = TopicPartition::new(topic_id, data.index);
    let partition = broker
        .partition(id)
        .ok_or_else(|| not_here(&broker.cluster.image(), id))?;
    let Records::Range(range) = &data.records else {
        return Err(ProduceRefusal::with_message(
            ErrorKind::InvalidRecord,
            "the partition has no record batch",
        ));
    };
    let records = frame
        .get_mut(range.clone())
        .ok_or(ErrorKind::CorruptMessage)?;
    let appended = partition.append_as_leader(
        &broker.env,
        AppendRequest {
            acks: request.acks,
            zstd_allowed: context.version >= ZSTD_VERSION,
        },
        records,
        waiter,
    )?;
    Ok(AppendedOne {
        answer: PartitionProduceResponse {
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time_ms,
            log_start_offset: appended.log_start_offset,
            ..PartitionProduceResponse::default()
        },
        end_offset: appended.end_offset,
        leader_epoch: appended.leader_epoch,
        waits: appended.waits,
        partition,
    })
}

/// Why a partition of a known topic has no replica here.
fn not_here(image: &Image, id: TopicPartition) -> ProduceRefusal {
    match image.partition(id) {
        Some(_) => ErrorKind::NotLeaderOrFollower.into(),
        None => ErrorKind::UnknownTopicOrPartition.into(),
    }
}

fn refused(index: i32, refusal: &ProduceRefusal) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code: code_of(refusal.kind).code(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        record_errors: refusal
            .records
            .iter()
            .map(|(index, message)| BatchIndexAndErrorMessage {
                batch_index: *index,
                batch_index_error_message: Some(message.clone()),
            })
            .collect(),
        error_message: refusal.message.clone(),
        ..PartitionProduceResponse::default()
    }
}

/// Tells producers that came to the wrong broker where the leader is (KIP-951).
fn add_leader_hints(
    image: &Image,
    me: BrokerId,
    context: &RequestContext,
    response: &mut ProduceResponse,
) {
    let mut hints = LeaderHints::default();
    for topic in &mut response.responses {
        let found = find_topic(
            image,
            context.version,
            &topic.name,
            TopicId(topic.topic_id.0),
        );
        let Ok((topic_id, _)) = found else { continue };
        for partition in &mut topic.partition_responses {
            if partition.error_code != ErrorCode::NotLeaderOrFollower.code() {
                continue;
            }
            let id = TopicPartition::new(topic_id, partition.index);
            if let Some((leader, epoch)) = hints.other_leader_of(image, id, me) {
                partition.current_leader = LeaderIdAndEpoch {
                    leader_id: leader.0,
                    leader_epoch: epoch.0,
                };
            }
        }
    }
    let endpoints = hints.endpoints(image, &context.listener).into_iter();
    response.node_endpoints = endpoints
        .map(|found| NodeEndpoint {
            node_id: found.node_id,
            host: found.host,
            port: found.port,
            rack: found.rack,
        })
        .collect();
}
