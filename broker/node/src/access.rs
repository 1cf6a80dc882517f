//! Who may do what: every connection has a principal, every API declares the resource and operation it needs,
//! and one authorizer is asked. It allows everything today; the places are fixed so that it need not stay so.

use taffrail_protocol::api::ApiKey;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Kafka's principal type, `User` for all that exist so far.
    pub kind: &'static str,
    /// The name that authentication found.
    pub name: String,
}

impl Principal {
    /// The principal of a connection on which nobody authenticated (Kafka's `User:ANONYMOUS`).
    pub fn anonymous() -> Self {
        Self {
            kind: "User",
            name: "ANONYMOUS".into(),
        }
    }
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

/// What an operation is done to (Kafka's `ResourceType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The cluster as a whole.
    Cluster,
    /// The topics that the request names.
    Topic,
    /// The groups that the request names.
    Group,
    /// The transactional ids that the request names.
    TransactionalId,
    /// Nothing: anybody may ask, before authentication too.
    Nothing,
}

/// What is done (Kafka's `AclOperation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    ClusterAction,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
    Nothing,
}

/// What an API needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) resource: Resource,
    pub(crate) operation: Operation,
}

/// The access that each API needs (Kafka's protocol guide, "Operations and resources on protocols").
/// The match names every API on purpose: a new one does not compile until it has said what it needs.
pub(crate) fn access_of(api: ApiKey) -> Access {
    let (resource, operation) = match api {
        ApiKey::ApiVersions | ApiKey::Metadata | ApiKey::FindCoordinator => {
            (Resource::Nothing, Operation::Nothing)
        }
        ApiKey::Produce => (Resource::Topic, Operation::Write),
        ApiKey::Fetch => (Resource::Topic, Operation::Read),
        ApiKey::ListOffsets | ApiKey::OffsetForLeaderEpoch | ApiKey::DescribeTopicPartitions => {
            (Resource::Topic, Operation::Describe)
        }
        ApiKey::CreateTopics => (Resource::Topic, Operation::Create),
        ApiKey::DeleteTopics | ApiKey::DeleteRecords => (Resource::Topic, Operation::Delete),
        ApiKey::CreatePartitions => (Resource::Topic, Operation::Alter),
        ApiKey::DescribeConfigs => (Resource::Topic, Operation::DescribeConfigs),
        ApiKey::IncrementalAlterConfigs => (Resource::Topic, Operation::AlterConfigs),
        ApiKey::JoinGroup
        | ApiKey::SyncGroup
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::OffsetCommit => (Resource::Group, Operation::Read),
        ApiKey::OffsetFetch | ApiKey::DescribeGroups | ApiKey::ConsumerGroupDescribe => {
            (Resource::Group, Operation::Describe)
        }
        ApiKey::DeleteGroups | ApiKey::OffsetDelete => (Resource::Group, Operation::Delete),
        ApiKey::InitProducerId => (Resource::Cluster, Operation::IdempotentWrite),
        ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::EndTxn
        | ApiKey::TxnOffsetCommit => (Resource::TransactionalId, Operation::Write),
        ApiKey::DescribeTransactions | ApiKey::ListTransactions => {
            (Resource::TransactionalId, Operation::Describe)
        }
        ApiKey::DescribeProducers => (Resource::Topic, Operation::Read),
        ApiKey::DescribeCluster
        | ApiKey::DescribeLogDirs
        | ApiKey::DescribeQuorum
        | ApiKey::ListGroups
        | ApiKey::ListPartitionReassignments => (Resource::Cluster, Operation::Describe),
        ApiKey::ElectLeaders
        | ApiKey::AlterPartitionReassignments
        | ApiKey::AlterReplicaLogDirs
        | ApiKey::AddRaftVoter
        | ApiKey::RemoveRaftVoter => (Resource::Cluster, Operation::Alter),
        ApiKey::PeerHello
        | ApiKey::RaftMessages
        | ApiKey::RegisterBroker
        | ApiKey::BrokerHeartbeat
        | ApiKey::AlterPartitions
        | ApiKey::FetchMetadata
        | ApiKey::AllocateProducerIds
        | ApiKey::WriteTxnMarkers
        | ApiKey::SetBrokerEndpoints
        | ApiKey::Forward
        | ApiKey::LookForBroker
        | ApiKey::VoterState => (Resource::Cluster, Operation::ClusterAction),
    };
    Access {
        resource,
        operation,
    }
}

/// The one place that answers "may it?".
#[derive(Debug, Default)]
pub(crate) struct Authorizer;

impl Authorizer {
    /// Whether `principal` may do what `access` names to `name` (a topic or group; empty for the cluster).
    pub(crate) fn allows(&self, principal: &Principal, access: Access, name: &str) -> bool {
        tracing::trace!(%principal, ?access, name, "allowed: no authorizer is configured");
        true
    }
}
