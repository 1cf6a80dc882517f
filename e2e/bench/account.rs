//! A steady producer with librdkafka's defaults but for acks=all and no linger, and the account of its records.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

/// Records per second.
pub(crate) const RATE: u32 = 200;
/// How long records that are under way at the end may take.
const FLUSH_LIMIT: Duration = Duration::from_secs(60);
/// The size of a value.
const VALUE_BYTES: usize = 100;

/// What became of the records.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) sent: u64,
    /// For each acknowledgement: when it came, and when the record was given to the client.
    pub(crate) acknowledged: Vec<(Instant, Instant)>,
    pub(crate) numbers: BTreeSet<u64>,
    pub(crate) failed: u64,
}

impl Account {
    /// The longest time between two acknowledgements, the second of which came after `from`.
    pub(crate) fn longest_gap(&self, from: Instant) -> Duration {
        let mut times: Vec<Instant> = self.acknowledged.iter().map(|(at, _)| *at).collect();
        times.sort_unstable();
        let pairs = times.windows(2).filter(|pair| pair[1] > from);
        pairs
            .map(|pair| pair[1].duration_since(pair[0]))
            .max()
            .unwrap_or_default()
    }

    /// The longest time from giving a record to the client to its acknowledgement, of those that came after `from`.
    pub(crate) fn slowest(&self, from: Instant) -> Duration {
        let after = self.acknowledged.iter().filter(|(at, _)| *at > from);
        after
            .map(|(at, sent)| at.duration_since(*sent))
            .max()
            .unwrap_or_default()
    }

    /// Whether a record that was sent after `moment` is acknowledged, and all but those of the last two seconds are: with many
    /// partitions Kafka takes more than a fifth of one for each on a small machine.
    pub(crate) fn goes_on_after(&self, moment: Instant) -> bool {
        let under_way = self.sent - self.failed - self.acknowledged.len() as u64;
        under_way < u64::from(RATE * 2) && self.acknowledged.iter().any(|(_, sent)| *sent > moment)
    }
}

/// The account while it is being written.
#[derive(Clone, Default)]
struct Bookkeeper {
    account: Arc<Mutex<Account>>,
    /// Whether the client's own log is wanted.
    talks: bool,
}

impl Bookkeeper {
    fn with<R>(&self, work: impl FnOnce(&mut Account) -> R) -> R {
        work(&mut self.account.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Bookkeeper {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        if self.talks {
            eprintln!("client {} {facility} {message}", clock());
        }
    }
}

/// Seconds since 1970, as brokers' logs can be held against.
pub(crate) fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:.6}", now.unwrap_or_default().as_secs_f64())
}

impl ProducerContext for Bookkeeper {
    type DeliveryOpaque = Box<(u64, Instant)>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Self::DeliveryOpaque) {
        let (number, sent) = *opaque;
        let now = Instant::now();
        self.with(|account| match result {
            Ok(_) => {
                account.acknowledged.push((now, sent));
                account.numbers.insert(number);
            }
            Err(_) => account.failed += 1,
        });
    }
}

/// A producer that runs until it is ended.
pub(crate) struct Steady {
    stop: Arc<AtomicBool>,
    books: Bookkeeper,
    thread: JoinHandle<Result<()>>,
}

impl Steady {
    /// Starts to send to the partitions of a topic, one after the other.
    pub(crate) fn start(
        bootstrap: &str,
        topic: &str,
        partitions: usize,
        debug: &str,
    ) -> Result<Self> {
        let books = Bookkeeper {
            talks: !debug.is_empty(),
            ..Bookkeeper::default()
        };
        let producer = producer(bootstrap, books.clone(), debug)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (topic, partitions) = (topic.to_owned(), u64::try_from(partitions)?);
        let thread = {
            let (stop, books) = (Arc::clone(&stop), books.clone());
            thread::spawn(move || send(&producer, &topic, partitions, &stop, &books))
        };
        Ok(Self {
            stop,
            books,
            thread,
        })
    }

    /// Asks the account.
    pub(crate) fn look<R>(&self, work: impl FnOnce(&Account) -> R) -> R {
        self.books.with(|account| work(account))
    }

    /// Ends it once everything under way has its outcome.
    pub(crate) fn end(self) -> Result<Account> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the producer's thread panicked"))??;
        Ok(self.books.with(std::mem::take))
    }
}

/// Sends one record by a client of its own; gives when it was acknowledged, or nothing if it failed.
pub(crate) fn send_one(
    bootstrap: &str,
    topic: &str,
    number: u64,
    limit: Duration,
) -> Result<Option<Instant>> {
    let books = Bookkeeper::default();
    let producer = producer(bootstrap, books.clone(), "")?;
    give(&producer, topic, 0, number)?;
    // What is not acknowledged by then has failed.
    let _ = producer.flush(limit);
    Ok(books.with(|account| account.acknowledged.first().map(|(at, _)| *at)))
}

/// The number in a value.
pub(crate) fn number_of(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim_end().parse().ok()
}

fn producer(
    bootstrap: &str,
    books: Bookkeeper,
    debug: &str,
) -> Result<ThreadedProducer<Bookkeeper>> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("acks", "all")
        .set("linger.ms", "0");
    if debug.is_empty() {
        config.set("log_level", "0");
    } else {
        config.set("debug", debug);
        config.set_log_level(RDKafkaLogLevel::Debug);
    }
    Ok(config.create_with_context(books)?)
}

fn send(
    producer: &ThreadedProducer<Bookkeeper>,
    topic: &str,
    partitions: u64,
    stop: &AtomicBool,
    books: &Bookkeeper,
) -> Result<()> {
    let start = Instant::now();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let partition = i32::try_from(number % partitions)?;
        books.with(|account| account.sent += 1);
        give(producer, topic, partition, number)?;
        number += 1;
        let due = start + Duration::from_secs(1) * u32::try_from(number)? / RATE;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    producer.flush(FLUSH_LIMIT)?;
    Ok(())
}

fn give(
    producer: &ThreadedProducer<Bookkeeper>,
    topic: &str,
    partition: i32,
    number: u64,
) -> Result<()> {
    let value = format!("{number:<VALUE_BYTES$}");
    let opaque = Box::new((number, Instant::now()));
    let record = BaseRecord::<(), str, _>::with_opaque_to(topic, opaque)
        .partition(partition)
        .payload(&value);
    producer
        .send(record)
        .map_err(|(error, _)| anyhow!("the client takes no records: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_before_the_event_do_not_count_and_one_across_it_does() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let account = Account {
            sent: 5,
            acknowledged: [0, 500, 600, 900, 950].map(|ms| (at(ms), at(ms))).into(),
            ..Account::default()
        };
        assert_eq!(account.longest_gap(at(0)), Duration::from_millis(500));
        assert_eq!(account.longest_gap(at(700)), Duration::from_millis(300));
        assert!(account.goes_on_after(at(940)) && !account.goes_on_after(at(950)));
    }

    #[test]
    fn a_value_tells_its_number() {
        assert_eq!(number_of(format!("{:<20}", 17).as_bytes()), Some(17));
        assert_eq!(number_of(b"x"), None);
    }
}
