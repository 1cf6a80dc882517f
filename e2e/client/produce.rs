//! Produces records of one size as fast as the broker takes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use serde_json::json;

use crate::Target;

/// The `produce` command.
#[derive(clap::Args)]
pub(crate) struct Produce {
    #[command(flatten)]
    target: Target,
    /// How many partitions the topic has; records go round them.
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// How many records.
    #[arg(long)]
    count: u64,
    /// Bytes of each record's value.
    #[arg(long)]
    size: usize,
    /// Acknowledgements: 0, 1 or all.
    #[arg(long, default_value = "1")]
    acks: String,
}

impl Produce {
    /// Prints messages, bytes, and the seconds until 99 % and until all were acknowledged.
    ///
    /// The rate is taken at 99 %: librdkafka may hold the last partial batch for up to a second.
    pub(crate) fn run(&self) -> Result<()> {
        let progress = Arc::new(Progress {
            at: self.count * 99 / 100,
            ..Progress::default()
        });
        let producer: ThreadedProducer<Arcs> = self
            .target
            .config()
            .set("acks", &self.acks)
            .set("queue.buffering.max.messages", "500000")
            .set("queue.buffering.max.kbytes", "1048576")
            .create_with_context(Arcs(Arc::clone(&progress)))?;
        // Connections and leaders are learned before the clock starts.
        producer
            .client()
            .fetch_metadata(Some(&self.target.topic), Duration::from_secs(20))?;
        let payload: Vec<u8> = (0..self.size)
            .map(|i| b'a' + u8::try_from(i * 7 % 26).unwrap_or_default())
            .collect();
        let start = Instant::now();
        progress
            .start
            .set(start)
            .ok()
            .context("the clock started twice")?;
        for n in 0..self.count {
            let partition = i32::try_from(n % u64::try_from(self.partitions)?)?;
            let mut record = BaseRecord::<(), [u8]>::to(&self.target.topic)
                .partition(partition)
                .payload(&payload);
            while let Err((error, back)) = producer.send(record) {
                let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error else {
                    return Err(error).context("the producer refused a record");
                };
                record = back;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        producer.flush(Duration::from_secs(120))?;
        let seconds = start.elapsed().as_secs_f64();
        if let Some(error) = progress.error.get() {
            bail!("a record was not acknowledged: {error}");
        }
        let acknowledged = progress.acknowledged.load(Ordering::Relaxed);
        let at_99 = progress.seconds.get().copied().unwrap_or(seconds);
        println!(
            "{}",
            json!({ "messages": acknowledged, "bytes": acknowledged * self.size as u64, "seconds": seconds,
                    "rate": progress.at as f64 / at_99 })
        );
        Ok(())
    }
}

/// How far the acknowledgements are.
#[derive(Default)]
struct Progress {
    /// The count at which the rate is taken.
    at: u64,
    acknowledged: AtomicU64,
    start: OnceLock<Instant>,
    seconds: OnceLock<f64>,
    error: OnceLock<String>,
}

struct Arcs(Arc<Progress>);

impl ClientContext for Arcs {}

impl ProducerContext for Arcs {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let progress = &self.0;
        if let Err((error, _)) = result {
            let _ = progress.error.set(error.to_string());
            return;
        }
        // One thread delivers, so this is no race.
        let count = progress.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        if count == progress.at
            && let Some(start) = progress.start.get()
        {
            let _ = progress.seconds.set(start.elapsed().as_secs_f64());
        }
    }
}
