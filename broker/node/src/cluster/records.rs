//! Metadata records to and from their bytes: joins the core's values with the protocol's formats.

use taffrail_core::ids::{
    BrokerEpoch, BrokerId, DirectoryId, Incarnation, LeaderEpoch, PartitionEpoch, TopicId,
};
use taffrail_core::metadata::{ConfigResource, Contradiction, Image, Listener, Partition, Record};
use taffrail_protocol::messages::{
    BrokerEndpointsRecord, BrokerStateRecord, ClusterIdRecord, ConfigRecord, InviteVoterRecord,
    NoOpRecord, PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RemoveTopicRecord,
    RemoveVoterRecord, TopicRecord, UnregisterBrokerRecord, VoterLogRecord, VoterRecord,
    broker_endpoints_record, register_broker_record,
};
use taffrail_protocol::metadata_records::{self, MetadataRecord};
use taffrail_protocol::{DecodeError, EncodeError, Uuid};
use thiserror::Error;

/// Kafka's `ConfigResource.Type`, as in the records of its own metadata log.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Bytes that are no metadata records, or records that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    Bytes(#[from] DecodeError),
    #[error("a record names a resource of type {0}, \"{1}\"")]
    Resource(i8, String),
    #[error("a record has port {0}")]
    Port(i32),
    #[error("a record contradicts those before it: {0}")]
    Contradiction(#[from] Contradiction),
}

/// The bytes of the records of one decision, or of a snapshot.
pub(super) fn encode(records: &[Record]) -> Result<Vec<u8>, EncodeError> {
    let records: Vec<MetadataRecord> = records.iter().map(to_protocol).collect();
    metadata_records::encode_all(&records)
}

/// What was encoded; nothing for no bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Record>, RecordError> {
    metadata_records::decode_all(bytes)?
        .into_iter()
        .map(to_core)
        .collect()
}

/// The image that the records of a snapshot build.
pub(super) fn replay(snapshot: &[u8]) -> Result<Image, RecordError> {
    Ok(Image::replay(&decode(snapshot)?)?)
}

fn to_protocol(record: &Record) -> MetadataRecord {
    match record {
        Record::ClusterId { cluster_id } => MetadataRecord::ClusterId(ClusterIdRecord {
            cluster_id: cluster_id.clone(),
        }),
        Record::RegisterBroker {
            broker,
            epoch,
            incarnation,
            directories,
            listeners,
            rack,
            fenced,
        } => MetadataRecord::RegisterBroker(RegisterBrokerRecord {
            broker_id: broker.0,
            broker_epoch: epoch.0,
            incarnation: Uuid(incarnation.0),
            log_directories: directories
                .iter()
                .map(|directory| Uuid(directory.0))
                .collect(),
            listeners: listeners
                .iter()
                .map(|listener| register_broker_record::Listener {
                    name: listener.name.clone(),
                    host: listener.host.clone(),
                    port: listener.port.into(),
                })
                .collect(),
            rack: rack.clone(),
            fenced: *fenced,
        }),
        Record::UnregisterBroker { broker } => {
            MetadataRecord::UnregisterBroker(UnregisterBrokerRecord {
                broker_id: broker.0,
            })
        }
        Record::BrokerState {
            broker,
            epoch,
            fenced,
            in_controlled_shutdown,
        } => MetadataRecord::BrokerState(BrokerStateRecord {
            broker_id: broker.0,
            broker_epoch: epoch.0,
            fenced: *fenced,
            in_controlled_shutdown: *in_controlled_shutdown,
        }),
        Record::BrokerEndpoints {
            broker,
            rack,
            listeners,
        } => MetadataRecord::BrokerEndpoints(BrokerEndpointsRecord {
            broker_id: broker.0,
            rack: rack.clone(),
            listeners: listeners
                .iter()
                .map(|listener| broker_endpoints_record::Listener {
                    name: listener.name.clone(),
                    host: listener.host.clone(),
                    port: listener.port.into(),
                })
                .collect(),
        }),
        Record::Topic { topic_id, name } => MetadataRecord::Topic(TopicRecord {
            topic_id: Uuid(topic_id.0),
            name: name.clone(),
        }),
        Record::RemoveTopic { topic_id } => MetadataRecord::RemoveTopic(RemoveTopicRecord {
            topic_id: Uuid(topic_id.0),
        }),
        Record::Partition {
            topic_id,
            partition,
            state,
        } => MetadataRecord::Partition(partition_to_protocol(*topic_id, *partition, state)),
        Record::Config {
            resource,
            name,
            value,
        } => {
            let (resource_type, resource_name) = match resource {
                ConfigResource::Topic(topic) => (TOPIC, topic.clone()),
                ConfigResource::Broker(broker) => {
                    (BROKER, broker.map_or(String::new(), |id| id.to_string()))
                }
            };
            MetadataRecord::Config(ConfigRecord {
                resource_type,
                resource_name,
                name: name.clone(),
                value: value.clone(),
            })
        }
        Record::ProducerIds { next } => {
            MetadataRecord::ProducerIds(ProducerIdsRecord { next: *next })
        }
        Record::Voter {
            broker,
            directory,
            since,
        } => MetadataRecord::Voter(VoterRecord {
            broker_id: broker.0,
            directory_id: directory_to_wire(*directory),
            since: *since,
        }),
        Record::VoterLog { broker, end } => MetadataRecord::VoterLog(VoterLogRecord {
            broker_id: broker.0,
            log_end: *end,
        }),
        Record::RemoveVoter { broker, since } => MetadataRecord::RemoveVoter(RemoveVoterRecord {
            broker_id: broker.0,
            since: *since,
        }),
        Record::InviteVoter {
            broker,
            directory,
            since,
            removed,
        } => MetadataRecord::InviteVoter(InviteVoterRecord {
            broker_id: broker.0,
            directory_id: directory_to_wire(*directory),
            since: *since,
            removed: *removed,
        }),
        Record::NoOp => MetadataRecord::NoOp(NoOpRecord::default()),
    }
}

fn partition_to_protocol(topic_id: TopicId, partition: i32, state: &Partition) -> PartitionRecord {
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|broker| broker.0).collect();
    // With all of its fields, so that one that is added cannot be left unwritten.
    let Partition {
        replicas,
        isr,
        elr,
        last_known_leader,
        leader,
        recovering,
        leader_epoch,
        partition_epoch,
        adding,
        removing,
    } = state;
    PartitionRecord {
        topic_id: Uuid(topic_id.0),
        partition,
        replicas: ids(replicas),
        isr: ids(isr),
        elr: ids(elr),
        last_known_leader: last_known_leader.map_or(-1, |broker| broker.0),
        leader: leader.map_or(-1, |broker| broker.0),
        recovering: *recovering,
        leader_epoch: leader_epoch.0,
        partition_epoch: partition_epoch.0,
        adding: ids(adding),
        removing: ids(removing),
    }
}

fn to_core(record: MetadataRecord) -> Result<Record, RecordError> {
    Ok(match record {
        MetadataRecord::ClusterId(record) => Record::ClusterId {
            cluster_id: record.cluster_id,
        },
        MetadataRecord::RegisterBroker(record) => Record::RegisterBroker {
            broker: BrokerId(record.broker_id),
            epoch: BrokerEpoch(record.broker_epoch),
            incarnation: Incarnation(record.incarnation.0),
            directories: record
                .log_directories
                .into_iter()
                .map(|id| DirectoryId(id.0))
                .collect(),
            listeners: record
                .listeners
                .into_iter()
                .map(|listener| to_listener(listener.name, listener.host, listener.port))
                .collect::<Result<_, _>>()?,
            rack: record.rack,
            fenced: record.fenced,
        },
        MetadataRecord::UnregisterBroker(record) => Record::UnregisterBroker {
            broker: BrokerId(record.broker_id),
        },
        MetadataRecord::BrokerState(record) => Record::BrokerState {
            broker: BrokerId(record.broker_id),
            epoch: BrokerEpoch(record.broker_epoch),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
        },
        MetadataRecord::BrokerEndpoints(record) => Record::BrokerEndpoints {
            broker: BrokerId(record.broker_id),
            rack: record.rack,
            listeners: record
                .listeners
                .into_iter()
                .map(|listener| to_listener(listener.name, listener.host, listener.port))
                .collect::<Result<_, _>>()?,
        },
        MetadataRecord::Topic(record) => Record::Topic {
            topic_id: TopicId(record.topic_id.0),
            name: record.name,
        },
        MetadataRecord::RemoveTopic(record) => Record::RemoveTopic {
            topic_id: TopicId(record.topic_id.0),
        },
        MetadataRecord::Partition(record) => Record::Partition {
            topic_id: TopicId(record.topic_id.0),
            partition: record.partition,
            state: partition_to_core(record),
        },
        MetadataRecord::Config(record) => Record::Config {
            resource: to_resource(record.resource_type, record.resource_name)?,
            name: record.name,
            value: record.value,
        },
        MetadataRecord::ProducerIds(record) => Record::ProducerIds { next: record.next },
        MetadataRecord::Voter(record) => Record::Voter {
            broker: BrokerId(record.broker_id),
            directory: directory_from_wire(record.directory_id),
            since: record.since,
        },
        MetadataRecord::VoterLog(record) => Record::VoterLog {
            broker: BrokerId(record.broker_id),
            end: record.log_end,
        },
        MetadataRecord::RemoveVoter(record) => Record::RemoveVoter {
            broker: BrokerId(record.broker_id),
            since: record.since,
        },
        MetadataRecord::InviteVoter(record) => Record::InviteVoter {
            broker: BrokerId(record.broker_id),
            directory: directory_from_wire(record.directory_id),
            since: record.since,
            removed: record.removed,
        },
        MetadataRecord::NoOp(NoOpRecord {}) => Record::NoOp,
    })
}

/// A zero id stands for none.
pub(super) fn directory_to_wire(directory: Option<DirectoryId>) -> Uuid {
    directory.map_or_else(Uuid::default, |id| Uuid(id.0))
}

/// The other way.
pub(super) fn directory_from_wire(id: Uuid) -> Option<DirectoryId> {
    (id != Uuid::default()).then_some(DirectoryId(id.0))
}

fn partition_to_core(record: PartitionRecord) -> Partition {
    let brokers = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
    let optional = |id: i32| (id >= 0).then_some(BrokerId(id));
    Partition {
        replicas: brokers(record.replicas),
        isr: brokers(record.isr),
        elr: brokers(record.elr),
        last_known_leader: optional(record.last_known_leader),
        leader: optional(record.leader),
        recovering: record.recovering,
        leader_epoch: LeaderEpoch(record.leader_epoch),
        partition_epoch: PartitionEpoch(record.partition_epoch),
        adding: brokers(record.adding),
        removing: brokers(record.removing),
    }
}

fn to_listener(name: String, host: String, port: i32) -> Result<Listener, RecordError> {
    let port = u16::try_from(port).map_err(|_| RecordError::Port(port))?;
    Ok(Listener { name, host, port })
}

fn to_resource(resource_type: i8, name: String) -> Result<ConfigResource, RecordError> {
    match resource_type {
        TOPIC => Ok(ConfigResource::Topic(name)),
        BROKER if name.is_empty() => Ok(ConfigResource::Broker(None)),
        BROKER => match name.parse() {
            Ok(id) => Ok(ConfigResource::Broker(Some(BrokerId(id)))),
            Err(_) => Err(RecordError::Resource(resource_type, name)),
        },
        _ => Err(RecordError::Resource(resource_type, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let listener = Listener {
            name: "INTERNAL".into(),
            host: "localhost".into(),
            port: 9093,
        };
        let config = |resource, value: Option<&str>| Record::Config {
            resource,
            name: "retention.ms".into(),
            value: value.map(str::to_owned),
        };
        vec![
            Record::ClusterId {
                cluster_id: "demo".into(),
            },
            Record::RegisterBroker {
                broker: BrokerId(1),
                epoch: BrokerEpoch(7),
                incarnation: Incarnation([1; 16]),
                directories: vec![DirectoryId([2; 16])],
                listeners: vec![listener.clone()],
                rack: Some("a".into()),
                fenced: true,
            },
            Record::UnregisterBroker {
                broker: BrokerId(2),
            },
            Record::BrokerState {
                broker: BrokerId(1),
                epoch: BrokerEpoch(7),
                fenced: false,
                in_controlled_shutdown: true,
            },
            Record::BrokerEndpoints {
                broker: BrokerId(1),
                rack: None,
                listeners: vec![listener],
            },
            Record::Topic {
                topic_id: TopicId([3; 16]),
                name: "orders".into(),
            },
            Record::RemoveTopic {
                topic_id: TopicId([3; 16]),
            },
            Record::Partition {
                topic_id: TopicId([3; 16]),
                partition: 4,
                state: Partition {
                    replicas: vec![BrokerId(0), BrokerId(1), BrokerId(2)],
                    isr: vec![BrokerId(1)],
                    elr: vec![BrokerId(2)],
                    leader: Some(BrokerId(1)),
                    recovering: true,
                    leader_epoch: LeaderEpoch(5),
                    partition_epoch: PartitionEpoch(6),
                    adding: vec![BrokerId(0)],
                    removing: vec![BrokerId(2)],
                    last_known_leader: None,
                },
            },
            Record::Partition {
                topic_id: TopicId([3; 16]),
                partition: 5,
                state: Partition {
                    replicas: vec![BrokerId(0)],
                    last_known_leader: Some(BrokerId(0)),
                    ..Partition::default()
                },
            },
            config(ConfigResource::Topic("orders".into()), Some("1")),
            config(ConfigResource::Broker(None), None),
            config(ConfigResource::Broker(Some(BrokerId(3))), Some("2")),
            Record::ProducerIds { next: 1000 },
            Record::Voter {
                broker: BrokerId(1),
                directory: Some(DirectoryId([2; 16])),
                since: 9,
            },
            Record::Voter {
                broker: BrokerId(2),
                directory: None,
                since: 9,
            },
            Record::VoterLog {
                broker: BrokerId(1),
                end: 9,
            },
            Record::RemoveVoter {
                broker: BrokerId(2),
                since: 10,
            },
            Record::InviteVoter {
                broker: BrokerId(2),
                directory: Some(DirectoryId([3; 16])),
                since: 11,
                removed: 10,
            },
            Record::NoOp,
        ]
    }

    #[test]
    fn every_record_survives_its_bytes() {
        assert_eq!(decode(&encode(&samples()).unwrap()), Ok(samples()));
        assert_eq!(decode(&[]), Ok(vec![]));
    }

    #[test]
    fn senseless_values_are_refused() {
        let listener = register_broker_record::Listener {
            port: 70_000,
            ..Default::default()
        };
        let broker = RegisterBrokerRecord {
            listeners: vec![listener],
            ..Default::default()
        };
        let config = |resource_type, name: &str| {
            MetadataRecord::Config(ConfigRecord {
                resource_type,
                resource_name: name.into(),
                ..Default::default()
            })
        };
        for record in [
            MetadataRecord::RegisterBroker(broker),
            config(9, ""),
            config(BROKER, "x"),
        ] {
            assert!(decode(&metadata_records::encode_all(&[record]).unwrap()).is_err());
        }
    }
}
