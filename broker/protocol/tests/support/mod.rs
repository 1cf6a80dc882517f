//! Wire bytes made straight from the message definitions, without the code that is generated from them:
//! a second writer, from a seed.
#![allow(dead_code, unreachable_pub)]

#[path = "../../build/definition.rs"]
#[allow(unreachable_pub)]
pub mod definition;
pub mod seeds;

use definition::{Definition, Field, FieldType, Struct};
use std::fs;
use std::path::Path;

/// All definitions of `messages/`, by file name.
pub fn definitions() -> Vec<Definition> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("messages");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("messages/")
        .map(|entry| entry.expect("entry").path())
        .collect();
    files.sort();
    let parse = |file: &std::path::PathBuf| {
        definition::parse(
            &file.display().to_string(),
            &fs::read_to_string(file).expect("readable"),
        )
    };
    files.iter().flat_map(parse).collect()
}

/// A stream of numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Source(u64);

impl Source {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// The bytes of some value of a message.
pub fn message_bytes(definition: &Definition, version: i16, source: &mut Source) -> Vec<u8> {
    let mut walk = Walk {
        definition,
        version,
        source,
        out: Vec::new(),
    };
    walk.message_struct(&definition.structs[0]);
    walk.out
}

struct Walk<'a> {
    definition: &'a Definition,
    version: i16,
    source: &'a mut Source,
    out: Vec<u8>,
}

impl Walk<'_> {
    fn flexible(&self) -> bool {
        self.definition.is_flexible(self.version)
    }

    fn message_struct(&mut self, message_struct: &Struct) {
        let carried = |field: &&Field| field.versions.contains(self.version);
        let fields: Vec<Field> = message_struct
            .fields
            .iter()
            .filter(carried)
            .cloned()
            .collect();
        for field in fields.iter().filter(|field| field.tag.is_none()) {
            let nullable = field
                .nullable
                .is_some_and(|versions| versions.contains(self.version));
            if nullable && self.source.below(4) == 0 {
                self.null(&field.field_type);
            } else {
                if nullable && matches!(field.field_type, FieldType::Struct(_)) {
                    self.out.push(1);
                }
                self.value(&field.field_type, 0);
            }
        }
        if !self.flexible() {
            return;
        }
        let mut tagged: Vec<&Field> = fields
            .iter()
            .filter(|field| field.tag.is_some() && self.source.below(2) == 0)
            .collect();
        tagged.sort_by_key(|field| field.tag);
        self.uvarint(tagged.len() as u32);
        for field in tagged {
            self.uvarint(field.tag.unwrap_or_default());
            let before = std::mem::take(&mut self.out);
            // Never the default, for a default is not written.
            match field.field_type {
                FieldType::Bool => self
                    .out
                    .push(u8::from(field.default.as_deref() != Some("true"))),
                _ => self.value(&field.field_type, 1),
            }
            let value = std::mem::replace(&mut self.out, before);
            self.uvarint(value.len() as u32);
            self.out.extend(value);
        }
    }

    fn null(&mut self, field_type: &FieldType) {
        match field_type {
            FieldType::Struct(_) => self.out.push(0xff),
            _ if self.flexible() => self.out.push(0),
            FieldType::String => self.out.extend((-1i16).to_be_bytes()),
            _ => self.out.extend((-1i32).to_be_bytes()),
        }
    }

    fn value(&mut self, field_type: &FieldType, shortest: u64) {
        let some = self.source.next();
        match field_type {
            FieldType::Bool => self.out.push((some & 1) as u8),
            FieldType::I8 => self.out.push(some as u8),
            FieldType::I16 | FieldType::U16 => self.out.extend((some as u16).to_be_bytes()),
            FieldType::I32 => self.out.extend((some as u32).to_be_bytes()),
            FieldType::I64 => self.out.extend(some.to_be_bytes()),
            FieldType::F64 => self.out.extend((some as i32 as f64).to_be_bytes()),
            FieldType::Uuid => {
                self.out.extend(some.to_be_bytes());
                self.out.extend((!some).to_be_bytes());
            }
            FieldType::String => {
                let length = shortest + some % 12;
                self.length(length as usize, true);
                let letters = (0..length).map(|position| b'a' + ((some >> position) % 26) as u8);
                self.out.extend(letters);
            }
            FieldType::Bytes | FieldType::Records => {
                let length = (shortest + some % 20) as usize;
                self.length(length, false);
                let bytes = self.source.bytes(length);
                self.out.extend(bytes);
            }
            FieldType::Struct(name) => {
                let definition = self.definition;
                self.message_struct(definition.find_struct(name));
            }
            FieldType::Array(element) => {
                let length = shortest + some % 4;
                self.length(length as usize, false);
                for _ in 0..length {
                    self.value(element, 0);
                }
            }
        }
    }

    fn length(&mut self, length: usize, is_string: bool) {
        match (self.flexible(), is_string) {
            (true, _) => self.uvarint(length as u32 + 1),
            (false, true) => self.out.extend((length as i16).to_be_bytes()),
            (false, false) => self.out.extend((length as i32).to_be_bytes()),
        }
    }

    fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

/// The debug text of a decoded message, the bytes that it encodes to, and how many were read.
pub type Turned = (String, Vec<u8>, usize);

/// A message type of the crate, behind functions, so that tests can go over all of them.
#[derive(Clone, Copy)]
pub struct Codec {
    pub name: &'static str,
    /// Decodes, and if that works encodes again.
    pub turn_round: fn(&[u8], i16) -> Option<Turned>,
    /// Only decodes, and says whether that worked.
    pub decodes: fn(&[u8], i16) -> bool,
}

macro_rules! codec {
    ($message:ident) => {
        $crate::support::Codec {
            name: stringify!($message),
            turn_round: |bytes, version| {
                use taffrail_protocol::Message as _;
                let mut r = taffrail_protocol::Reader::new(bytes);
                let message =
                    taffrail_protocol::messages::$message::decode(&mut r, version).ok()?;
                let text = format!("{message:?}");
                let message = $crate::support::inline::$message(message, bytes);
                let mut w = taffrail_protocol::Writer::new();
                message
                    .encode(&mut w, version)
                    .expect("what was decoded encodes");
                Some((text, w.buf, r.position()))
            },
            decodes: |bytes, version| {
                use taffrail_protocol::Message as _;
                let mut r = taffrail_protocol::Reader::new(bytes);
                taffrail_protocol::messages::$message::decode(&mut r, version).is_ok()
            },
        }
    };
}

macro_rules! all_codecs {
    ($($message:ident)*) => {
        /// All top-level messages.
        pub fn codecs() -> Vec<Codec> {
            vec![$(codec!($message)),*]
        }

        /// Gives decoded records their bytes, so that the message can be encoded again.
        #[allow(non_snake_case)]
        pub mod inline {
            $(inline!($message);)*
        }
    };
}

macro_rules! inline {
    (ProduceRequest) => {
        pub fn ProduceRequest(
            mut message: taffrail_protocol::messages::ProduceRequest,
            frame: &[u8],
        ) -> taffrail_protocol::messages::ProduceRequest {
            for partition in message
                .topic_data
                .iter_mut()
                .flat_map(|topic| &mut topic.partition_data)
            {
                partition.records = partition.records.to_inline(frame);
            }
            message
        }
    };
    (FetchResponse) => {
        pub fn FetchResponse(
            mut message: taffrail_protocol::messages::FetchResponse,
            frame: &[u8],
        ) -> taffrail_protocol::messages::FetchResponse {
            for partition in message
                .responses
                .iter_mut()
                .flat_map(|topic| &mut topic.partitions)
            {
                partition.records = partition.records.to_inline(frame);
            }
            message
        }
    };
    ($message:ident) => {
        pub fn $message<T>(message: T, _frame: &[u8]) -> T {
            message
        }
    };
}

all_codecs! {
    AddRaftVoterRequest AddRaftVoterResponse AllocateProducerIdsRequest AllocateProducerIdsResponse
    AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse AlterPartitionReassignmentsRequest
    AlterPartitionReassignmentsResponse AlterPartitionsRequest AlterPartitionsResponse ApiVersionsRequest
    ApiVersionsResponse BrokerHeartbeatRequest BrokerHeartbeatResponse ConsumerProtocolAssignment
    ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse
    ConsumerProtocolSubscription CreatePartitionsRequest CreatePartitionsResponse CreateTopicsRequest
    CreateTopicsResponse DeleteGroupsRequest DeleteGroupsResponse DeleteRecordsRequest DeleteRecordsResponse
    DeleteTopicsRequest DeleteTopicsResponse DescribeClusterRequest DescribeClusterResponse
    DescribeConfigsRequest DescribeConfigsResponse DescribeGroupsRequest DescribeGroupsResponse
    DescribeLogDirsRequest DescribeLogDirsResponse DescribeQuorumRequest DescribeQuorumResponse
    DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse ElectLeadersRequest ElectLeadersResponse
    FetchMetadataRequest FetchMetadataResponse FetchRequest FetchResponse FindCoordinatorRequest
    FindCoordinatorResponse ForwardRequest ForwardResponse HeartbeatRequest HeartbeatResponse
    IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse InitProducerIdRequest InitProducerIdResponse
    JoinGroupRequest JoinGroupResponse LeaveGroupRequest LeaveGroupResponse ListGroupsRequest ListGroupsResponse
    ListOffsetsRequest ListOffsetsResponse
    ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse LookForBrokerRequest LookForBrokerResponse
    MetadataRequest MetadataResponse
    OffsetCommitRequest OffsetCommitResponse OffsetDeleteRequest OffsetDeleteResponse OffsetFetchRequest OffsetFetchResponse OffsetForLeaderEpochRequest
    OffsetForLeaderEpochResponse PeerHelloRequest PeerHelloResponse ProduceRequest ProduceResponse
    RaftMessagesRequest RaftMessagesResponse RegisterBrokerRequest RegisterBrokerResponse RemoveRaftVoterRequest
    RemoveRaftVoterResponse SetBrokerEndpointsRequest
    SetBrokerEndpointsResponse SyncGroupRequest SyncGroupResponse VoterStateRequest VoterStateResponse
    AddOffsetsToTxnRequest AddOffsetsToTxnResponse AddPartitionsToTxnRequest AddPartitionsToTxnResponse
    DescribeProducersRequest DescribeProducersResponse DescribeTransactionsRequest DescribeTransactionsResponse
    EndTxnRequest EndTxnResponse ListTransactionsRequest ListTransactionsResponse TxnOffsetCommitRequest
    TxnOffsetCommitResponse WriteTxnMarkersRequest WriteTxnMarkersResponse TransactionLogKey TransactionLogValue
    GroupMetadataKey GroupMetadataValue OffsetCommitKey OffsetCommitValue
    RegisterBrokerRecord UnregisterBrokerRecord BrokerStateRecord BrokerEndpointsRecord TopicRecord RemoveTopicRecord
    PartitionRecord ConfigRecord ProducerIdsRecord ClusterIdRecord VoterRecord RemoveVoterRecord
    InviteVoterRecord VoterLogRecord NoOpRecord
}
