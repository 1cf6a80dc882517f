//! A steady stream of single records with the time of sending inside: how long until each is acknowledged, and until it is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::Offset;
use serde_json::{Value, json};

use crate::Target;

/// The first records meet cold connections: they are sent but not counted.
const SETTLE: Duration = Duration::from_secs(2);

/// For the last acknowledgements and the last records to arrive.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// The `latency` command.
#[derive(clap::Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    target: Target,
    /// How many partitions the topic has; records go round them.
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// Records per second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// How long, without the two seconds that are not counted.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Bytes of each record's value, at least 8.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Acknowledgements: 1 or all.
    #[arg(long, default_value = "1")]
    acks: String,
}

impl Latency {
    /// Prints count and percentiles in microseconds, of acknowledgement and of end to end.
    pub(crate) fn run(&self) -> Result<()> {
        ensure!(
            self.size >= 8,
            "a record holds at least the time of sending"
        );
        let start = Instant::now();
        let acks = Arc::new(Acks {
            start,
            micros: Mutex::default(),
        });
        let producer: ThreadedProducer<ArcAcks> = self
            .target
            .config()
            .set("acks", &self.acks)
            .set("linger.ms", "0")
            .create_with_context(ArcAcks(Arc::clone(&acks)))?;
        producer
            .client()
            .fetch_metadata(Some(&self.target.topic), Duration::from_secs(20))?;
        let done = Arc::new(AtomicBool::new(false));
        let total = self.total()?;
        let reader = {
            let (consumer, done) = (self.consumer()?, Arc::clone(&done));
            thread::spawn(move || read(&consumer, start, total, &done))
        };
        thread::sleep(Duration::from_secs(1));
        self.send(&producer, start, total)?;
        producer.flush(DRAIN_LIMIT)?;
        let flushed = Instant::now();
        while !reader.is_finished() && flushed.elapsed() < DRAIN_LIMIT {
            thread::sleep(Duration::from_millis(10));
        }
        done.store(true, Ordering::Relaxed);
        let end_to_end = reader
            .join()
            .map_err(|_| anyhow!("the reader panicked"))??;
        let skip = usize::try_from(SETTLE.as_secs() * u64::from(self.rate))?;
        ensure!(
            end_to_end.len() == total,
            "{total} records sent, {} read",
            end_to_end.len()
        );
        let acknowledged =
            std::mem::take(&mut *acks.micros.lock().unwrap_or_else(PoisonError::into_inner));
        println!(
            "{}",
            json!({ "messages": total, "ack": percentiles(&acknowledged, skip), "e2e": percentiles(&end_to_end, skip) })
        );
        Ok(())
    }

    fn consumer(&self) -> Result<BaseConsumer> {
        let consumer: BaseConsumer = self
            .target
            .config()
            .set("group.id", "bench-reads-by-assign")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "500")
            .create()?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..self.partitions {
            assignment.add_partition_offset(&self.target.topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&assignment)?;
        Ok(consumer)
    }

    /// How many records are sent.
    fn total(&self) -> Result<usize> {
        let seconds = SETTLE + Duration::from_secs(u64::from(self.seconds));
        Ok(usize::try_from(seconds.as_secs() * u64::from(self.rate))?)
    }

    fn send(
        &self,
        producer: &ThreadedProducer<ArcAcks>,
        start: Instant,
        total: usize,
    ) -> Result<()> {
        let mut payload = vec![b'x'; self.size];
        let first = Instant::now();
        for n in 0..u32::try_from(total)? {
            let due = first + Duration::from_secs(1) * n / self.rate;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = u64::try_from(start.elapsed().as_micros())?;
            payload[..8].copy_from_slice(&now.to_be_bytes());
            let record = BaseRecord::<(), [u8]>::to(&self.target.topic)
                .partition(i32::try_from(n)? % self.partitions)
                .payload(&payload);
            producer
                .send(record)
                .map_err(|(error, _)| error)
                .context("the producer refused a record")?;
        }
        Ok(())
    }
}

/// Reads `total` records, or until told to stop; gives each record's age in the order of reading.
fn read(
    consumer: &BaseConsumer,
    start: Instant,
    total: usize,
    done: &AtomicBool,
) -> Result<Vec<u64>> {
    let mut ages = Vec::new();
    while ages.len() < total && !done.load(Ordering::Relaxed) {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            ages.push(age(start, message?.payload())?);
        }
    }
    Ok(ages)
}

/// Microseconds since the time that a payload carries.
fn age(start: Instant, payload: Option<&[u8]>) -> Result<u64> {
    let stamp = payload
        .and_then(|p| p.first_chunk())
        .context("a record without its time")?;
    Ok(u64::try_from(start.elapsed().as_micros())?.saturating_sub(u64::from_be_bytes(*stamp)))
}

/// p50, p99, p99.9 and the largest, without the first `skip` values.
fn percentiles(values: &[u64], skip: usize) -> Value {
    let mut sorted = values.get(skip..).unwrap_or_default().to_vec();
    sorted.sort_unstable();
    let at = |share: f64| {
        sorted
            .get((sorted.len() as f64 * share) as usize)
            .or(sorted.last())
            .copied()
            .unwrap_or_default()
    };
    json!({ "count": sorted.len(), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": sorted.last() })
}

struct Acks {
    start: Instant,
    micros: Mutex<Vec<u64>>,
}

struct ArcAcks(Arc<Acks>);

impl ClientContext for ArcAcks {}

impl ProducerContext for ArcAcks {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        // A record that was not acknowledged leaves a gap, which the count at the end shows.
        if let Ok(micros) = result
            .as_ref()
            .map_err(|_| ())
            .and_then(|m| age(self.0.start, m.payload()).map_err(|_| ()))
        {
            self.0
                .micros
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(micros);
        }
    }
}
