//! Tells whether clients are served: produces records to every partition of a topic, through the leaders that a client
//! would find, and reads them back. It creates and deletes nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taffrail_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use taffrail_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use taffrail_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use taffrail_protocol::records::{Batches, RecordBatchBuilder, RecordIter, uncompressed_records};
use taffrail_protocol::{Records, Uuid};
use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep};

use super::connection::{Connection, ConnectionError, ErrorName};
use crate::cli::PingArguments;

/// All in-sync replicas.
const ACKS_ALL: i16 = -1;

/// How long brokers may take to replicate a batch.
const PRODUCE_WAIT_MS: i32 = 8_000;

/// How long a leader may wait for records that it should have already.
const FETCH_WAIT_MS: i32 = 500;

/// Fetches of one partition before the records count as missing.
const FETCHES_MAX: usize = 10;

/// 10,000 records of less than 100 bytes fit twice.
const FETCH_BYTES_MAX: i32 = 2 << 20;

/// Largest batch that is looked into, uncompressed.
const BATCH_BYTES_MAX: usize = 2 << 20;

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Why records did not come back.
#[derive(Debug, Error)]
pub enum PingError {
    /// The address has no meaning.
    #[error("{address} cannot be resolved: {error}")]
    Resolve {
        /// As it was given.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// A broker did not answer.
    #[error("{address}: {error}")]
    Connection {
        /// The broker.
        address: String,
        /// Why.
        error: ConnectionError,
    },
    /// A broker refused.
    #[error("{what} was refused with {error}")]
    Refused {
        /// The request, as "the fetch of orders-0".
        what: String,
        /// Kafka's error.
        error: ErrorName,
    },
    /// An answer lacks what was asked for.
    #[error("the answer says nothing of {0}")]
    Silent(String),
    /// Nobody leads the partition at this moment.
    #[error("{topic}-{partition} has no leader")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// What came back is not what was acknowledged.
    #[error("{topic}-{partition}: {found} of {sent} acknowledged records came back")]
    Lost {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Records that came back as they were sent.
        found: usize,
        /// Records acknowledged.
        sent: usize,
    },
}

/// `taffrail-operator ping`: tries until it succeeds or the time is over.
pub fn run_ping(arguments: &PingArguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let deadline = Instant::now() + Duration::from_secs(arguments.wait);
    let partitions = runtime.block_on(async {
        loop {
            match ping(&arguments.bootstrap, &arguments.topic, arguments.records).await {
                Ok(partitions) => return Ok(partitions),
                Err(error) if Instant::now() + PAUSE > deadline => return Err(error),
                Err(error) => crate::say!("not yet: {error}"),
            }
            sleep(PAUSE).await;
        }
    })?;
    crate::say!(
        "{} records produced to each of {partitions} partitions of {} with acks=all, and read back",
        arguments.records,
        arguments.topic
    );
    Ok(())
}

/// Produces `records` records to each partition of the topic and reads them back; returns the number of partitions.
/// `bootstrap` is `host:port`.
pub async fn ping(bootstrap: &str, topic: &str, records: u32) -> Result<usize, PingError> {
    let mut first = connect(bootstrap).await?;
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.to_owned()),
            topic_id: Uuid::ZERO,
        }]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let metadata = first
        .call(&request)
        .await
        .map_err(|error| failed(bootstrap, error))?;
    let addresses: BTreeMap<i32, String> = metadata
        .brokers
        .iter()
        .map(|broker| (broker.node_id, format!("{}:{}", broker.host, broker.port)))
        .collect();
    let described = metadata
        .topics
        .first()
        .ok_or_else(|| PingError::Silent(topic.to_owned()))?;
    refused(described.error_code, || format!("the metadata of {topic}"))?;
    if described.partitions.is_empty() {
        return Err(PingError::Silent(format!("the partitions of {topic}")));
    }
    let mut leaders: BTreeMap<i32, Leader> = BTreeMap::new();
    for partition in &described.partitions {
        let no_leader = || PingError::NoLeader {
            topic: topic.to_owned(),
            partition: partition.partition_index,
        };
        let id = partition.leader_id;
        let address = addresses.get(&id).ok_or_else(no_leader)?;
        let leader = match leaders.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Leader {
                connection: connect(address).await?,
                address: address.clone(),
            }),
        };
        let subject = Subject {
            topic,
            topic_id: described.topic_id,
            partition: partition.partition_index,
        };
        leader.ping(&subject, records).await?;
    }
    Ok(described.partitions.len())
}

/// The partition that is pinged.
struct Subject<'a> {
    topic: &'a str,
    topic_id: Uuid,
    partition: i32,
}

impl Subject<'_> {
    fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}

struct Leader {
    address: String,
    connection: Connection,
}

impl Leader {
    async fn ping(&mut self, subject: &Subject<'_>, records: u32) -> Result<(), PingError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis());
        let values: Vec<String> = (0..records)
            .map(|number| format!("taffrail ping {now} {} {number}", subject.partition))
            .collect();
        let timestamp = i64::try_from(now).unwrap_or(0);
        let base_offset = self.produce(subject, &values, timestamp).await?;
        let found = self.count_found(subject, &values, base_offset).await?;
        if found < values.len() {
            return Err(PingError::Lost {
                topic: subject.topic.to_owned(),
                partition: subject.partition,
                found,
                sent: values.len(),
            });
        }
        Ok(())
    }

    /// Returns the offset of the first record.
    async fn produce(
        &mut self,
        subject: &Subject<'_>,
        values: &[String],
        timestamp: i64,
    ) -> Result<i64, PingError> {
        let mut batch = RecordBatchBuilder::new(0, timestamp);
        for value in values {
            // The key is for topics with cleanup.policy=compact, which refuse records without one.
            batch.push(Some(b"taffrail-ping"), Some(value.as_bytes()), &[]);
        }
        let request = ProduceRequest {
            transactional_id: None,
            acks: ACKS_ALL,
            timeout_ms: PRODUCE_WAIT_MS,
            topic_data: vec![TopicProduceData {
                name: subject.topic.to_owned(),
                topic_id: subject.topic_id,
                partition_data: vec![PartitionProduceData {
                    index: subject.partition,
                    records: Records::Inline(batch.build()),
                }],
            }],
        };
        let response = self
            .connection
            .call(&request)
            .await
            .map_err(|error| failed(&self.address, error))?;
        let what = || format!("the produce to {}", subject.name());
        let answer = response
            .responses
            .first()
            .and_then(|topic| topic.partition_responses.first())
            .ok_or_else(|| PingError::Silent(what()))?;
        refused(answer.error_code, what)?;
        Ok(answer.base_offset)
    }

    /// How many of the values stand where the broker said that it put them.
    async fn count_found(
        &mut self,
        subject: &Subject<'_>,
        values: &[String],
        base_offset: i64,
    ) -> Result<usize, PingError> {
        let mut found = 0;
        for _ in 0..FETCHES_MAX {
            let next = base_offset.saturating_add(i64::try_from(found).unwrap_or(i64::MAX));
            let request = fetch_request(subject, next);
            let (response, frame) = self
                .connection
                .call_with_frame(&request)
                .await
                .map_err(|error| failed(&self.address, error))?;
            let what = || format!("the fetch of {}", subject.name());
            refused(response.error_code, what)?;
            let answer = response
                .responses
                .first()
                .and_then(|topic| topic.partitions.first())
                .ok_or_else(|| PingError::Silent(what()))?;
            refused(answer.error_code, what)?;
            let bytes = answer.records.bytes(&frame).unwrap_or_default();
            found += count_equal(bytes, next, values.get(found..).unwrap_or_default());
            if found == values.len() {
                break;
            }
        }
        Ok(found)
    }
}

fn fetch_request(subject: &Subject<'_>, offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: FETCH_WAIT_MS,
        min_bytes: 1,
        max_bytes: FETCH_BYTES_MAX,
        topics: vec![FetchTopic {
            topic: subject.topic.to_owned(),
            topic_id: subject.topic_id,
            partitions: vec![FetchPartition {
                partition: subject.partition,
                fetch_offset: offset,
                partition_max_bytes: FETCH_BYTES_MAX,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    }
}

/// How many records from `offset` on are the expected ones, up to the first that is not.
fn count_equal(bytes: &[u8], offset: i64, expected: &[String]) -> usize {
    let mut found = 0;
    // A last batch that was cut off by the size limit ends the loop; the next fetch has it.
    for (_, range) in Batches::new(bytes).map_while(Result::ok) {
        let batch = bytes.get(range).unwrap_or_default();
        let Ok((header, records)) = uncompressed_records(batch, BATCH_BYTES_MAX) else {
            return found;
        };
        for record in RecordIter::new(&header, &records).map_while(Result::ok) {
            if record.offset < offset {
                continue;
            }
            let Some(value) = expected.get(found) else {
                return found;
            };
            let place = offset.saturating_add(i64::try_from(found).unwrap_or(i64::MAX));
            if (record.offset, record.value) != (place, Some(value.as_bytes())) {
                // Others produce too, but not between records of one batch.
                return found;
            }
            found += 1;
        }
    }
    found
}

async fn connect(address: &str) -> Result<Connection, PingError> {
    let unresolved = |error| PingError::Resolve {
        address: address.to_owned(),
        error,
    };
    let mut last = unresolved(io::Error::from(io::ErrorKind::NotFound));
    for resolved in lookup_host(address).await.map_err(unresolved)? {
        match Connection::open(resolved).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = failed(address, error),
        }
    }
    Err(last)
}

fn failed(address: &str, error: ConnectionError) -> PingError {
    PingError::Connection {
        address: address.to_owned(),
        error,
    }
}

fn refused(error_code: i16, what: impl FnOnce() -> String) -> Result<(), PingError> {
    if error_code == 0 {
        return Ok(());
    }
    Err(PingError::Refused {
        what: what(),
        error: ErrorName(error_code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[&str], offset: i64, expected: &[&str], found: usize) {
        let mut batch = RecordBatchBuilder::new(5, 0);
        for value in values {
            batch.push(None, Some(value.as_bytes()), &[]);
        }
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(count_equal(&batch.build(), offset, &expected), found);
    }

    #[test]
    fn records_count_in_their_place_only() {
        check(&["a", "b", "c"], 5, &["a", "b", "c"], 3);
        check(&["a", "b", "c"], 6, &["b", "c"], 2);
        check(&["a", "b", "c"], 5, &["a", "b"], 2);
        check(&["a", "x", "c"], 5, &["a", "b", "c"], 1);
        check(&["a", "b"], 4, &["a", "b"], 0);
        check(&[], 5, &["a"], 0);
    }

    #[test]
    fn garbage_holds_no_records() {
        assert_eq!(count_equal(&[0xff; 200], 0, &["a".to_owned()]), 0);
        assert_eq!(count_equal(&[], 0, &["a".to_owned()]), 0);
    }
}
