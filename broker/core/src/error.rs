//! Refusals in Kafka's terms. The cores say which error and why; the node maps kinds to codes in one `match`.

use std::fmt;

/// What a request was refused for, named as Kafka names its error codes (`org.apache.kafka.common.protocol.Errors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The names are Kafka's and documented there.
pub enum ErrorKind {
    UnknownServerError,
    OffsetOutOfRange,
    CorruptMessage,
    UnknownTopicOrPartition,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    BrokerNotAvailable,
    ReplicaNotAvailable,
    MessageTooLarge,
    OffsetMetadataTooLarge,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    InvalidTopicException,
    RecordListTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    InvalidRequiredAcks,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    UnknownMemberId,
    InvalidSessionTimeout,
    RebalanceInProgress,
    InvalidCommitOffsetSize,
    TopicAuthorizationFailed,
    GroupAuthorizationFailed,
    ClusterAuthorizationFailed,
    InvalidTimestamp,
    UnsupportedVersion,
    TopicAlreadyExists,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidReplicaAssignment,
    InvalidConfig,
    NotController,
    InvalidRequest,
    UnsupportedForMessageFormat,
    PolicyViolation,
    OutOfOrderSequenceNumber,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidTxnState,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    ConcurrentTransactions,
    TransactionCoordinatorFenced,
    TransactionalIdAuthorizationFailed,
    OperationNotAttempted,
    KafkaStorageError,
    LogDirNotFound,
    UnknownProducerId,
    ReassignmentInProgress,
    NonEmptyGroup,
    GroupIdNotFound,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    TopicDeletionDisabled,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    UnsupportedCompressionType,
    StaleBrokerEpoch,
    OffsetNotAvailable,
    MemberIdRequired,
    PreferredLeaderNotAvailable,
    GroupMaxSizeReached,
    FencedInstanceId,
    EligibleLeadersNotAvailable,
    ElectionNotNeeded,
    NoReassignmentInProgress,
    GroupSubscribedToTopic,
    InvalidRecord,
    UnstableOffsetCommit,
    ThrottlingQuotaExceeded,
    ProducerFenced,
    InvalidUpdateVersion,
    BrokerIdNotRegistered,
    UnknownTopicId,
    DuplicateBrokerRegistration,
    InconsistentTopicId,
    InconsistentClusterId,
    FetchSessionTopicIdError,
    IneligibleReplica,
    NewLeaderElected,
    FencedMemberEpoch,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    TransactionalIdNotFound,
    StaleMemberEpoch,
    MismatchedEndpointType,
    TransactionAbortable,
    InvalidVoterKey,
    DuplicateVoter,
    VoterNotFound,
}

/// A refusal: the kind that becomes a Kafka error code, and a sentence for the person who reads the client's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ApiError {
    /// Which error.
    pub kind: ErrorKind,
    /// What exactly was refused and what to do; `None` where Kafka's own text for the code says it all.
    pub message: Option<String>,
}

impl ApiError {
    /// A refusal with a message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Some(message.into()),
        }
    }
}

impl From<ErrorKind> for ApiError {
    fn from(kind: ErrorKind) -> Self {
        Self {
            kind,
            message: None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{:?}: {message}", self.kind),
            None => write!(f, "{:?}", self.kind),
        }
    }
}
