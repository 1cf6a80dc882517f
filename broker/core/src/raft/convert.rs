//! Conversion between our values and those of the `raft` crate, with every check that keeps its assertions true.
//!
//! The crate reserves id 0 for "nobody", so a voter's id there is its broker id plus one.

use raft::eraftpb;

use super::types::{
    Entry, EntryType, HardState, MembershipChange, Message, MessageType, RaftError, Snapshot,
};
use crate::ids::BrokerId;

pub(super) fn id_to_raft(id: BrokerId) -> u64 {
    debug_assert!(id.0 >= 0, "broker ids are not negative");
    u64::from(id.0.unsigned_abs()) + 1
}

/// `None` for "nobody".
pub(super) fn id_from_raft(id: u64) -> Option<BrokerId> {
    let id = i32::try_from(id.checked_sub(1)?).ok()?;
    Some(BrokerId(id))
}

pub(super) fn hard_state_to_raft(state: &HardState) -> eraftpb::HardState {
    eraftpb::HardState {
        term: state.term,
        vote: state.vote.map_or(0, id_to_raft),
        commit: state.commit,
        ..eraftpb::HardState::default()
    }
}

pub(super) fn hard_state_from_raft(state: &eraftpb::HardState) -> HardState {
    HardState {
        term: state.term,
        vote: id_from_raft(state.vote),
        commit: state.commit,
    }
}

/// The crate reads the data of a membership change as its own message, but only when one is proposed. So such an entry has
/// change and records in its context, and what the crate wants to see stays with the leader.
pub(super) fn entry_to_raft(entry: Entry) -> eraftpb::Entry {
    let (entry_type, data, context) = match entry.entry_type {
        EntryType::Normal => (eraftpb::EntryType::EntryNormal, entry.data, entry.context),
        EntryType::Membership => (
            eraftpb::EntryType::EntryConfChange,
            Vec::new(),
            [entry.context, entry.data].concat(),
        ),
    };
    eraftpb::Entry {
        entry_type,
        term: entry.term,
        index: entry.index,
        data: data.into(),
        context: context.into(),
        ..eraftpb::Entry::default()
    }
}

pub(super) fn entry_from_raft(entry: &eraftpb::Entry) -> Entry {
    let (entry_type, data, context) = match membership_change(entry) {
        None => (EntryType::Normal, &entry.data[..], &entry.context[..]),
        Some(_) => {
            let (change, records) = entry.context.split_at(MembershipChange::SIZE);
            (EntryType::Membership, records, change)
        }
    };
    Entry {
        entry_type,
        term: entry.term,
        index: entry.index,
        data: data.to_vec(),
        context: context.to_vec(),
    }
}

/// What an entry changes of the members, if that is what it is for.
pub(super) fn membership_change(entry: &eraftpb::Entry) -> Option<MembershipChange> {
    match entry.entry_type {
        eraftpb::EntryType::EntryNormal => None,
        // Only this module's proposals become entries; those of a peer or a disk passed `check_entry`.
        eraftpb::EntryType::EntryConfChange | eraftpb::EntryType::EntryConfChangeV2 => {
            let change = entry.context.get(..MembershipChange::SIZE);
            let change = change.and_then(MembershipChange::from_bytes);
            Some(change.expect("a membership entry says what it changes"))
        }
    }
}

pub(super) fn change_to_raft(change: MembershipChange) -> eraftpb::ConfChange {
    let change_type = match change {
        MembershipChange::AddLearner(_) => eraftpb::ConfChangeType::AddLearnerNode,
        MembershipChange::AddVoter(_) => eraftpb::ConfChangeType::AddNode,
        MembershipChange::Remove(_) => eraftpb::ConfChangeType::RemoveNode,
    };
    let mut converted = eraftpb::ConfChange::default();
    converted.set_change_type(change_type);
    converted.node_id = id_to_raft(change.member());
    converted
}

/// Refuses an entry that does not say what it changes.
pub(super) fn check_entry(entry: &Entry) -> Result<(), &'static str> {
    let is_change = entry.entry_type == EntryType::Membership;
    if is_change && MembershipChange::from_bytes(&entry.context).is_none() {
        return Err("a membership entry does not say what it changes");
    }
    Ok(())
}

pub(super) fn snapshot_to_raft(snapshot: Snapshot) -> eraftpb::Snapshot {
    let mut converted = eraftpb::Snapshot::default();
    let metadata = converted.mut_metadata();
    metadata.index = snapshot.index;
    metadata.term = snapshot.term;
    let voters = snapshot.voters.into_iter().map(id_to_raft);
    let learners = snapshot.learners.into_iter().map(id_to_raft);
    metadata.set_conf_state(eraftpb::ConfState::from((voters, learners)));
    converted.data = snapshot.data.into();
    converted
}

pub(super) fn snapshot_from_raft(snapshot: &eraftpb::Snapshot) -> Snapshot {
    let metadata = snapshot.get_metadata();
    let ids = |ids: &[u64]| ids.iter().copied().filter_map(id_from_raft).collect();
    Snapshot {
        index: metadata.index,
        term: metadata.term,
        voters: ids(metadata.get_conf_state().get_voters()),
        learners: ids(metadata.get_conf_state().get_learners()),
        data: snapshot.data.to_vec(),
    }
}

pub(super) fn message_to_raft(message: Message) -> Result<eraftpb::Message, RaftError> {
    check(&message)?;
    let mut converted = eraftpb::Message::default();
    converted.set_msg_type(match message.message_type {
        MessageType::Append => eraftpb::MessageType::MsgAppend,
        MessageType::AppendResponse => eraftpb::MessageType::MsgAppendResponse,
        MessageType::RequestVote => eraftpb::MessageType::MsgRequestVote,
        MessageType::RequestVoteResponse => eraftpb::MessageType::MsgRequestVoteResponse,
        MessageType::Snapshot => eraftpb::MessageType::MsgSnapshot,
        MessageType::Heartbeat => eraftpb::MessageType::MsgHeartbeat,
        MessageType::HeartbeatResponse => eraftpb::MessageType::MsgHeartbeatResponse,
        MessageType::TimeoutNow => eraftpb::MessageType::MsgTimeoutNow,
        MessageType::RequestPreVote => eraftpb::MessageType::MsgRequestPreVote,
        MessageType::RequestPreVoteResponse => eraftpb::MessageType::MsgRequestPreVoteResponse,
    });
    converted.to = id_to_raft(message.to);
    converted.from = id_to_raft(message.from);
    converted.term = message.term;
    converted.log_term = message.log_term;
    converted.index = message.index;
    converted.commit = message.commit;
    converted.commit_term = message.commit_term;
    converted.reject = message.reject;
    converted.reject_hint = message.reject_hint;
    converted.request_snapshot = message.request_snapshot;
    converted.priority = message.priority;
    converted.context = message.context.into();
    let entries: Vec<_> = message.entries.into_iter().map(entry_to_raft).collect();
    converted.set_entries(entries.into());
    if let Some(snapshot) = message.snapshot {
        converted.set_snapshot(snapshot_to_raft(snapshot));
    }
    Ok(converted)
}

/// `None` for the crate's local messages, which never travel.
pub(super) fn message_from_raft(message: &eraftpb::Message) -> Option<Message> {
    let message_type = match message.get_msg_type() {
        eraftpb::MessageType::MsgAppend => MessageType::Append,
        eraftpb::MessageType::MsgAppendResponse => MessageType::AppendResponse,
        eraftpb::MessageType::MsgRequestVote => MessageType::RequestVote,
        eraftpb::MessageType::MsgRequestVoteResponse => MessageType::RequestVoteResponse,
        eraftpb::MessageType::MsgSnapshot => MessageType::Snapshot,
        eraftpb::MessageType::MsgHeartbeat => MessageType::Heartbeat,
        eraftpb::MessageType::MsgHeartbeatResponse => MessageType::HeartbeatResponse,
        eraftpb::MessageType::MsgTimeoutNow => MessageType::TimeoutNow,
        eraftpb::MessageType::MsgRequestPreVote => MessageType::RequestPreVote,
        eraftpb::MessageType::MsgRequestPreVoteResponse => MessageType::RequestPreVoteResponse,
        _ => return None,
    };
    let mut converted = Message::new(
        message_type,
        id_from_raft(message.from)?,
        id_from_raft(message.to)?,
    );
    converted.term = message.term;
    converted.log_term = message.log_term;
    converted.index = message.index;
    converted.commit = message.commit;
    converted.commit_term = message.commit_term;
    converted.reject = message.reject;
    converted.reject_hint = message.reject_hint;
    converted.request_snapshot = message.request_snapshot;
    converted.priority = message.priority;
    converted.context = message.context.to_vec();
    converted.entries = message.entries.iter().map(entry_from_raft).collect();
    if message_type == MessageType::Snapshot {
        converted.snapshot = Some(snapshot_from_raft(message.get_snapshot()));
    }
    Some(converted)
}

/// Refuses what no correct peer sends and what the crate would take for a local message or a broken log.
fn check(message: &Message) -> Result<(), RaftError> {
    // The crate takes a message of term 0 for one of its own.
    if message.term == 0 {
        return Err(RaftError::Malformed("term is zero"));
    }
    let may_carry_entries = message.message_type == MessageType::Append;
    if !may_carry_entries && !message.entries.is_empty() {
        return Err(RaftError::Malformed("only Append carries entries"));
    }
    let (mut index, mut term) = (message.index, message.log_term);
    for entry in &message.entries {
        if Some(entry.index) != index.checked_add(1) {
            return Err(RaftError::Malformed("entries do not follow each other"));
        }
        if entry.term < term || entry.term > message.term {
            return Err(RaftError::Malformed(
                "terms of entries do not follow each other",
            ));
        }
        check_entry(entry).map_err(RaftError::Malformed)?;
        (index, term) = (entry.index, entry.term);
    }
    match (&message.snapshot, message.message_type) {
        (Some(snapshot), MessageType::Snapshot) => check_snapshot(snapshot),
        (None, MessageType::Snapshot) => Err(RaftError::Malformed("snapshot is missing")),
        (Some(_), _) => Err(RaftError::Malformed("only Snapshot carries a snapshot")),
        (None, _) => Ok(()),
    }
}

pub(super) fn check_snapshot(snapshot: &Snapshot) -> Result<(), RaftError> {
    if snapshot.index == 0 || snapshot.term == 0 {
        return Err(RaftError::Malformed("snapshot has no index or term"));
    }
    if snapshot.voters.is_empty() {
        return Err(RaftError::Malformed("snapshot has no voters"));
    }
    let mut members: Vec<_> = [&snapshot.voters[..], &snapshot.learners[..]].concat();
    members.sort_unstable();
    if members.first().is_some_and(|id| id.0 < 0) {
        return Err(RaftError::Malformed("snapshot has a negative voter id"));
    }
    if members.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(RaftError::Malformed("snapshot names a voter twice"));
    }
    Ok(())
}
