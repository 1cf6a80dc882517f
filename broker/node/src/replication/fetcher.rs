//! Following: one task per leading broker pulls all partitions that this broker follows there, over one connection and
//! one fetch session. A request names only the partitions whose position changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use taffrail_core::ids::{BrokerId, LeaderEpoch, TopicId, TopicPartition};
use taffrail_core::replica::FetchPosition;
use taffrail_core::time::Instant;
use taffrail_protocol::messages::fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState,
};
use taffrail_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use taffrail_protocol::{Request, Uuid};
use tokio::sync::Notify;

use super::fetch_answer::{self, Answered};
use super::fetch_session::Session;
use super::flush_queue;
use super::throttle::Throttle;
use crate::broker::Broker;
use crate::cluster::{PeerConnection, PeerError};
use crate::env::Env;
use crate::partition::{FollowerStep, Partition};

/// Pause after a connection failed, growing to the second.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// What a leader may take beyond the long poll before the connection counts as dead.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// A throttled partition that has had its share asks again after this.
const THROTTLE_PAUSE: Duration = Duration::from_millis(200);
/// However soon a partition is to be asked for again: what waits must not make the fetcher run in circles.
const REST_MIN: Duration = Duration::from_millis(10);
/// ListOffsets timestamp of the earliest offset.
const EARLIEST: i64 = -2;

/// All fetchers of a broker.
#[derive(Default)]
pub(super) struct Fetchers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    followed: BTreeMap<TopicPartition, BrokerId>,
    fetchers: BTreeMap<BrokerId, Arc<Assignments>>,
}

/// What one fetcher is told from outside.
#[derive(Default)]
struct Assignments {
    changed: Mutex<BTreeSet<TopicPartition>>,
    wake: Notify,
}

impl Assignments {
    fn push(&self, partition: TopicPartition) {
        self.changed
            .lock()
            .expect("no panic while locked")
            .insert(partition);
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeSet<TopicPartition> {
        self.take_those(|_| true)
    }

    fn take_those(&self, wanted: impl Fn(&TopicPartition) -> bool) -> BTreeSet<TopicPartition> {
        let mut changed = self.changed.lock().expect("no panic while locked");
        changed.extract_if(.., wanted).collect()
    }
}

impl Fetchers {
    /// Has the fetcher of `leader` look at the partition; the one that had it before learns that it is gone.
    pub(super) fn follow<E: Env>(
        &self,
        broker: &Arc<Broker<E>>,
        leader: BrokerId,
        partition: TopicPartition,
    ) {
        let mut state = self.lock();
        if let Some(before) = state.followed.insert(partition, leader)
            && before != leader
            && let Some(fetcher) = state.fetchers.get(&before)
        {
            fetcher.push(partition);
        }
        let fetcher = state.fetchers.entry(leader).or_insert_with(|| {
            let assignments = Arc::new(Assignments::default());
            broker
                .env
                .spawn(run(Arc::clone(broker), leader, Arc::clone(&assignments)));
            assignments
        });
        fetcher.push(partition);
    }

    /// Unless its leader is this one, the partition is followed no more, and the fetcher that had it learns that it is gone.
    pub(super) fn unfollow_unless(&self, leader: Option<BrokerId>, partition: TopicPartition) {
        let mut state = self.lock();
        let followed = state.followed.get(&partition).copied();
        if let Some(before) = followed
            && followed != leader
        {
            state.followed.remove(&partition);
            if let Some(fetcher) = state.fetchers.get(&before) {
                fetcher.push(partition);
            }
        }
    }

    /// Wakes every fetcher, so that it sees that the broker stops.
    pub(super) fn stop(&self) {
        for fetcher in self.lock().fetchers.values() {
            fetcher.wake.notify_one();
        }
    }

    fn follows(&self, partition: TopicPartition, leader: BrokerId) -> bool {
        self.lock().followed.get(&partition) == Some(&leader)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }
}

/// The task of one fetcher: it lives as long as the broker, and sleeps while it has nothing to follow.
async fn run<E: Env>(broker: Arc<Broker<E>>, leader: BrokerId, assignments: Arc<Assignments>) {
    let mut fetcher = Fetcher {
        broker,
        leader,
        assignments,
        connection: None,
        session: Session::default(),
        due: BTreeSet::new(),
        paused: BTreeMap::new(),
        reconnect_pause: RECONNECT_PAUSE,
    };
    while !fetcher.broker.is_stopping() {
        fetcher.turn().await;
    }
}

struct Fetcher<E: Env> {
    broker: Arc<Broker<E>>,
    leader: BrokerId,
    assignments: Arc<Assignments>,
    connection: Option<PeerConnection<E>>,
    session: Session,
    /// Partitions whose position has to be told with the next request.
    due: BTreeSet<TopicPartition>,
    /// Partitions that wait, and until when.
    paused: BTreeMap<TopicPartition, Instant>,
    reconnect_pause: Duration,
}

/// What came of a request.
enum Outcome {
    /// The next one goes by the same connection and session.
    Continue,
    /// The connection is good, but the leader keeps no session.
    NoSession,
    /// The connection is of no further use.
    Broken,
}

impl<E: Env> Fetcher<E> {
    /// One request and its answer; or a wait for something to do.
    async fn turn(&mut self) {
        self.take_assignments();
        self.take_rested();
        if self.due.is_empty() && self.session.is_empty() {
            self.wanted().await;
            return;
        }
        let fetchers = &self.broker.replication.fetchers;
        let session = &self.session;
        self.due
            .retain(|id| session.has(*id) || fetchers.follows(*id, self.leader));
        if self.due.is_empty() && self.session.is_empty() {
            return;
        }
        if self.connection.is_none() && !self.connect().await {
            return;
        }
        self.flush_due().await;
        let request = self.next_request();
        self.session.note_first_answered();
        if request.session_id == 0 && request.topics.is_empty() {
            // Everything that was due has gone or waits.
            return;
        }
        self.exchange(request).await;
    }

    fn take_assignments(&mut self) {
        for id in self.assignments.take() {
            self.paused.remove(&id);
            self.due.insert(id);
        }
    }

    /// Partitions that have waited long enough.
    fn take_rested(&mut self) {
        let now = self.broker.env.now();
        let rested = self.paused.extract_if(.., |_, until| *until <= now);
        self.due.extend(rested.map(|(id, _)| id));
    }

    /// Waits until there is something to ask for besides what was asked for.
    async fn wanted(&self) {
        let env = &self.broker.env;
        match self.paused.values().min().copied() {
            Some(until) => tokio::select! {
                biased;
                () = self.assignments.wake.notified() => {}
                () = env.sleep_until(until) => {}
            },
            None => self.assignments.wake.notified().await,
        }
    }

    async fn connect(&mut self) -> bool {
        match self.broker.cluster.open_peer(self.leader).await {
            Ok(connection) => {
                tracing::debug!(leader = self.leader.0, "fetching");
                self.connection = Some(connection);
                self.reset_session();
                self.reconnect_pause = RECONNECT_PAUSE;
                true
            }
            Err(error) => {
                tracing::debug!(leader = self.leader.0, %error, "cannot fetch");
                self.pause_after_failure().await;
                false
            }
        }
    }

    async fn pause_after_failure(&mut self) {
        let until = self.broker.env.now() + self.reconnect_pause;
        self.reconnect_pause = (self.reconnect_pause * 2).min(RECONNECT_PAUSE_MAX);
        self.broker.env.sleep_until(until).await;
    }

    /// The leader's session is unknown: the next request tells everything anew.
    fn reset_session(&mut self) {
        let lost = std::mem::take(&mut self.session);
        self.due.extend(lost.partitions());
    }

    /// What was appended since the last request and may only be told once it is durable: one round of fsyncs for all.
    async fn flush_due(&self) {
        let mut flushes = Vec::new();
        for id in &self.due {
            let Some(partition) = self.broker.partition(*id) else {
                continue;
            };
            if partition.owes_flush()
                && let Some(flush) = partition.begin_flush()
            {
                flushes.push((partition, flush));
            }
        }
        flush_queue::run_all(&self.broker.env, flushes).await;
    }

    fn next_request(&mut self) -> FetchRequest {
        let now = self.broker.env.now();
        // Whatever was flushed and connected to meanwhile: a partition that has gone elsewhere by now is not asked for any more.
        // The leader takes a fetch for proof that none of its session has. New ones are flushed first, and come with the next.
        let session = &self.session;
        self.due
            .extend(self.assignments.take_those(|id| session.has(*id)));
        let mut forgotten = Vec::new();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for id in std::mem::take(&mut self.due) {
            let position = match self.position(id, now) {
                Ok(position) => position,
                Err(step) => {
                    if self.session.forget(id) {
                        forgotten.push(id);
                    }
                    if let FollowerStep::Wait(until) = step {
                        self.paused.insert(id, until.max(now + REST_MIN));
                    }
                    continue;
                }
            };
            if !self.session.tell(id, position) {
                continue;
            }
            push_partition(
                &mut topics,
                id,
                &position,
                self.broker.config.replica_fetch_max_bytes,
            );
        }
        let config = &self.broker.config;
        FetchRequest {
            replica_state: ReplicaState {
                replica_id: self.broker.id.0,
                replica_epoch: self
                    .broker
                    .cluster
                    .broker_epoch()
                    .map_or(-1, |epoch| epoch.0),
            },
            max_wait_ms: config.replica_fetch_wait_max_ms,
            min_bytes: config.replica_fetch_min_bytes,
            max_bytes: config.replica_fetch_response_max_bytes,
            session_id: self.session.id,
            session_epoch: self.session.epoch,
            topics,
            forgotten_topics_data: forget(&forgotten),
            ..FetchRequest::default()
        }
    }

    fn position(&self, id: TopicPartition, now: Instant) -> Result<FetchPosition, FollowerStep> {
        if !self.broker.replication.fetchers.follows(id, self.leader) {
            return Err(FollowerStep::Leave);
        }
        let partition = self.broker.partition(id).ok_or(FollowerStep::Leave)?;
        if partition.leader_followed() != Some(self.leader) {
            return Err(FollowerStep::Leave);
        }
        if self.is_throttled(&partition) && self.throttle().is_exceeded(now) {
            return Err(FollowerStep::Wait(now + THROTTLE_PAUSE));
        }
        partition.fetch_position(now)
    }

    /// Whether what is fetched for a replica counts: its topic says so, and it is out of sync.
    fn is_throttled(&self, partition: &Partition<E>) -> bool {
        partition.is_throttled_follower()
            && !(self.broker.cluster.image())
                .partition(partition.id)
                .is_some_and(|state| state.isr.contains(&self.broker.id))
    }

    fn throttle(&self) -> &Throttle {
        &self.broker.replication.throttles.follower
    }

    async fn exchange(&mut self, request: FetchRequest) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match self.exchange_over(&connection, request).await {
            Outcome::Continue => {
                self.session.next_epoch();
                self.connection = Some(connection);
            }
            Outcome::NoSession => {
                // Without a session every answer comes at once, so it is not asked for at once.
                self.reset_session();
                self.connection = Some(connection);
                self.pause_after_failure().await;
            }
            Outcome::Broken => {
                self.reset_session();
                self.pause_after_failure().await;
            }
        }
    }

    /// Sends the request and takes its answer. If partitions are assigned meanwhile, or have waited long enough, another
    /// request follows at once: the leader then ends the long poll of the one before.
    async fn exchange_over(
        &mut self,
        connection: &PeerConnection<E>,
        request: FetchRequest,
    ) -> Outcome {
        let env = self.broker.env.clone();
        let ask = |request: FetchRequest| {
            let long_poll = u64::try_from(request.max_wait_ms).unwrap_or(0);
            let deadline = env.now() + Duration::from_millis(long_poll) + ANSWER_GRACE;
            async move {
                let version = FetchRequest::MAX_VERSION;
                connection.call_raw(&request, version, deadline).await
            }
        };
        let mut under_way = Box::pin(ask(request));
        loop {
            let answered = tokio::select! {
                biased;
                frame = under_way.as_mut() => Some(frame),
                () = self.wanted(), if self.session.id != 0 => None,
            };
            if let Some(frame) = answered {
                return self.take_answer(Some(connection), frame).await;
            }
            self.take_assignments();
            self.take_rested();
            self.flush_due().await;
            self.session.next_epoch();
            let mut next = Box::pin(ask(self.next_request()));
            // Polling the next puts it on the wire, which is what ends the one before; answers come in order.
            let frame = tokio::select! {
                biased;
                frame = under_way.as_mut() => frame,
                frame = next.as_mut() => frame,
            };
            let outcome = self.take_answer(None, frame).await;
            self.session.note_first_answered();
            match outcome {
                Outcome::Continue => under_way = next,
                // The answer that is still to come is to a session that is no more.
                Outcome::NoSession | Outcome::Broken => return Outcome::Broken,
            }
        }
    }

    /// `free` is the connection, unless another request is under way on it: no answer can be read before that one's.
    async fn take_answer(
        &mut self,
        free: Option<&PeerConnection<E>>,
        frame: Result<Vec<u8>, PeerError>,
    ) -> Outcome {
        let answered = frame.and_then(|frame| fetch_answer::decode(self.leader, frame));
        let answered = match answered {
            Ok(answered) => answered,
            Err(error) => {
                tracing::debug!(leader = self.leader.0, %error, "fetch failed");
                if is_closed(&error) {
                    self.broker.cluster.doubt(self.leader);
                }
                return Outcome::Broken;
            }
        };
        if let Some(error) = answered.session_error {
            tracing::debug!(
                leader = self.leader.0,
                ?error,
                "the leader knows no such session"
            );
            return Outcome::NoSession;
        }
        self.session.id = answered.session_id;
        self.apply(free, &answered).await;
        if self.session.id == 0 {
            return Outcome::NoSession;
        }
        self.reconnect_pause = RECONNECT_PAUSE;
        Outcome::Continue
    }

    async fn apply(&mut self, free: Option<&PeerConnection<E>>, answered: &Answered) {
        for fetched in &answered.partitions {
            let Some(asked) = self.session.asked(fetched.id) else {
                continue;
            };
            let Some(partition) = self.broker.partition(fetched.id) else {
                continue;
            };
            let records = answered.records(fetched);
            if self.is_throttled(&partition) {
                let now = self.broker.env.now();
                self.throttle().record(now, records.len());
            }
            let mut step =
                partition.handle_fetched(&self.broker.env, &asked, &fetched.answer, records);
            if let FollowerStep::AskLogStart(epoch) = step {
                let start = match free {
                    Some(connection) => {
                        self.ask_log_start(connection, fetched.id, &partition.topic, epoch)
                            .await
                    }
                    // The next fetch is answered in the same way.
                    None => None,
                };
                step = match start {
                    Some(offset) => {
                        partition.handle_leader_log_start(&self.broker.env, epoch, offset)
                    }
                    None => partition.handle_fetch_failed(self.broker.env.now()),
                };
            }
            // Whatever the step is: the next round asks the partition for its position, and finds out.
            self.due.insert(fetched.id);
            if fetched.answer.error.is_some() {
                // Asked for again, though the position did not change; or forgotten, if it waits or has gone.
                self.session.note_refused(fetched.id);
            }
        }
    }

    async fn ask_log_start(
        &self,
        connection: &PeerConnection<E>,
        id: TopicPartition,
        topic: &str,
        epoch: LeaderEpoch,
    ) -> Option<i64> {
        let request = ListOffsetsRequest {
            replica_id: self.broker.id.0,
            topics: vec![ListOffsetsTopic {
                name: topic.to_owned(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: id.partition,
                    current_leader_epoch: epoch.0,
                    timestamp: EARLIEST,
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let deadline = self.broker.env.now() + ANSWER_GRACE;
        let response = connection
            .call(&request, ListOffsetsRequest::MAX_VERSION, deadline)
            .await
            .ok()?;
        let found = response.topics.first()?.partitions.first()?;
        (found.error_code == 0).then_some(found.offset)
    }
}

/// Whether the leader closed the connection, as a process that dies does; silence is left to heartbeats.
fn is_closed(error: &PeerError) -> bool {
    matches!(error, PeerError::Io { source, .. } if source.kind() != ErrorKind::TimedOut)
}

fn push_partition(
    topics: &mut Vec<FetchTopic>,
    id: TopicPartition,
    position: &FetchPosition,
    bytes_max: i32,
) {
    let partition = FetchPartition {
        partition: id.partition,
        current_leader_epoch: position.leader_epoch.0,
        fetch_offset: position.fetch_offset,
        last_fetched_epoch: position.last_fetched_epoch.map_or(-1, |epoch| epoch.0),
        log_start_offset: position.log_start_offset,
        partition_max_bytes: bytes_max,
        ..FetchPartition::default()
    };
    // The set is ordered by topic, so partitions of one topic come together.
    match topics.last_mut() {
        Some(topic) if topic.topic_id.0 == id.topic_id.0 => topic.partitions.push(partition),
        Some(_) | None => topics.push(FetchTopic {
            topic_id: Uuid(id.topic_id.0),
            partitions: vec![partition],
            ..FetchTopic::default()
        }),
    }
}

fn forget(partitions: &[TopicPartition]) -> Vec<ForgottenTopic> {
    let mut by_topic: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for id in partitions {
        by_topic.entry(id.topic_id).or_default().push(id.partition);
    }
    by_topic
        .into_iter()
        .map(|(topic_id, partitions)| ForgottenTopic {
            topic_id: Uuid(topic_id.0),
            partitions,
            ..ForgottenTopic::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_tells_the_epoch_of_the_last_record_and_the_one_it_expects() {
        let whole = FetchPosition {
            leader_epoch: LeaderEpoch(5),
            fetch_offset: 30,
            last_fetched_epoch: Some(LeaderEpoch(3)),
            log_start_offset: 10,
        };
        let empty = FetchPosition {
            last_fetched_epoch: None,
            ..whole
        };
        let mut topics = Vec::new();
        for (partition, position) in [(0, whole), (1, empty)] {
            let id = TopicPartition::new(TopicId([1; 16]), partition);
            push_partition(&mut topics, id, &position, 1 << 20);
        }
        let told = topics[0].partitions.iter().map(|told| {
            let epochs = (told.current_leader_epoch, told.last_fetched_epoch);
            (
                told.partition,
                epochs,
                told.fetch_offset,
                told.log_start_offset,
            )
        });
        let expected = [(0, (5, 3), 30, 10), (1, (5, -1), 30, 10)];
        assert!(told.eq(expected), "{topics:?}");
    }
}
