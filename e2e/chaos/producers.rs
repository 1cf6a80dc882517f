//! Producers that record every send with what became of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use taffrail_e2e::history::event::{Event, Kind};
use taffrail_e2e::history::recorder::Recorder;

use crate::progress::Progress;
use crate::record::{key, payload, value};

/// For the last acknowledgements after the producers were told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);
/// An idempotent producer waits for longer than any outage: librdkafka gives up the order of a partition, and sends what is under way as
/// new records, once one of them has timed out.
const IDEMPOTENT_LIMIT: Duration = Duration::from_secs(600);
/// A producer without idempotence tries once, and soon does not know.
const SINGLE_LIMIT: Duration = Duration::from_secs(10);
/// How many records wait for their acknowledgement at most: at the usual rate, some seconds of outage.
const OUTSTANDING_MAX: usize = 2000;

/// What a producer does.
#[derive(Clone, Debug)]
pub(crate) struct ProducerSpec {
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    /// What the topic is called in the history.
    pub(crate) name: String,
    pub(crate) partitions: i32,
    /// Records per second over all partitions.
    pub(crate) rate: u64,
    pub(crate) idempotent: bool,
}

/// Sends until told to stop, as one process after another: a fatal error ends a process.
pub(crate) fn produce(
    spec: &ProducerSpec,
    recorder: &Arc<Recorder>,
    progress: &Arc<Progress>,
) -> Result<()> {
    while !progress.stopped() {
        one_life(spec, u64::MAX, recorder, progress)?;
    }
    Ok(())
}

/// Sends `count` records and waits for them.
pub(crate) fn produce_some(
    spec: &ProducerSpec,
    count: u64,
    recorder: &Arc<Recorder>,
    progress: &Arc<Progress>,
) -> Result<()> {
    one_life(spec, count, recorder, progress)
}

type Threaded = ThreadedProducer<Account>;

fn one_life(
    spec: &ProducerSpec,
    count: u64,
    recorder: &Arc<Recorder>,
    progress: &Arc<Progress>,
) -> Result<()> {
    let process = recorder.process();
    recorder.record(&Event::Producer {
        process,
        idempotent: spec.idempotent,
    });
    let open = Arc::new(Mutex::new(BTreeSet::new()));
    let account = Account {
        process,
        name: spec.name.clone(),
        recorder: Arc::clone(recorder),
        progress: Arc::clone(progress),
        open: Arc::clone(&open),
    };
    let limit = if spec.idempotent {
        IDEMPOTENT_LIMIT
    } else {
        SINGLE_LIMIT
    };
    let producer: Threaded = ClientConfig::new()
        .set("bootstrap.servers", &spec.bootstrap)
        .set("enable.idempotence", spec.idempotent.to_string())
        .set("acks", "all")
        .set("retries", if spec.idempotent { "2147483647" } else { "0" })
        .set("linger.ms", "5")
        .set("message.timeout.ms", limit.as_millis().to_string())
        .set("request.timeout.ms", "10000")
        .set("reconnect.backoff.max.ms", "500")
        .set("topic.metadata.refresh.interval.ms", "10000")
        .set("socket.timeout.ms", "10000")
        .set("log_level", "0")
        .create_with_context(account)?;
    send(spec, process, count, &producer, progress, &open)?;
    match producer.client().fatal_error() {
        None => {
            // What is not answered in time is of unknown fate.
            if let Err(error) = producer.flush(DRAIN_LIMIT) {
                eprintln!("process {process} did not hear of all that it sent: {error}");
            }
        }
        Some((code, reason)) => {
            recorder.note(format!("process {process} gave up: {code}, {reason}"));
            eprintln!("process {process} gave up: {code}, {reason}");
        }
    }
    drop(producer);
    for (partition, value) in open.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        recorder.record(&Event::Send {
            kind: Kind::Info,
            process,
            key: key(&spec.name, *partition),
            value: *value,
            offset: None,
        });
    }
    Ok(())
}

fn send(
    spec: &ProducerSpec,
    process: u32,
    count: u64,
    producer: &Threaded,
    progress: &Progress,
    open: &Mutex<BTreeSet<(i32, u64)>>,
) -> Result<()> {
    let (start, partitions) = (Instant::now(), u64::try_from(spec.partitions)?);
    let (mut number, mut missed) = (0u64, 0u64);
    while number < count && !progress.stopped() && producer.client().fatal_error().is_none() {
        let elapsed = u64::try_from(start.elapsed().as_millis())?;
        let due = elapsed.saturating_mul(spec.rate) / 1000;
        while number + missed < due && number < count && !progress.stopped() {
            let open_now = || open.lock().unwrap_or_else(PoisonError::into_inner);
            if open_now().len() >= OUTSTANDING_MAX {
                // What was not sent in time is left out, not caught up with.
                missed = due - number;
                break;
            }
            let partition = i32::try_from(number % partitions)?;
            let value = value(process, number);
            number += 1;
            open_now().insert((partition, value));
            let text = payload(&key(&spec.name, partition), value);
            let record = BaseRecord::<(), str, Box<(i32, u64)>>::with_opaque_to(
                &spec.topic,
                Box::new((partition, value)),
            )
            .partition(partition)
            .payload(text.as_str());
            match producer.send(record) {
                Ok(()) => {}
                // It was not taken, so there is nothing to account for.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    open_now().remove(&(partition, value));
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::Fatal), _)) => {
                    open_now().remove(&(partition, value));
                    return Ok(());
                }
                Err((error, _)) => return Err(error).context("the producer refused a record"),
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Enters each delivery report into the history.
struct Account {
    process: u32,
    name: String,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    /// What is under way.
    open: Arc<Mutex<BTreeSet<(i32, u64)>>>,
}

impl ClientContext for Account {}

impl ProducerContext for Account {
    type DeliveryOpaque = Box<(i32, u64)>;

    fn delivery(&self, result: &DeliveryResult<'_>, identity: Self::DeliveryOpaque) {
        let (partition, value) = *identity;
        let (kind, offset) = match result {
            // librdkafka acknowledges without an offset what was in the log already when a later record was acknowledged.
            Ok(message) => (Kind::Ok, Some(message.offset()).filter(|o| *o >= 0)),
            Err((KafkaError::MessageProduction(code), _)) if refused_for_good(*code) => {
                (Kind::Fail, None)
            }
            // What was tried more than once may have been written by an earlier try, and a leader that no longer leads may have written
            // it before it stepped down.
            Err(_) => (Kind::Info, None),
        };
        self.recorder.record(&Event::Send {
            kind,
            process: self.process,
            key: key(&self.name, partition),
            value,
            offset,
        });
        if kind == Kind::Ok {
            self.progress.acknowledge(partition);
        }
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(partition, value));
    }
}

/// Errors that are told before anything is written, whatever was tried before.
fn refused_for_good(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::InvalidTopic
            | RDKafkaErrorCode::TopicAuthorizationFailed
    )
}
