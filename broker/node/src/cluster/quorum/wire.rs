//! Raft's messages to and from their wire form. What a peer sends is checked here, so that the core sees sane values.

use taffrail_core::ids::BrokerId;
use taffrail_core::raft::{Entry, EntryType, Message, MessageType, RaftError, Snapshot};
use taffrail_protocol::messages::raft_messages_request::{RaftEntry, RaftMessage, RaftSnapshot};

/// For the wire.
pub(super) fn from_core(message: Message) -> RaftMessage {
    RaftMessage {
        message_type: message.message_type as i8,
        to: message.to.0.into(),
        from: message.from.0.into(),
        term: signed(message.term),
        log_term: signed(message.log_term),
        index: signed(message.index),
        commit: signed(message.commit),
        commit_term: signed(message.commit_term),
        reject: message.reject,
        reject_hint: signed(message.reject_hint),
        request_snapshot: signed(message.request_snapshot),
        priority: message.priority,
        context: message.context,
        entries: message.entries.into_iter().map(entry_from_core).collect(),
        snapshot: message.snapshot.map(snapshot_from_core),
    }
}

fn entry_from_core(entry: Entry) -> RaftEntry {
    RaftEntry {
        entry_type: entry.entry_type as i8,
        term: signed(entry.term),
        index: signed(entry.index),
        data: entry.data,
        context: entry.context,
    }
}

fn snapshot_from_core(snapshot: Snapshot) -> RaftSnapshot {
    let ids = |ids: Vec<BrokerId>| ids.into_iter().map(|id| i64::from(id.0)).collect();
    RaftSnapshot {
        index: signed(snapshot.index),
        term: signed(snapshot.term),
        voters: ids(snapshot.voters),
        learners: ids(snapshot.learners),
        data: snapshot.data,
    }
}

/// From the wire.
pub(in crate::cluster) fn to_core(message: RaftMessage) -> Result<Message, RaftError> {
    let message_type = MessageType::try_from(message.message_type)?;
    Ok(Message {
        message_type,
        to: broker(message.to)?,
        from: broker(message.from)?,
        term: term(message.term)?,
        log_term: term(message.log_term)?,
        index: unsigned(message.index)?,
        commit: unsigned(message.commit)?,
        commit_term: term(message.commit_term)?,
        reject: message.reject,
        reject_hint: unsigned(message.reject_hint)?,
        request_snapshot: unsigned(message.request_snapshot)?,
        priority: message.priority,
        context: message.context,
        entries: message
            .entries
            .into_iter()
            .map(entry_to_core)
            .collect::<Result<_, _>>()?,
        snapshot: message.snapshot.map(snapshot_to_core).transpose()?,
    })
}

fn entry_to_core(entry: RaftEntry) -> Result<Entry, RaftError> {
    Ok(Entry {
        entry_type: EntryType::try_from(entry.entry_type)?,
        term: term(entry.term)?,
        index: unsigned(entry.index)?,
        data: entry.data,
        context: entry.context,
    })
}

fn snapshot_to_core(snapshot: RaftSnapshot) -> Result<Snapshot, RaftError> {
    let brokers = |ids: Vec<i64>| ids.into_iter().map(broker).collect::<Result<Vec<_>, _>>();
    Ok(Snapshot {
        index: unsigned(snapshot.index)?,
        term: term(snapshot.term)?,
        voters: brokers(snapshot.voters)?,
        learners: brokers(snapshot.learners)?,
        data: snapshot.data,
    })
}

/// The largest term that is believed. A voter takes over whatever higher term it hears of, and counts on from there; near 2^63 the
/// next ones would all look the same on the wire, and nobody would be elected any more. No cluster counts half as far.
const TERM_MAX: i64 = 1 << 62;

/// Terms and indexes count up from zero; they do not reach 2^63.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> Result<u64, RaftError> {
    u64::try_from(value).map_err(|_| RaftError::Malformed("a term or an index is negative"))
}

fn term(value: i64) -> Result<u64, RaftError> {
    if value > TERM_MAX {
        return Err(RaftError::Malformed("a term is above 2^62"));
    }
    unsigned(value)
}

fn broker(id: i64) -> Result<BrokerId, RaftError> {
    match i32::try_from(id) {
        Ok(id) if id >= 0 => Ok(BrokerId(id)),
        Ok(_) | Err(_) => Err(RaftError::Malformed("a voter's id is no broker id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let entry = Entry {
            entry_type: EntryType::Normal,
            term: 3,
            index: 9,
            data: vec![1, 2],
            context: vec![3],
        };
        let voters = vec![BrokerId(0), BrokerId(1)];
        let snapshot = Snapshot {
            index: 8,
            term: 2,
            voters,
            learners: vec![BrokerId(4)],
            data: vec![5],
        };
        let mut message = Message::new(MessageType::Snapshot, BrokerId(0), BrokerId(1));
        message.term = 4;
        message.commit = 7;
        message.reject_hint = 6;
        message.entries = vec![entry];
        message.snapshot = Some(snapshot);
        assert_eq!(to_core(from_core(message.clone())), Ok(message));
    }

    #[test]
    fn the_largest_term_is_believed() {
        let mut message = Message::new(MessageType::Heartbeat, BrokerId(0), BrokerId(1));
        message.term = 1 << 62;
        assert_eq!(to_core(from_core(message.clone())), Ok(message));
    }

    #[test]
    fn senseless_values_are_refused() {
        let good = from_core(Message::new(
            MessageType::Heartbeat,
            BrokerId(0),
            BrokerId(1),
        ));
        let check = |change: fn(&mut RaftMessage)| {
            let mut message = good.clone();
            change(&mut message);
            assert!(to_core(message).is_err());
        };
        check(|message| message.message_type = 77);
        check(|message| message.from = -1);
        check(|message| message.to = 1 << 40);
        check(|message| message.term = -1);
        check(|message| message.index = i64::MIN);
        check(|message| message.term = i64::MAX);
        check(|message| message.log_term = TERM_MAX + 1);
        check(|message| message.commit_term = TERM_MAX + 1);
        check(|message| {
            message.entries.push(RaftEntry {
                term: TERM_MAX + 1,
                ..RaftEntry::default()
            })
        });
        check(|message| {
            message.snapshot = Some(RaftSnapshot {
                term: TERM_MAX + 1,
                ..RaftSnapshot::default()
            })
        });
        check(|message| {
            message.entries.push(RaftEntry {
                entry_type: 9,
                ..RaftEntry::default()
            })
        });
        check(|message| {
            message.snapshot = Some(RaftSnapshot {
                voters: vec![-2],
                ..RaftSnapshot::default()
            })
        });
    }
}
