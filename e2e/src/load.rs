//! A steady idempotent acks=all load whose every record is accounted for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use crate::logcheck::{Outcome, Read, Sent};
use crate::read;

/// How long a record may wait for its acknowledgement before its fate counts as unknown: longer than any outage of a test, since
/// librdkafka sends what is under way again, as new records, once one of them has timed out.
const MESSAGE_LIMIT: Duration = Duration::from_secs(300);
/// Filler, so that a record is as large as a small event.
const FILLER: &str = "......................................................................";

/// What to send.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The topic; it must exist.
    pub topic: String,
    /// Its number of partitions; the load goes round them.
    pub partitions: i32,
    /// Records per second over all partitions.
    pub rate: u64,
}

/// A load that runs in its own thread until it is stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    book: Arc<Book>,
    thread: JoinHandle<Result<()>>,
}

/// What a load did.
pub struct Outcomes {
    /// Every record sent, with its outcome.
    pub sent: Vec<Sent>,
    /// When each acknowledgement came, per partition.
    pub acknowledged_at: BTreeMap<i32, Vec<Instant>>,
    /// The first error that a record met, if any.
    pub first_error: Option<String>,
}

impl Outcomes {
    /// The longest time between these two moments that some partition went without an acknowledgement, up to the last one of all.
    pub fn longest_silence_between(&self, from: Instant, to: Instant) -> Duration {
        let last = self
            .acknowledged_at
            .values()
            .flatten()
            .max()
            .copied()
            .unwrap_or(from)
            .min(to);
        let silence_of = |times: &Vec<Instant>| {
            let inside = times.iter().copied().filter(|t| *t > from && *t < last);
            let mut moments: Vec<Instant> = inside.chain([from, last]).collect();
            moments.sort();
            moments
                .windows(2)
                .map(|pair| pair[1].duration_since(pair[0]))
                .max()
                .unwrap_or_default()
        };
        self.acknowledged_at
            .values()
            .map(silence_of)
            .max()
            .unwrap_or_default()
    }
}

impl Load {
    /// Starts sending; no outage of the test is longer than a record may wait.
    pub fn start(bootstrap: &str, spec: LoadSpec) -> Result<Self> {
        Self::start_with_limit(bootstrap, spec, MESSAGE_LIMIT)
    }

    /// Starts sending records that may each wait up to `limit` for their acknowledgement.
    pub fn start_with_limit(bootstrap: &str, spec: LoadSpec, limit: Duration) -> Result<Self> {
        let book = Arc::new(Book::default());
        let producer: ThreadedProducer<BookKeeper> = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "5")
            .set("message.timeout.ms", limit.as_millis().to_string())
            .set("reconnect.backoff.max.ms", "500")
            .set("log_level", "0")
            .create_with_context(BookKeeper(Arc::clone(&book)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (stop, book) = (Arc::clone(&stop), Arc::clone(&book));
            thread::spawn(move || send(&producer, &spec, limit, &stop, &book))
        };
        Ok(Self { stop, book, thread })
    }

    /// How many records have been acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.book.acknowledged.load(Ordering::Relaxed)
    }

    /// Stops sending, waits for every outstanding record, and gives the account.
    pub fn stop(self) -> Result<Outcomes> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("the load's thread panicked"))??;
        let mut pages = self
            .book
            .pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let pages = std::mem::take(&mut *pages);
        Ok(Outcomes {
            sent: pages.sent,
            acknowledged_at: pages.acknowledged_at,
            first_error: pages.first_error,
        })
    }
}

/// The value of one record: which it is, and a checksum of that.
fn value(partition: i32, sequence: u64) -> String {
    let text = format!("{partition} {sequence} {FILLER}");
    format!("{text} {:08x}", checksum(text.as_bytes()))
}

/// Reads a topic of such records from its start to its end.
pub fn read_back(bootstrap: &str, topic: &str) -> Result<Vec<Read>> {
    let mut reads = Vec::new();
    read::read_all(bootstrap, topic, |record| {
        let sequence = parse(record.value, record.partition);
        reads.push(Read {
            partition: record.partition,
            offset: record.offset,
            sequence,
        });
    })?;
    Ok(reads)
}

/// The sequence in a value, if it is whole and belongs to this partition.
fn parse(value: &[u8], partition: i32) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let (body, sum) = text.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != checksum(body.as_bytes()) {
        return None;
    }
    let mut words = body.split(' ');
    if words.next()?.parse() != Ok(partition) {
        return None;
    }
    words.next()?.parse().ok()
}

fn checksum(bytes: &[u8]) -> u32 {
    // A CRC of 32 bits, handed out as 64.
    u32::try_from(crc_fast::checksum(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        bytes,
    ))
    .unwrap_or_default()
}

fn send(
    producer: &ThreadedProducer<BookKeeper>,
    spec: &LoadSpec,
    limit: Duration,
    stop: &AtomicBool,
    book: &Book,
) -> Result<()> {
    let start = Instant::now();
    let mut count = 0u64;
    let partitions =
        u64::try_from(spec.partitions).context("a topic has at least one partition")?;
    while !stop.load(Ordering::Relaxed) {
        // As many as are due by now, then a short sleep: no drift, no timer per record.
        let due = u64::try_from(start.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_mul(spec.rate)
            / 1000;
        while count < due && !stop.load(Ordering::Relaxed) {
            let (partition, sequence) = (i32::try_from(count % partitions)?, count / partitions);
            let value = value(partition, sequence);
            let record = BaseRecord::<(), str, Box<(i32, u64)>>::with_opaque_to(
                &spec.topic,
                Box::new((partition, sequence)),
            )
            .partition(partition)
            .payload(value.as_str());
            match producer.send(record) {
                Ok(()) => count += 1,
                // The queue is full while a broker is away: the record was not taken, so it is sent again with the same number.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    thread::sleep(Duration::from_millis(20))
                }
                Err((error, _)) => return Err(error).context("the producer refused a record"),
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    producer.flush(limit + Duration::from_secs(5))?;
    let accounted = book
        .pages
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .sent
        .len();
    anyhow::ensure!(
        u64::try_from(accounted)? == count,
        "{count} records sent, {accounted} accounted for"
    );
    Ok(())
}

/// What is known of each record.
#[derive(Default)]
struct Book {
    acknowledged: AtomicU64,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    sent: Vec<Sent>,
    acknowledged_at: BTreeMap<i32, Vec<Instant>>,
    first_error: Option<String>,
}

/// Enters each delivery report into the book.
struct BookKeeper(Arc<Book>);

impl ClientContext for BookKeeper {}

impl ProducerContext for BookKeeper {
    type DeliveryOpaque = Box<(i32, u64)>;

    fn delivery(&self, result: &DeliveryResult<'_>, identity: Self::DeliveryOpaque) {
        let (partition, sequence) = *identity;
        let mut pages = self.0.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match result {
            Ok(message) => {
                self.0.acknowledged.fetch_add(1, Ordering::Relaxed);
                pages
                    .acknowledged_at
                    .entry(partition)
                    .or_default()
                    .push(Instant::now());
                Outcome::Acknowledged(message.offset())
            }
            Err((error, _)) => {
                pages.first_error.get_or_insert_with(|| error.to_string());
                // librdkafka retries what is retriable until the time limit, so what ends here may have been written by an earlier try.
                Outcome::Unknown
            }
        };
        pages.sent.push(Sent {
            partition,
            sequence,
            outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_record_and_shows_damage() {
        let whole = value(3, 41);
        assert_eq!(parse(whole.as_bytes(), 3), Some(41));
        assert_eq!(parse(whole.as_bytes(), 2), None, "another partition");
        assert_eq!(
            parse(whole.replace("41", "42").as_bytes(), 3),
            None,
            "one digit changed"
        );
        assert_eq!(parse(b"\xff", 3), None, "not text");
    }
}
