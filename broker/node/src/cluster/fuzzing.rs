//! The decoders of the metadata's files and of Raft's messages, for the fuzz targets.

use taffrail_core::ids::BrokerId;
use taffrail_core::raft::{Entry, EntryType, HardState, Snapshot};
use taffrail_protocol::messages::RaftMessagesRequest;
use taffrail_protocol::{Message, Reader, Request};

use super::{metadata_log, quorum, records};

/// Bytes as a file of the metadata log, as a snapshot, as what an intact frame holds, and as records.
pub fn metadata_log(data: &[u8]) {
    metadata_log::try_bytes(data);
    if let Ok(decoded) = records::decode(data) {
        let encoded = records::encode(&decoded).expect("what decodes encodes");
        assert_eq!(records::decode(&encoded), Ok(decoded));
    }
}

/// A file, a snapshot and the inside of a frame.
pub fn metadata_log_seeds() -> Vec<Vec<u8>> {
    let entry = |index| Entry {
        entry_type: EntryType::Normal,
        term: 1,
        index,
        data: vec![7; 20],
        context: vec![1],
    };
    let hard_state = HardState {
        term: 1,
        vote: Some(BrokerId(0)),
        commit: 1,
    };
    let snapshot = Snapshot {
        index: 9,
        term: 3,
        voters: vec![BrokerId(0), BrokerId(1), BrokerId(2)],
        learners: vec![BrokerId(3)],
        data: vec![7; 20],
    };
    metadata_log::seeds(hard_state, &[entry(1), entry(2)], &snapshot)
}

/// The body of a request with Raft's messages.
pub fn raft_messages(data: &[u8]) {
    let version = RaftMessagesRequest::MAX_VERSION;
    let Ok(request) = RaftMessagesRequest::decode(&mut Reader::new(data), version) else {
        return;
    };
    for message in request.messages {
        // What is malformed is refused, whatever it is.
        let _ = quorum::wire::to_core(message);
    }
}
