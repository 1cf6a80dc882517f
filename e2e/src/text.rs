//! Real text to send and to get back byte for byte: the lines of this repository's own files, over and over until there are enough.
//!
//! Line `n` travels with the key `n` in eight digits, so that one line can be told from its twin and order can be checked.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;

use crate::tools::repository;

/// The lines.
pub struct Text {
    lines: Vec<String>,
    count: usize,
}

impl Text {
    /// A text of `count` lines.
    pub fn of(count: usize) -> Result<Self> {
        let mut lines = Vec::new();
        gather(&repository().join("broker"), &mut lines)?;
        gather(&repository().join("e2e/src"), &mut lines)?;
        ensure!(!lines.is_empty(), "there is no text in the repository");
        Ok(Self { lines, count })
    }

    /// How many lines it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Line `n`, without its end.
    pub fn line(&self, n: usize) -> &str {
        &self.lines[n % self.lines.len()]
    }

    /// Writes lines `from..to` as `key TAB line`, the form that the console producer reads.
    pub fn write_keyed(&self, path: &Path, from: usize, to: usize) -> Result<()> {
        fs::write(path, self.keyed(from, to))?;
        Ok(())
    }

    /// Lines `from..to` as `key TAB line`.
    pub fn keyed(&self, from: usize, to: usize) -> Vec<u8> {
        let mut keyed = Vec::new();
        for n in from..to {
            keyed.extend_from_slice(format!("{n:08}\t{}\n", self.line(n)).as_bytes());
        }
        keyed
    }

    /// Produces lines `from..to` with acks=all through librdkafka, partitioned by key as the Java client does, and waits for each acknowledgement.
    pub fn produce(
        &self,
        bootstrap: &str,
        topic: &str,
        from: usize,
        to: usize,
        config: &[(&str, &str)],
    ) -> Result<()> {
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", bootstrap)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .set("queue.buffering.max.messages", "200000")
            .set("log_level", "0");
        for (name, value) in config {
            client.set(*name, *value);
        }
        let producer: BaseProducer<CountFailures> =
            client.create_with_context(CountFailures::default())?;
        for n in from..to {
            let key = format!("{n:08}");
            let mut record = BaseRecord::to(topic)
                .key(key.as_str())
                .payload(self.line(n));
            loop {
                match producer.send(record) {
                    Ok(()) => break,
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                        record = back;
                        producer.poll(Duration::from_millis(50));
                    }
                    Err((error, _)) => return Err(error).context("the producer refused a line"),
                }
            }
            if n % 1000 == 0 {
                producer.poll(Duration::ZERO);
            }
        }
        producer.flush(Duration::from_secs(60))?;
        match producer.context().first.get() {
            None => Ok(()),
            Some(error) => bail!("a line was not acknowledged: {error}"),
        }
    }

    /// A checker for this text.
    pub fn checker(&self) -> Checker<'_> {
        Checker {
            text: self,
            seen: vec![0; self.count],
            last: Vec::new(),
            records: 0,
        }
    }
}

/// Delivery reports: only the first failure is kept.
#[derive(Default)]
struct CountFailures {
    first: std::sync::OnceLock<String>,
}

impl rdkafka::client::ClientContext for CountFailures {}

impl rdkafka::producer::ProducerContext for CountFailures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &rdkafka::producer::DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let _ = self.first.set(error.to_string());
        }
    }
}

/// Takes records as a reader gets them and tells what is wrong with them.
pub struct Checker<'a> {
    text: &'a Text,
    /// How often each line was read.
    seen: Vec<u8>,
    /// Per partition: the key read last.
    last: Vec<Option<usize>>,
    records: usize,
}

impl Checker<'_> {
    /// One record: its key must name a line, its value must be that line, and its key must be above the last one of the partition.
    pub fn in_order(&mut self, partition: i32, key: &[u8], value: &[u8]) -> Result<()> {
        let n = self.line(key, value)?;
        let partition = usize::try_from(partition)?;
        if self.last.len() <= partition {
            self.last.resize(partition + 1, None);
        }
        if let Some(before) = self.last[partition].replace(n) {
            ensure!(
                before < n,
                "partition {partition}: line {n} came after line {before}"
            );
        }
        Ok(())
    }

    /// One record whose order is not looked at: a group's member may read again what a lost one had not committed.
    pub fn in_any_order(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.line(key, value).map(|_| ())
    }

    /// How many records were read.
    pub fn records(&self) -> usize {
        self.records
    }

    /// How many of the lines were read at least once.
    pub fn distinct(&self) -> usize {
        self.seen.iter().filter(|times| **times > 0).count()
    }

    /// Every line was read exactly once.
    pub fn complete(&self) -> Result<()> {
        for (n, times) in self.seen.iter().enumerate() {
            ensure!(
                *times == 1,
                "line {n} was read {times} times; {} of {} lines were read",
                self.distinct(),
                self.text.count
            );
        }
        Ok(())
    }

    /// Every line was read at least once.
    pub fn covered(&self) -> Result<()> {
        match self.seen.iter().position(|times| *times == 0) {
            None => Ok(()),
            Some(n) => bail!(
                "line {n} was not read; {} of {} lines were",
                self.distinct(),
                self.text.count
            ),
        }
    }

    fn line(&mut self, key: &[u8], value: &[u8]) -> Result<usize> {
        let n: usize = std::str::from_utf8(key)
            .ok()
            .and_then(|k| k.parse().ok())
            .with_context(|| format!("key {key:?} names no line"))?;
        ensure!(n < self.text.count, "key {n} is beyond the text");
        let expected = self.text.line(n).as_bytes();
        ensure!(
            value == expected,
            "line {n} differs: {:?} instead of {:?}",
            String::from_utf8_lossy(value),
            self.text.line(n)
        );
        self.seen[n] = self.seen[n].saturating_add(1);
        self.records += 1;
        Ok(n)
    }
}

/// The lines of all `.rs`, `.md` and `.toml` files below `folder`, in the order of their paths.
fn gather(folder: &Path, lines: &mut Vec<String>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let ending = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        if path.is_dir() && entry.file_name() != "target" {
            gather(&path, lines)?;
        } else if ["rs", "md", "toml"].contains(&ending) {
            lines.extend(fs::read_to_string(&path)?.lines().map(str::to_owned));
        }
    }
    Ok(())
}
