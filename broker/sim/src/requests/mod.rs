//! What a broker makes of single requests: one that is alone, votes and coordinates for itself, and is handed frames.

mod memory;
mod rows;

use std::time::Duration;

use taffrail_core::config::ConfigMap;
use taffrail_node::{Connection, Handled, ListenerKind};
use taffrail_protocol::frame::{LENGTH_WIDTH, decode_response, encode_request};
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use taffrail_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use taffrail_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use taffrail_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use taffrail_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use taffrail_protocol::{ErrorCode, Request};

use crate::cluster::Cluster;
use crate::random::Random;

/// A topic that exists, with [`PARTITIONS`].
const TOPIC: &str = "orders";
const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(90);

fn frame<R: Request>(request: &R, version: i16) -> Vec<u8> {
    let framed = encode_request(1, Some("test"), request, version).expect("it encodes");
    framed[LENGTH_WIDTH..].to_vec()
}

/// A broker alone, which votes and coordinates for itself.
struct Alone {
    cluster: Cluster,
    connection: Connection,
}

impl Alone {
    fn new() -> Alone {
        let mut settings = ConfigMap::new();
        for name in [
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "min.insync.replicas",
        ] {
            settings.insert(name.to_owned(), "1".to_owned());
        }
        let mut cluster = Cluster::new(1, 0, &settings, Random::new(1));
        cluster.voters = 1;
        cluster.start(0);
        let deadline = cluster.executor.now() + PATIENCE;
        cluster
            .executor
            .run_until(deadline, || cluster.not_ready(0).is_none());
        assert_eq!(cluster.not_ready(0), None);
        let connection =
            Connection::new("PLAINTEXT".into(), ListenerKind::Client, "10.0.0.9".into());
        let mut alone = Alone {
            cluster,
            connection,
        };
        alone.call(
            &CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name: TOPIC.to_owned(),
                    num_partitions: PARTITIONS,
                    replication_factor: 1,
                    ..CreatableTopic::default()
                }],
                timeout_ms: 10_000,
                validate_only: false,
            },
            7,
        );
        alone
    }

    /// The answer's frame, or why there is none.
    fn handle(&mut self, mut frame: Vec<u8>) -> Result<Vec<u8>, String> {
        let node = self.cluster.node(0).expect("it runs");
        let answer = |handled| match handled {
            Handled::Ready(response) => Ok(response.buffer),
            Handled::NoReply => Ok(Vec::new()),
            Handled::Close(reason) => Err(reason),
            Handled::Pending { .. } => Err("put off twice".to_owned()),
        };
        match node.handle(&mut self.connection, &mut frame) {
            Handled::Pending { future, .. } => {
                let executor = &self.cluster.executor;
                let waiting = async move { answer(future.await) };
                executor
                    .block_on(executor.group(), PATIENCE, waiting)
                    .unwrap_or_else(|| Err("not answered in time".to_owned()))
            }
            handled => answer(handled),
        }
    }

    fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let answer = self.handle(frame(request, version)).expect("an answer");
        let (_, response) = decode_response::<R>(&answer[LENGTH_WIDTH..], version).expect("whole");
        response
    }
}

#[test]
fn what_is_named_again_is_looked_at_once() {
    let mut alone = Alone::new();
    let topic = MetadataRequestTopic {
        name: Some(TOPIC.to_owned()),
        ..MetadataRequestTopic::default()
    };
    let metadata = MetadataRequest {
        topics: Some(vec![topic; 3]),
        ..MetadataRequest::default()
    };
    assert_eq!(alone.call(&metadata, 12).topics.len(), 1);

    let configs = |names: Vec<String>| DescribeConfigsRequest {
        resources: (names.into_iter())
            .map(|resource_name| DescribeConfigsResource {
                resource_type: 4,
                resource_name,
                configuration_keys: Some(Vec::new()),
            })
            .collect(),
        ..DescribeConfigsRequest::default()
    };
    let names = ["0", "7", "00", "", "+0", ""].map(str::to_owned).to_vec();
    let described = alone.call(&configs(names), 4).results;
    let named: Vec<_> = described
        .iter()
        .map(|of| of.resource_name.as_str())
        .collect();
    assert_eq!(named, ["0", "7", ""]);
    let many = (0..10_002).map(|name| name.to_string()).collect();
    let described = alone.call(&configs(many), 4).results;
    let refused = ErrorCode::PolicyViolation.code();
    let refused: Vec<bool> = described
        .iter()
        .map(|of| of.error_code == refused)
        .collect();
    assert_eq!((refused.len(), refused[9_999]), (10_002, false));
    assert!(refused[10_000] && refused[10_001]);

    let asked = |partition_index| ListOffsetsPartition {
        partition_index,
        current_leader_epoch: -1,
        timestamp: -2,
    };
    let offsets = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: TOPIC.to_owned(),
            partitions: [0, 1, 0].map(asked).to_vec(),
        }],
        ..ListOffsetsRequest::default()
    };
    let found = &alone.call(&offsets, 8).topics[0].partitions;
    let codes: Vec<i16> = found.iter().map(|of| of.error_code).collect();
    let twice = ErrorCode::InvalidRequest.code();
    assert_eq!(codes, [twice, 0, twice]);

    let asked = |(partition_index, offset)| DeleteRecordsPartition {
        partition_index,
        offset,
    };
    let deletion = |partitions: &[(i32, i64)]| DeleteRecordsTopic {
        name: TOPIC.to_owned(),
        partitions: partitions.iter().copied().map(asked).collect(),
    };
    let delete = DeleteRecordsRequest {
        topics: vec![deletion(&[(0, 5), (1, 0)]), deletion(&[(0, 0)])],
        timeout_ms: 1000,
    };
    let deleted = alone.call(&delete, 2).topics;
    assert_eq!(deleted.len(), 1);
    // The last counts: there is no offset 5.
    let found: Vec<_> = (deleted[0].partitions.iter())
        .map(|of| (of.partition_index, of.low_watermark, of.error_code))
        .collect();
    assert_eq!(found, [(0, 0, 0), (1, 0, 0)]);
}
