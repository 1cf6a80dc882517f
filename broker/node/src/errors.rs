//! From what the cores and the cluster refuse to Kafka's error codes. One match each, nowhere else.

use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_protocol::error_code::ErrorCode;

/// Hands the names that kinds and codes share to a macro that spells a match over them.
macro_rules! shared_names {
    ($spell:ident) => {
        $spell! {
        UnknownServerError OffsetOutOfRange CorruptMessage UnknownTopicOrPartition LeaderNotAvailable
        NotLeaderOrFollower RequestTimedOut BrokerNotAvailable ReplicaNotAvailable MessageTooLarge
        OffsetMetadataTooLarge CoordinatorLoadInProgress CoordinatorNotAvailable NotCoordinator InvalidTopicException
        RecordListTooLarge NotEnoughReplicas NotEnoughReplicasAfterAppend InvalidRequiredAcks IllegalGeneration
        InconsistentGroupProtocol InvalidGroupId UnknownMemberId InvalidSessionTimeout RebalanceInProgress
        InvalidCommitOffsetSize TopicAuthorizationFailed GroupAuthorizationFailed ClusterAuthorizationFailed
        InvalidTimestamp UnsupportedVersion TopicAlreadyExists InvalidPartitions InvalidReplicationFactor
        InvalidReplicaAssignment InvalidConfig NotController InvalidRequest UnsupportedForMessageFormat PolicyViolation
        OutOfOrderSequenceNumber DuplicateSequenceNumber InvalidProducerEpoch InvalidTxnState InvalidProducerIdMapping
        InvalidTransactionTimeout ConcurrentTransactions TransactionCoordinatorFenced
        TransactionalIdAuthorizationFailed TransactionalIdNotFound TransactionAbortable OperationNotAttempted KafkaStorageError LogDirNotFound
        UnknownProducerId ReassignmentInProgress NonEmptyGroup GroupIdNotFound FetchSessionIdNotFound
        InvalidFetchSessionEpoch TopicDeletionDisabled FencedLeaderEpoch UnknownLeaderEpoch UnsupportedCompressionType
        StaleBrokerEpoch OffsetNotAvailable MemberIdRequired PreferredLeaderNotAvailable GroupMaxSizeReached
        FencedInstanceId EligibleLeadersNotAvailable ElectionNotNeeded NoReassignmentInProgress GroupSubscribedToTopic
        InvalidRecord UnstableOffsetCommit ThrottlingQuotaExceeded ProducerFenced InvalidUpdateVersion
        BrokerIdNotRegistered UnknownTopicId DuplicateBrokerRegistration InconsistentTopicId InconsistentClusterId
        FetchSessionTopicIdError IneligibleReplica NewLeaderElected FencedMemberEpoch UnreleasedInstanceId
        UnsupportedAssignor StaleMemberEpoch MismatchedEndpointType InvalidVoterKey DuplicateVoter VoterNotFound
        }
    };
}

/// The error code of a kind.
pub(crate) fn code_of(kind: ErrorKind) -> ErrorCode {
    macro_rules! codes {
        ($($name:ident)*) => {
            match kind {
                $(ErrorKind::$name => ErrorCode::$name,)*
            }
        };
    }
    shared_names!(codes)
}

/// The number that a response carries for a refusal, or for none.
pub(crate) fn optional_code(error: Option<ErrorKind>) -> i16 {
    error.map_or(ErrorCode::None, code_of).code()
}

/// The kind of a code that another broker sent; one that the cores do not know is UNKNOWN_SERVER_ERROR to them.
pub(crate) fn kind_of(code: ErrorCode) -> ErrorKind {
    macro_rules! kinds {
        ($($name:ident)*) => {
            match code {
                $(ErrorCode::$name => ErrorKind::$name,)*
                _ => ErrorKind::UnknownServerError,
            }
        };
    }
    shared_names!(kinds)
}

/// The code and message that a response carries for a refusal.
pub(crate) fn code_and_message(error: ApiError) -> (i16, Option<String>) {
    (code_of(error.kind).code(), error.message)
}
