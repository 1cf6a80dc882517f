//! Our values survive the way through the `raft` crate's.

use proptest::prelude::*;

use crate::ids::BrokerId;
use crate::raft::convert;
use crate::raft::{Entry, EntryType, HardState, Message, MessageType, Snapshot};

fn any_message() -> impl Strategy<Value = Message> {
    let ids = (0..i32::MAX, 0..i32::MAX);
    let numbers = (1..u64::MAX, any::<[u64; 5]>(), any::<bool>(), any::<i64>());
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    (1_i8..=10, ids, numbers, bytes, 0_u64..4).prop_map(
        |(kind, (from, to), numbers, bytes, entries)| {
            let (term, [index, log_term, commit, commit_term, reject_hint], reject, priority) =
                numbers;
            let message_type = MessageType::try_from(kind).unwrap();
            let mut message = Message::new(message_type, BrokerId(from), BrokerId(to));
            message.term = term;
            message.index = index >> 1;
            message.log_term = log_term.min(term);
            (message.commit, message.commit_term, message.reject_hint) =
                (commit, commit_term, reject_hint);
            (message.reject, message.priority) = (reject, priority);
            message.context.clone_from(&bytes);
            if message_type == MessageType::Append {
                let indexes = message.index + 1..=message.index + entries;
                let entry = |index| Entry {
                    entry_type: EntryType::Normal,
                    term,
                    index,
                    data: bytes.clone(),
                    context: bytes.clone(),
                };
                message.entries = indexes.map(entry).collect();
            }
            if message_type == MessageType::Snapshot {
                message.snapshot = Some(Snapshot {
                    index: index.max(1),
                    term,
                    voters: vec![BrokerId(0), BrokerId(1)],
                    learners: vec![BrokerId(2)],
                    data: bytes,
                });
            }
            message
        },
    )
}

proptest! {
    #[test]
    fn messages_survive(message in any_message()) {
        let converted = convert::message_to_raft(message.clone()).unwrap();
        prop_assert_eq!(convert::message_from_raft(&converted), Some(message));
    }

    #[test]
    fn hard_states_survive(term: u64, vote in prop::option::of(0..i32::MAX), commit: u64) {
        let state = HardState { term, vote: vote.map(BrokerId), commit };
        let converted = convert::hard_state_to_raft(&state);
        prop_assert_eq!(convert::hard_state_from_raft(&converted), state);
    }
}
