//! Kafka's own requests to one broker, where librdkafka hides what the checks need: whom it asks, and leader epochs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use taffrail_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use taffrail_protocol::messages::{
    AlterPartitionReassignmentsRequest, ElectLeadersRequest, ListOffsetsRequest, MetadataRequest,
    MetadataResponse,
};
use taffrail_protocol::{ErrorCode, Request};

/// To be connected.
const CONNECT_LIMIT: Duration = Duration::from_millis(300);
/// To be answered; a broker that is paused or cut off does not answer at all.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// For requests that the controller carries out.
const CONTROLLER_LIMIT: Duration = Duration::from_secs(10);
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// ListOffsets: the end.
const LATEST: i64 = -1;
/// ElectLeaders: the preferred replica.
const PREFERRED: i8 = 0;

/// A connection to one broker, made anew for each question: what a fault did to the last one does not matter.
#[derive(Debug)]
struct Connection(TcpStream);

impl Connection {
    fn open(address: &str, limit: Duration) -> Result<Self> {
        let address: SocketAddr = address.parse()?;
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self(stream))
    }

    fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        self.0.write_all(&encode_request(
            1,
            Some("taffrail-chaos"),
            request,
            version,
        )?)?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        ensure!(
            length <= ANSWER_BYTES_MAX,
            "an answer claims {length} bytes"
        );
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        Ok(decode_response::<R>(&answer, version)?.1)
    }
}

/// What one broker knows of all topics and brokers.
pub(crate) fn metadata(address: &str) -> Result<MetadataResponse> {
    let request = MetadataRequest {
        topics: None,
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let response = Connection::open(address, ANSWER_LIMIT)?.call(&request, 12)?;
    Ok(response)
}

/// Fails unless a broker says that it is registered, unfenced and caught up with the metadata.
pub(crate) fn must_be_ready(metrics: &str) -> Result<()> {
    let mut stream = Connection::open(metrics, ANSWER_LIMIT)?.0;
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nHost: {metrics}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream
        .take(ANSWER_BYTES_MAX as u64)
        .read_to_string(&mut answer)?;
    let status = answer.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "{metrics} is not ready: {status}");
    Ok(())
}

/// Leader epoch and end of a partition, as its leader tells.
pub(crate) fn latest(address: &str, topic: &str, partition: i32) -> Result<(i32, i64)> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                timestamp: LATEST,
                ..ListOffsetsPartition::default()
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let response = Connection::open(address, ANSWER_LIMIT)?.call(&request, 7)?;
    let answer = response
        .topics
        .first()
        .and_then(|topic| topic.partitions.first());
    let Some(answer) = answer else {
        anyhow::bail!("an answer without its partition");
    };
    refused(answer.error_code, None)?;
    Ok((answer.leader_epoch, answer.offset))
}

/// Gives a partition these replicas.
pub(crate) fn reassign(
    address: &str,
    topic: &str,
    partition: i32,
    replicas: Vec<i32>,
) -> Result<()> {
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: i32::try_from(CONTROLLER_LIMIT.as_millis())?,
        allow_replication_factor_change: true,
        topics: vec![ReassignableTopic {
            name: topic.to_owned(),
            partitions: vec![ReassignablePartition {
                partition_index: partition,
                replicas: Some(replicas),
            }],
        }],
    };
    let response = Connection::open(address, CONTROLLER_LIMIT)?.call(&request, 1)?;
    refused(response.error_code, response.error_message.as_deref())?;
    for partition in response.responses.iter().flat_map(|t| &t.partitions) {
        refused(partition.error_code, partition.error_message.as_deref())?;
    }
    Ok(())
}

/// Has the preferred replicas lead wherever they can.
pub(crate) fn elect_preferred(address: &str) -> Result<()> {
    let request = ElectLeadersRequest {
        election_type: PREFERRED,
        topic_partitions: None,
        timeout_ms: i32::try_from(CONTROLLER_LIMIT.as_millis())?,
    };
    let response = Connection::open(address, CONTROLLER_LIMIT)?.call(&request, 2)?;
    refused(response.error_code, None)
}

fn refused(code: i16, message: Option<&str>) -> Result<()> {
    let name = ErrorCode::try_from(code).map_or("an unknown error", |code| code.name());
    ensure!(
        code == 0,
        "refused with {name}: {}",
        message.unwrap_or_default()
    );
    Ok(())
}
