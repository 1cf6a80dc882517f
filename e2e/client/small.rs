//! One record in each Produce request, over several connections with one request in flight each.
//!
//! The request is built once and sent over and over by one thread, so that the client takes as little as possible of the machine:
//! librdkafka would cost several times what a broker needs for such a request.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Target;

/// Produce's version: the last one without flexible fields that librdkafka and the null broker speak as well.
const PRODUCE_VERSION: i16 = 7;
/// A response is a few dozen bytes.
const RESPONSE_MAX: usize = 4096;

/// The `small` command.
#[derive(clap::Args)]
pub(crate) struct Small {
    #[command(flatten)]
    target: Target,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Bytes of each record's value.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// How long.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
}

impl Small {
    /// Prints requests, seconds and latency percentiles in microseconds.
    pub(crate) fn run(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (request, error_at) = produce_request(&self.target.topic, self.size)?;
        let address = self
            .target
            .bootstrap
            .split(',')
            .next()
            .context("a broker")?;
        let duration = Duration::from_secs(self.seconds);
        let mut latencies = runtime.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..self.connections {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                tasks.push(tokio::spawn(repeat(
                    stream,
                    request.clone(),
                    error_at,
                    duration,
                )));
            }
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await??);
            }
            anyhow::Ok(all)
        })?;
        latencies.sort_unstable();
        let at = |share: f64| {
            latencies
                .get((latencies.len() as f64 * share) as usize)
                .copied()
                .unwrap_or_default()
        };
        println!(
            "{}",
            json!({ "requests": latencies.len(), "seconds": self.seconds, "p50": at(0.5), "p99": at(0.99), "p999": at(0.999) })
        );
        Ok(())
    }
}

/// Sends the request again and again; gives the microseconds of each.
async fn repeat(
    mut stream: TcpStream,
    mut request: Vec<u8>,
    error_at: usize,
    duration: Duration,
) -> Result<Vec<u32>> {
    let mut latencies = Vec::new();
    let mut response = vec![0; RESPONSE_MAX];
    let start = Instant::now();
    let mut correlation = 0i32;
    while start.elapsed() < duration {
        correlation += 1;
        request[8..12].copy_from_slice(&correlation.to_be_bytes());
        let sent = Instant::now();
        stream.write_all(&request).await?;
        stream.read_exact(&mut response[..4]).await?;
        let length =
            u32::from_be_bytes([response[0], response[1], response[2], response[3]]) as usize;
        ensure!(length <= RESPONSE_MAX - 4, "a response of {length} bytes");
        stream.read_exact(&mut response[4..4 + length]).await?;
        latencies.push(u32::try_from(sent.elapsed().as_micros())?);
        let error = i16::from_be_bytes([response[error_at], response[error_at + 1]]);
        if error != 0 {
            bail!("the broker answered with error {error}");
        }
    }
    Ok(latencies)
}

/// A framed Produce request of one record to partition 0, acks=1, and where the response holds the partition's error code.
fn produce_request(topic: &str, size: usize) -> Result<(Vec<u8>, usize)> {
    let batch = batch(size)?;
    let mut request = vec![0; 4];
    request.extend(0i16.to_be_bytes());
    request.extend(PRODUCE_VERSION.to_be_bytes());
    request.extend(0i32.to_be_bytes());
    string(&mut request, "small")?;
    request.extend((-1i16).to_be_bytes()); // no transactional id
    request.extend(1i16.to_be_bytes()); // acks
    request.extend(30_000i32.to_be_bytes()); // timeout, ms
    request.extend(1i32.to_be_bytes()); // topics
    string(&mut request, topic)?;
    request.extend(1i32.to_be_bytes()); // partitions
    request.extend(0i32.to_be_bytes());
    request.extend(i32::try_from(batch.len())?.to_be_bytes());
    request.extend(batch);
    let length = i32::try_from(request.len() - 4)?;
    request[..4].copy_from_slice(&length.to_be_bytes());
    // Frame length, correlation id, topic count, topic, partition count, partition; then the error.
    Ok((request, 4 + 4 + 4 + 2 + topic.len() + 4 + 4))
}

/// A record batch of one record without a key, as `broker/log/FORMAT.md` describes it.
fn batch(size: usize) -> Result<Vec<u8>> {
    let mut record = vec![0]; // attributes
    varint(&mut record, 0); // timestamp delta
    varint(&mut record, 0); // offset delta
    varint(&mut record, -1); // no key
    varint(&mut record, i64::try_from(size)?);
    record.extend(std::iter::repeat_n(b'x', size));
    varint(&mut record, 0); // headers

    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let mut checked = Vec::new();
    checked.extend(0i16.to_be_bytes()); // attributes
    checked.extend(0i32.to_be_bytes()); // last offset delta
    checked.extend(now.to_be_bytes());
    checked.extend(now.to_be_bytes());
    checked.extend((-1i64).to_be_bytes()); // no producer id
    checked.extend((-1i16).to_be_bytes());
    checked.extend((-1i32).to_be_bytes());
    checked.extend(1i32.to_be_bytes()); // records
    varint(&mut checked, i64::try_from(record.len())?);
    checked.extend(record);

    let crc = u32::try_from(crc_fast::checksum(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        &checked,
    ))?;
    let mut batch = Vec::new();
    batch.extend(0i64.to_be_bytes()); // base offset
    batch.extend(i32::try_from(4 + 1 + 4 + checked.len())?.to_be_bytes());
    batch.extend((-1i32).to_be_bytes()); // leader epoch
    batch.push(2); // magic
    batch.extend(crc.to_be_bytes());
    batch.extend(checked);
    Ok(batch)
}

fn string(out: &mut Vec<u8>, text: &str) -> Result<()> {
    out.extend(i16::try_from(text.len())?.to_be_bytes());
    out.extend(text.as_bytes());
    Ok(())
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.push((zigzag & 0x7f) as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}
