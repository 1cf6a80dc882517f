//! Fetch: file ranges out to consumers and followers, long polls included. A fetch looks at its partitions, and if
//! there is too little it registers with them and looks again when woken; no record passes through here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::config::ReplicaSelector;
use taffrail_core::error::ErrorKind;
use taffrail_core::fetch_session::{
    Answer, FetchContext, FetchKind, PartitionKey, Position, SessionFetch, Slot, TopicKey,
};
use taffrail_core::ids::{BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;
use taffrail_protocol::Uuid;
use taffrail_protocol::messages::fetch_request::FetchRequest;
use taffrail_protocol::messages::fetch_response::FetchResponse;
use tokio::sync::Notify;

use crate::access::access_of;
use crate::api::fetch_answer::FetchAnswer;
use crate::broker::Broker;
use crate::connection::ListenerKind;
use crate::dispatch::{self, RequestContext};
use crate::env::Env;
use crate::errors::code_of;
use crate::partition::{Fetcher, Isolation, Nearby, Partition, ReadRequest, ReadResult};
use crate::replication::Waiter;
use crate::response::Handled;

/// First version that names topics by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// First version whose consumers can be sent to another replica (KIP-392).
const READ_REPLICA_VERSION: i16 = 11;
/// A re-check of a long poll that had been woken too early waits at least this long, so that a wrong estimate of
/// bytes cannot become a busy loop.
const RECHECK_PAUSE: Duration = Duration::from_micros(200);

type Session<E> = FetchContext<Arc<Partition<E>>>;

/// A long poll that a later fetch of the same session may end.
#[derive(Clone, Debug)]
pub(crate) struct WaitingFetch {
    waiter: Arc<Waiter>,
    answered: Arc<Notify>,
}

/// The long polls of fetch sessions, by session id.
pub(crate) type WaitingFetches = BTreeMap<i32, WaitingFetch>;

/// Handles a Fetch request.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    body: &[u8],
) -> Handled<E> {
    let request = match dispatch::decode::<FetchRequest>(context, body) {
        Ok(request) => request,
        Err(reason) => return Handled::Close(reason),
    };
    let waiting = broker.replication.waiting_fetch(request.session_id);
    let Some(waiting) = waiting else {
        return begin(broker, context, request);
    };
    // The session is with a fetch that still waits: it answers with what it has, and then this one begins.
    let answered = Arc::clone(&waiting.answered);
    waiting.waiter.supersede();
    let (broker, context) = (Arc::clone(broker), context.clone());
    let future = Box::pin(async move {
        answered.notified().await;
        // Passed on, should yet another fetch of the session wait.
        answered.notify_one();
        match begin(&broker, &context, request) {
            Handled::Pending { future, .. } => future.await,
            done => done,
        }
    });
    Handled::Pending {
        future,
        read_ahead: true,
    }
}

fn begin<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: FetchRequest,
) -> Handled<E> {
    let fetcher = match fetcher_of(context, &request) {
        Ok(fetcher) => fetcher,
        Err(error) => return refuse(context, error),
    };
    let session = broker
        .replication
        .sessions()
        .handle_fetch(broker.env.now(), session_fetch(context, &request, fetcher));
    let session = match session {
        Ok(session) => session,
        Err(error) => return refuse(context, error),
    };
    let named_topics_only = !request.topics.is_empty()
        && request
            .topics
            .iter()
            .all(|topic| topic.partitions.is_empty());
    let wait = if named_topics_only {
        0
    } else {
        u64::try_from(request.max_wait_ms).unwrap_or(0)
    };
    let rack_aware = broker.config.replica_selector == Some(ReplicaSelector::RackAware)
        && context.version >= READ_REPLICA_VERSION
        && matches!(fetcher, Fetcher::Consumer(_));
    let mut fetch = Fetch {
        broker: Arc::clone(broker),
        context: context.clone(),
        fetcher,
        rack: rack_aware.then_some(request.rack_id),
        bytes_max: usize::try_from(request.max_bytes.min(broker.config.fetch_max_bytes))
            .unwrap_or(0),
        bytes_min: usize::try_from(
            request
                .min_bytes
                .min(request.max_bytes)
                .min(broker.config.fetch_max_bytes),
        )
        .unwrap_or(0),
        deadline: broker.env.now() + Duration::from_millis(wait),
        session,
        reads: Vec::new(),
    };
    if fetch.look(None, true) || wait == 0 {
        return fetch.finish();
    }
    let waiting = WaitingFetch {
        waiter: Waiter::new(fetch.missing()),
        answered: Arc::new(Notify::new()),
    };
    let missing = fetch.missing();
    if fetch.look(Some(&waiting.waiter), false) {
        return fetch.finish();
    }
    // What came between the two looks will not be credited any more.
    waiting.waiter.credit(missing - fetch.missing());
    let session_id = fetch.session.id();
    broker
        .replication
        .add_waiting_fetch(session_id, waiting.clone());
    let guard = WaitingGuard {
        broker: Arc::clone(broker),
        session_id,
        answered: Arc::clone(&waiting.answered),
    };
    let future = Box::pin(async move {
        let handled = fetch.wait(waiting.waiter).await;
        drop(guard);
        handled
    });
    Handled::Pending {
        future,
        read_ahead: true,
    }
}

/// Takes a waiting fetch off the list when it is answered, and also when its connection goes away before.
struct WaitingGuard<E: Env> {
    broker: Arc<Broker<E>>,
    session_id: i32,
    answered: Arc<Notify>,
}

impl<E: Env> Drop for WaitingGuard<E> {
    fn drop(&mut self) {
        self.broker
            .replication
            .remove_waiting_fetch(self.session_id);
        self.answered.notify_one();
    }
}

/// Who fetches. Only brokers may say that they are followers, and brokers come in by the internal listener.
fn fetcher_of(context: &RequestContext, request: &FetchRequest) -> Result<Fetcher, ErrorKind> {
    let (replica_id, replica_epoch) = if context.version >= 15 {
        (
            request.replica_state.replica_id,
            request.replica_state.replica_epoch,
        )
    } else {
        (request.replica_id, -1)
    };
    if replica_id < 0 {
        let isolation = Isolation::from_wire(request.isolation_level);
        return Ok(Fetcher::Consumer(isolation));
    }
    if context.kind != ListenerKind::Internal {
        return Err(ErrorKind::ClusterAuthorizationFailed);
    }
    let broker_epoch = (replica_epoch >= 0).then_some(BrokerEpoch(replica_epoch));
    Ok(Fetcher::Follower {
        broker: BrokerId(replica_id),
        broker_epoch,
    })
}

fn session_fetch(
    context: &RequestContext,
    request: &FetchRequest,
    fetcher: Fetcher,
) -> SessionFetch {
    let topic_ids = context.version >= TOPIC_ID_VERSION;
    let key = |name: &str, id: Uuid| {
        if topic_ids {
            TopicKey::Id(TopicId(id.0))
        } else {
            TopicKey::Name(Arc::from(name))
        }
    };
    let mut partitions = Vec::with_capacity(
        request
            .topics
            .iter()
            .map(|topic| topic.partitions.len())
            .sum(),
    );
    for topic in &request.topics {
        let topic_key = key(&topic.topic, topic.topic_id);
        for partition in &topic.partitions {
            let position = Position {
                fetch_offset: partition.fetch_offset,
                max_bytes: partition.partition_max_bytes,
                current_leader_epoch: epoch(partition.current_leader_epoch),
                last_fetched_epoch: epoch(partition.last_fetched_epoch),
                log_start_offset: partition.log_start_offset,
            };
            partitions.push((
                PartitionKey {
                    topic: topic_key.clone(),
                    partition: partition.partition,
                },
                position,
            ));
        }
    }
    let forgotten = request
        .forgotten_topics_data
        .iter()
        .flat_map(|topic| {
            let topic_key = key(&topic.topic, topic.topic_id);
            topic.partitions.iter().map(move |partition| PartitionKey {
                topic: topic_key.clone(),
                partition: *partition,
            })
        })
        .collect();
    SessionFetch {
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        follower: matches!(fetcher, Fetcher::Follower { .. }),
        topic_ids,
        partitions,
        forgotten,
    }
}

fn epoch(wire: i32) -> Option<LeaderEpoch> {
    (wire >= 0).then_some(LeaderEpoch(wire))
}

/// A fetch on its way.
struct Fetch<E: Env> {
    broker: Arc<Broker<E>>,
    context: RequestContext,
    fetcher: Fetcher,
    /// Where a consumer stands that may read from replicas near it; empty if it does not say.
    rack: Option<String>,
    bytes_max: usize,
    bytes_min: usize,
    deadline: Instant,
    session: Session<E>,
    /// What the last look found, in the order of the session.
    reads: Vec<(Slot, ReadResult<E>)>,
}

impl<E: Env> Fetch<E> {
    /// Reads every partition within the limits; whether there is enough to answer. With a waiter, every partition
    /// notes it under the same lock. The first look of a follower's fetch also tells the leader how far it is.
    fn look(&mut self, waiter: Option<&Arc<Waiter>>, first: bool) -> bool {
        self.reads.clear();
        let image = self.broker.cluster.image();
        let mut remaining = self.bytes_max;
        let mut total = 0;
        let mut answer_now = false;
        let mut next = self.session.first();
        while let Some(slot) = next {
            next = self.session.after(slot);
            let read = self.read_one(&image, slot, remaining, total == 0, waiter, first);
            let bytes = read.range.as_ref().map_or(0, |range| range.length);
            remaining = remaining.saturating_sub(bytes);
            total += bytes;
            answer_now |= read.error.is_some()
                || read.diverging.is_some()
                || read.wanted_again
                || read.preferred_read_replica.is_some();
            if matches!(self.fetcher, Fetcher::Follower { .. }) {
                answer_now |= self.session.has_news(slot, &answer_of(&read));
            }
            self.reads.push((slot, read));
        }
        answer_now
            || total >= self.bytes_min
            || (self.session.is_empty() && self.session.kind() != FetchKind::Incremental)
    }

    fn missing(&self) -> i64 {
        let found: usize = self
            .reads
            .iter()
            .filter_map(|(_, read)| read.range.as_ref())
            .map(|range| range.length)
            .sum();
        i64::try_from(self.bytes_min.saturating_sub(found)).unwrap_or(i64::MAX)
    }

    fn read_one(
        &mut self,
        image: &Image,
        slot: Slot,
        remaining: usize,
        min_one: bool,
        waiter: Option<&Arc<Waiter>>,
        first: bool,
    ) -> ReadResult<E> {
        let made_after = self.session.made_after();
        let Some(cached) = self.session.get_mut(slot) else {
            return ReadResult::refused(ErrorKind::UnknownServerError);
        };
        if cached.handle.as_ref().is_none_or(|held| held.is_gone()) {
            cached.handle = None;
            match find(&self.broker, &self.context, image, &cached.key) {
                Ok(partition) => cached.handle = Some(partition),
                Err(error) => return ReadResult::refused(error),
            }
        }
        let Some(partition) = &cached.handle else {
            return ReadResult::refused(ErrorKind::UnknownServerError);
        };
        let wanted = usize::try_from(cached.position.max_bytes).unwrap_or(0);
        let nearby = self.rack.as_deref().map(|rack| Nearby {
            image,
            rack,
            listener: &self.context.listener,
        });
        partition.read(
            self.broker.env.now(),
            &ReadRequest {
                position: cached.position,
                fetcher: self.fetcher,
                nearby,
                bytes_max: wanted.min(remaining),
                min_one,
                note_follower: first,
                made_after,
            },
            waiter,
        )
    }

    /// Waits for enough or for the deadline, then answers.
    async fn wait(mut self, mut waiter: Arc<Waiter>) -> Handled<E> {
        let env = self.broker.env.clone();
        loop {
            waiter.wait(&env, self.deadline).await;
            let superseded = waiter.is_superseded();
            if self.look(None, false)
                || superseded
                || env.now() >= self.deadline
                || self.broker.is_stopping()
            {
                return self.finish();
            }
            env.sleep_until((env.now() + RECHECK_PAUSE).min(self.deadline))
                .await;
            let missing = self.missing();
            waiter = Waiter::new(missing);
            if self.look(Some(&waiter), false) {
                return self.finish();
            }
            waiter.credit(missing - self.missing());
        }
    }

    /// Builds the answer out of what the last look found.
    fn finish(mut self) -> Handled<E> {
        let reads = std::mem::take(&mut self.reads);
        let mut answer = FetchAnswer::new(&self.context);
        for (slot, read) in reads {
            let included = self.session.include(slot, &answer_of(&read));
            let Some(cached) = self.session.get(slot) else {
                continue;
            };
            if let (Some(partition), Some(range)) = (&cached.handle, &read.range) {
                let now = self.broker.env.now();
                partition.count_read(now, self.fetcher, range.length, read.throttled);
            }
            if included {
                answer.add(&cached.key, read);
            }
        }
        let image = self.broker.cluster.image();
        answer.add_leader_hints(&image, self.broker.id);
        let session_id = self.broker.replication.sessions().handle_answered(
            self.broker.env.now(),
            || self.broker.env.random(),
            self.session,
        );
        answer.encode(session_id)
    }
}

/// The replica that a key means.
fn find<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    image: &Image,
    key: &PartitionKey,
) -> Result<Arc<Partition<E>>, ErrorKind> {
    let topic = match &key.topic {
        TopicKey::Id(id) => image.topic(*id).ok_or(ErrorKind::UnknownTopicId)?,
        TopicKey::Name(name) => image
            .topic_by_name(name)
            .ok_or(ErrorKind::UnknownTopicOrPartition)?,
    };
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), &topic.name)
    {
        return Err(ErrorKind::TopicAuthorizationFailed);
    }
    let id = TopicPartition::new(topic.id, key.partition);
    broker
        .partition(id)
        .ok_or_else(|| match image.partition(id) {
            Some(_) => ErrorKind::NotLeaderOrFollower,
            None => ErrorKind::UnknownTopicOrPartition,
        })
}

fn answer_of<E: Env>(read: &ReadResult<E>) -> Answer {
    Answer {
        has_records: read.range.is_some(),
        high_watermark: read.high_watermark,
        log_start_offset: read.log_start_offset,
        has_preferred_read_replica: read.preferred_read_replica.is_some(),
        is_error_or_diverging: read.error.is_some() || read.diverging.is_some(),
    }
}

/// The whole answer is an error of the session or of the fetcher.
fn refuse<E: Env>(context: &RequestContext, error: ErrorKind) -> Handled<E> {
    let response = FetchResponse {
        error_code: code_of(error).code(),
        ..FetchResponse::default()
    };
    dispatch::encode(context, &response)
}
