//! An idempotent producer keeps its place through refusals that pass: librdkafka begins a new epoch when it is told that a
//! sequence is out of order, and sends what it has not heard of yet under new numbers, also where it stands in a log already.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::wait::wait_until;
use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::messages::ProduceRequest;
use taffrail_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use taffrail_protocol::records::RecordBatchBuilder;
use taffrail_protocol::{ErrorCode, Records};

const TOPIC: &str = "orders";
const LIMIT: Duration = Duration::from_secs(30);
/// Of Produce; the topic goes by its name.
const VERSION: i16 = 9;
const TAKEN: i16 = 0;

/// A client has several batches under way: the ISR may have grown after the first was refused and before the second comes.
#[test]
fn a_batch_behind_one_that_was_refused_for_want_of_replicas_is_refused_alike() -> Result<()> {
    let refused = ErrorCode::NotEnoughReplicas.code();
    let out_of_order = ErrorCode::OutOfOrderSequenceNumber.code();
    let mut cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    admin.create_assigned(TOPIC, &[0, 1, 2], &[("min.insync.replicas", "2")])?;
    cluster.kill(2)?;
    let mut leader = TcpStream::connect(cluster.members()[0].client.address())?;
    leader.set_read_timeout(Some(LIMIT))?;
    // Only what has no sequence may be tried until it is taken or refused.
    let mut until = |replicas: &str, expected: i16| -> Result<()> {
        admin.set_topic_config(TOPIC, "min.insync.replicas", replicas)?;
        wait_until("the leader to take the config", LIMIT, || {
            Ok(produce(&mut leader, None)? == expected)
        })
    };
    let mut client = TcpStream::connect(cluster.members()[0].client.address())?;
    client.set_read_timeout(Some(LIMIT))?;
    until("2", TAKEN)?;
    ensure!(produce(&mut client, Some(0))? == TAKEN);
    until("3", refused)?;
    ensure!(produce(&mut client, Some(1))? == refused);
    until("2", TAKEN)?;
    let behind = produce(&mut client, Some(2))?;
    ensure!(
        behind == refused,
        "the batch behind the refused one got error {behind}"
    );
    for sequence in [1, 2] {
        ensure!(produce(&mut client, Some(sequence))? == TAKEN);
    }
    // A gap that no refusal explains is told as one.
    ensure!(produce(&mut client, Some(5))? == out_of_order);
    cluster.finish();
    Ok(())
}

/// Produces one record with acks=all, with a sequence number or without; gives the error code.
fn produce(stream: &mut TcpStream, sequence: Option<i32>) -> Result<i16> {
    let mut batch = RecordBatchBuilder::new(0, 1_700_000_000_000);
    if let Some(sequence) = sequence {
        batch = batch.producer(1_000_000, 0, sequence);
    }
    batch.push(None, Some(b"x"), &[]);
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC.to_owned(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Records::Inline(batch.build()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    stream.write_all(&encode_request(1, Some("e2e"), &request, VERSION)?)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?.min(1 << 20)];
    stream.read_exact(&mut answer)?;
    let response = decode_response::<ProduceRequest>(&answer, VERSION)?.1;
    let partition = (response.responses.first())
        .and_then(|topic| topic.partition_responses.first())
        .context("an answer without the partition")?;
    Ok(partition.error_code)
}
