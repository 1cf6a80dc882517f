//! Consumers that record every poll: one reads all partitions by `assign` for the whole run, others come and go as members of a group.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, TopicPartitionList};
use taffrail_e2e::history::event::{Event, Kind};
use taffrail_e2e::history::recorder::Recorder;

use crate::dice::Dice;
use crate::progress::Progress;
use crate::record::{key, parse};

/// The group that members join.
pub(crate) const GROUP: &str = "chaos";
/// A poll that is recorded has at most this many records and takes at most this long.
const RECORDS_MAX: usize = 500;
const POLL_TIME: Duration = Duration::from_millis(250);
/// How long a member of the group lives.
const LIFE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(45));
/// How long the last reading may stand still.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// What a consumer reads.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerSpec {
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    /// What the topic is called in the history.
    pub(crate) name: String,
    pub(crate) partitions: i32,
}

impl ConsumerSpec {
    fn config(&self, group: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("check.crcs", "true")
            .set("reconnect.backoff.max.ms", "500")
            .set("topic.metadata.refresh.interval.ms", "10000")
            .set("socket.timeout.ms", "10000")
            .set("fetch.wait.max.ms", "100")
            .set("fetch.error.backoff.ms", "100")
            .set("log_level", "0");
        config
    }

    /// A consumer that reads every partition from its start, as process `process`.
    fn assigned(&self, process: u32, recorder: &Recorder) -> Result<BaseConsumer> {
        let consumer: BaseConsumer = self
            .config("reads-by-assign")
            .set("auto.offset.reset", "error")
            .create()?;
        let mut assignment = TopicPartitionList::new();
        let mut keys = Vec::new();
        for partition in 0..self.partitions {
            assignment.add_partition_offset(&self.topic, partition, Offset::Offset(0))?;
            keys.push(key(&self.name, partition));
        }
        recorder.record(&Event::Assign { process, keys });
        consumer.assign(&assignment)?;
        Ok(consumer)
    }
}

/// Reads everything by `assign` until told to stop.
pub(crate) fn read(spec: &ConsumerSpec, recorder: &Recorder, progress: &Progress) -> Result<()> {
    let process = recorder.process();
    let consumer = spec.assigned(process, recorder)?;
    let mut batch = Batch::new(process, &spec.name);
    while !progress.stopped() {
        match consumer.poll(Duration::from_millis(50)) {
            Some(Ok(message)) => batch.add(&message),
            Some(Err(error)) => judge_error(&error, progress),
            None => {}
        }
        if batch.is_due() {
            batch.record(recorder, &[]);
        }
    }
    batch.record(recorder, &[]);
    Ok(())
}

/// Reads everything once, to the ends that the partitions have now; gives how many records.
pub(crate) fn read_to_end(spec: &ConsumerSpec, recorder: &Recorder) -> Result<u64> {
    let process = recorder.process();
    let consumer = spec.assigned(process, recorder)?;
    let mut open = BTreeMap::new();
    for partition in 0..spec.partitions {
        let end = end_of(&consumer, &spec.topic, partition)?;
        if end > 0 {
            open.insert(partition, end);
        }
    }
    let mut batch = Batch::new(process, &spec.name);
    let (mut count, mut progress) = (0, Instant::now());
    while !open.is_empty() {
        match consumer.poll(Duration::from_millis(100)) {
            Some(message) => {
                let message = message?;
                let partition = message.partition();
                if open
                    .get(&partition)
                    .is_some_and(|end| message.offset() + 1 >= *end)
                {
                    open.remove(&partition);
                }
                batch.add(&message);
                count += 1;
                progress = Instant::now();
            }
            None => anyhow::ensure!(
                progress.elapsed() < IDLE_LIMIT,
                "reading {} stands still; still to come: {open:?}",
                spec.topic
            ),
        }
        if batch.is_due() {
            batch.record(recorder, &[]);
        }
    }
    batch.record(recorder, &[]);
    Ok(count)
}

/// The end of a partition. The library does not ask again if the leader has not heard of a new topic yet, as it does when it
/// produces or consumes.
fn end_of(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<i64> {
    let began = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition, IDLE_LIMIT) {
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::NotLeaderForPartition))
                if began.elapsed() < IDLE_LIMIT =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            watermarks => return Ok(watermarks?.1),
        }
    }
}

/// Is one member of the group after another until told to stop.
pub(crate) fn be_members(
    spec: &ConsumerSpec,
    mut dice: Dice,
    recorder: &Recorder,
    progress: &Progress,
) -> Result<()> {
    while !progress.stopped() {
        let life = dice.between(LIFE.0, LIFE.1);
        be_member(spec, life, recorder, progress)?;
    }
    Ok(())
}

fn be_member(
    spec: &ConsumerSpec,
    life: Duration,
    recorder: &Recorder,
    progress: &Progress,
) -> Result<()> {
    let process = recorder.process();
    let assigned = Arc::new(Mutex::new(None));
    let consumer: BaseConsumer<Membership> = spec
        .config(GROUP)
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "1000")
        .create_with_context(Membership(Arc::clone(&assigned)))?;
    consumer.subscribe(&[&spec.topic])?;
    let (birth, mut batch, mut anew) =
        (Instant::now(), Batch::new(process, &spec.name), Vec::new());
    while !progress.stopped() && birth.elapsed() < life {
        let polled = consumer.poll(Duration::from_millis(50));
        let rebalanced = assigned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(partitions) = rebalanced {
            // What was read before belongs to the assignment before. It is not committed: who reads the partition now may be further.
            let partitions: Vec<i32> = partitions;
            batch.record(recorder, &anew);
            anew = partitions.into_iter().map(|p| key(&spec.name, p)).collect();
        }
        match polled {
            Some(Ok(message)) => batch.add(&message),
            Some(Err(error)) => judge_error(&error, progress),
            None => {}
        }
        if batch.is_due() {
            let ends = batch.record(recorder, &anew);
            if !ends.is_empty() {
                anew.clear();
                commit(&consumer, spec, process, &ends, recorder)?;
            }
        }
    }
    batch.record(recorder, &anew);
    Ok(())
}

/// Commits and records what became of it.
fn commit(
    consumer: &BaseConsumer<Membership>,
    spec: &ConsumerSpec,
    process: u32,
    ends: &BTreeMap<i32, i64>,
    recorder: &Recorder,
) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for (&partition, &end) in ends {
        list.add_partition_offset(&spec.topic, partition, Offset::Offset(end))?;
    }
    let tell = |kind| {
        for (&partition, &offset) in ends {
            recorder.record(&Event::Commit {
                kind,
                process,
                group: GROUP.to_owned(),
                key: key(&spec.name, partition),
                offset,
            });
        }
    };
    tell(Kind::Invoke);
    let kind = match consumer.commit(&list, CommitMode::Sync) {
        Ok(()) => Kind::Ok,
        Err(_) => Kind::Info,
    };
    tell(kind);
    Ok(())
}

/// Asks once what the group has committed, and records it.
pub(crate) fn ask_committed(
    consumer: &BaseConsumer,
    spec: &ConsumerSpec,
    process: u32,
    recorder: &Recorder,
) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for partition in 0..spec.partitions {
        list.add_partition(&spec.topic, partition);
    }
    let tell = |kind, partition, offset| {
        recorder.record(&Event::Committed {
            kind,
            process,
            group: GROUP.to_owned(),
            key: key(&spec.name, partition),
            offset,
        });
    };
    for partition in 0..spec.partitions {
        tell(Kind::Invoke, partition, None);
    }
    match consumer.committed_offsets(list, Duration::from_secs(3)) {
        Ok(answer) => {
            for element in answer.elements() {
                let (kind, offset) = match (element.error(), element.offset()) {
                    (Ok(()), Offset::Offset(offset)) => (Kind::Ok, Some(offset)),
                    (Ok(()), Offset::Invalid) => (Kind::Ok, None),
                    (Ok(()) | Err(_), _) => (Kind::Fail, None),
                };
                tell(kind, element.partition(), offset);
            }
        }
        Err(_) => {
            for partition in 0..spec.partitions {
                tell(Kind::Fail, partition, None);
            }
        }
    }
    Ok(())
}

/// A consumer that belongs to the group without joining it.
pub(crate) fn onlooker(spec: &ConsumerSpec) -> Result<BaseConsumer> {
    Ok(spec.config(GROUP).create()?)
}

/// Errors of a consumer that say that what it had read is no longer there; all others are told while brokers are away.
fn judge_error(error: &KafkaError, progress: &Progress) {
    let code = error.rdkafka_error_code();
    if matches!(
        code,
        Some(
            RDKafkaErrorCode::AutoOffsetReset
                | RDKafkaErrorCode::LogTruncation
                | RDKafkaErrorCode::OffsetOutOfRange
                | RDKafkaErrorCode::Fatal
                | RDKafkaErrorCode::BadMessage
        )
    ) {
        progress.fail(format!("a reader was told: {error}"));
    }
}

/// Tells its member which partitions were assigned.
struct Membership(Arc<Mutex<Option<Vec<i32>>>>);

impl ClientContext for Membership {}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut assigned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *assigned = match rebalance {
            Rebalance::Assign(list) => {
                Some(list.elements().iter().map(|e| e.partition()).collect())
            }
            Rebalance::Revoke(_) | Rebalance::Error(_) => Some(Vec::new()),
        };
    }
}

/// Records that were read and not yet recorded.
struct Batch {
    process: u32,
    name: String,
    since: Instant,
    count: usize,
    reads: BTreeMap<i32, Vec<(i64, Option<u64>)>>,
}

impl Batch {
    fn new(process: u32, name: &str) -> Self {
        Self {
            process,
            name: name.to_owned(),
            since: Instant::now(),
            count: 0,
            reads: BTreeMap::new(),
        }
    }

    fn add(&mut self, message: &BorrowedMessage<'_>) {
        let partition = message.partition();
        let value = parse(
            message.payload().unwrap_or_default(),
            &key(&self.name, partition),
        );
        self.reads
            .entry(partition)
            .or_default()
            .push((message.offset(), value));
        self.count += 1;
    }

    fn is_due(&self) -> bool {
        self.count >= RECORDS_MAX || self.since.elapsed() >= POLL_TIME
    }

    /// Records the poll, unless nothing was read; gives where each partition goes on.
    fn record(&mut self, recorder: &Recorder, rebalanced: &[String]) -> BTreeMap<i32, i64> {
        self.since = Instant::now();
        self.count = 0;
        let reads = std::mem::take(&mut self.reads);
        let last = |reads: &Vec<(i64, Option<u64>)>| reads.last().map(|(offset, _)| offset + 1);
        let ends = reads
            .iter()
            .filter_map(|(&partition, reads)| Some((partition, last(reads)?)))
            .collect();
        if !reads.is_empty() {
            recorder.record(&Event::Poll {
                kind: Kind::Ok,
                process: self.process,
                polls: reads
                    .into_iter()
                    .map(|(partition, reads)| (key(&self.name, partition), reads))
                    .collect(),
                rebalanced: rebalanced.to_vec(),
            });
        }
        ends
    }
}
