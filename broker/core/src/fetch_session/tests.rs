use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::ids::{LeaderEpoch, TopicId};
use crate::time::Instant;

const NOW: Instant = Instant::from_millis(1_000_000);

fn key(partition: i32) -> PartitionKey {
    PartitionKey {
        topic: TopicKey::Id(TopicId([1; 16])),
        partition,
    }
}

fn position(fetch_offset: i64) -> Position {
    Position {
        fetch_offset,
        max_bytes: 1 << 20,
        current_leader_epoch: None,
        last_fetched_epoch: None,
        log_start_offset: -1,
    }
}

fn fetch(session_id: i32, session_epoch: i32, partitions: &[i32]) -> SessionFetch {
    SessionFetch {
        session_id,
        session_epoch,
        follower: false,
        topic_ids: true,
        partitions: partitions
            .iter()
            .map(|partition| (key(*partition), position(0)))
            .collect(),
        forgotten: Vec::new(),
    }
}

fn forget(session_id: i32, session_epoch: i32, partitions: &[i32]) -> SessionFetch {
    SessionFetch {
        forgotten: partitions.iter().copied().map(key).collect(),
        ..fetch(session_id, session_epoch, &[])
    }
}

fn answer(high_watermark: i64) -> Answer {
    Answer {
        has_records: false,
        high_watermark,
        log_start_offset: 0,
        has_preferred_read_replica: false,
        is_error_or_diverging: false,
    }
}

fn order(context: &FetchContext<()>) -> Vec<i32> {
    context
        .iter()
        .map(|(_, partition)| partition.key.partition)
        .collect()
}

/// A cache with one session of `partitions` that were all answered at high watermark 0.
fn cache_with(partitions: &[i32]) -> (Sessions<()>, i32) {
    let mut sessions = Sessions::new(Limits::default());
    let mut context = sessions.handle_fetch(NOW, fetch(0, 0, partitions)).unwrap();
    assert_eq!(context.kind(), FetchKind::Full);
    answer_all(&mut context, answer(0));
    let id = sessions.handle_answered(NOW, || 42, context);
    assert_eq!(id, 42);
    (sessions, id)
}

fn answer_all(context: &mut FetchContext<()>, answer: Answer) -> Vec<i32> {
    let mut included = Vec::new();
    let mut next = context.first();
    while let Some(slot) = next {
        next = context.after(slot);
        if context.include(slot, &answer) {
            included.push(context.get(slot).unwrap().key.partition);
        }
    }
    included
}

#[test]
fn sessions_are_found_by_id_epoch_and_naming() {
    let check = |request: SessionFetch, expected: Result<(FetchKind, Vec<i32>), ErrorKind>| {
        let (mut sessions, _) = cache_with(&[1, 2]);
        let found = sessions.handle_fetch(NOW, request.clone());
        let found = found.map(|context| (context.kind(), order(&context)));
        assert_eq!(found, expected, "{request:?}");
    };
    check(fetch(42, 1, &[]), Ok((FetchKind::Incremental, vec![1, 2])));
    check(
        fetch(42, 1, &[3]),
        Ok((FetchKind::Incremental, vec![1, 2, 3])),
    );
    check(forget(42, 1, &[1]), Ok((FetchKind::Incremental, vec![2])));
    check(forget(42, 1, &[1, 2]), Ok((FetchKind::Sessionless, vec![])));
    check(fetch(42, 0, &[3]), Ok((FetchKind::Full, vec![3])));
    check(fetch(42, -1, &[3]), Ok((FetchKind::Sessionless, vec![3])));
    check(fetch(0, -1, &[]), Ok((FetchKind::Sessionless, vec![])));
    check(fetch(43, 1, &[]), Err(ErrorKind::FetchSessionIdNotFound));
    check(fetch(0, 1, &[]), Err(ErrorKind::FetchSessionIdNotFound));
    check(fetch(42, 2, &[]), Err(ErrorKind::InvalidFetchSessionEpoch));
    let by_name = SessionFetch {
        topic_ids: false,
        ..fetch(42, 1, &[])
    };
    check(by_name, Err(ErrorKind::FetchSessionTopicIdError));
}

#[test]
fn a_fetch_was_made_after_the_answer_before_the_last_one() {
    let (mut sessions, id) = cache_with(&[1]);
    let at = |ms| Instant::from_millis(1_000_000 + ms);
    let mut made_after = Vec::new();
    for epoch in 1..4 {
        let context = sessions.handle_fetch(NOW, fetch(id, epoch, &[])).unwrap();
        made_after.push(context.made_after());
        let answered = at(u64::try_from(epoch).unwrap());
        sessions.handle_answered(answered, || 0, context);
    }
    assert_eq!(made_after, [None, Some(at(0)), Some(at(1))]);
    let new_session = sessions.handle_fetch(at(9), fetch(id, 0, &[1])).unwrap();
    assert_eq!(new_session.made_after(), None);
}

#[test]
fn epochs_go_up_and_wrap_to_one() {
    let (mut sessions, id) = cache_with(&[1]);
    for epoch in 1..4 {
        let context = sessions.handle_fetch(NOW, fetch(id, epoch, &[])).unwrap();
        sessions.handle_answered(NOW, || 0, context);
    }
    let mut context = sessions.handle_fetch(NOW, fetch(id, 4, &[])).unwrap();
    context.next_epoch = i32::MAX;
    sessions.handle_answered(NOW, || 0, context);
    let context = sessions
        .handle_fetch(NOW, fetch(id, i32::MAX, &[]))
        .unwrap();
    sessions.handle_answered(NOW, || 0, context);
    assert!(sessions.handle_fetch(NOW, fetch(id, 1, &[])).is_ok());
}

#[test]
fn only_news_is_answered() {
    let check = |told: Answer, next: Answer, expected: bool| {
        let (mut sessions, id) = cache_with(&[1]);
        let mut context = sessions.handle_fetch(NOW, fetch(id, 1, &[])).unwrap();
        answer_all(&mut context, told);
        sessions.handle_answered(NOW, || 0, context);
        let mut context = sessions.handle_fetch(NOW, fetch(id, 2, &[])).unwrap();
        let found = !answer_all(&mut context, next).is_empty();
        assert_eq!(found, expected, "{told:?} then {next:?}");
    };
    let quiet = answer(5);
    check(quiet, quiet, false);
    check(quiet, answer(6), true);
    check(
        quiet,
        Answer {
            log_start_offset: 1,
            ..quiet
        },
        true,
    );
    check(
        quiet,
        Answer {
            has_records: true,
            ..quiet
        },
        true,
    );
    check(
        quiet,
        Answer {
            has_preferred_read_replica: true,
            ..quiet
        },
        true,
    );
    let failing = Answer {
        is_error_or_diverging: true,
        ..answer(-1)
    };
    check(quiet, failing, true);
    check(failing, failing, true);
    // When an error is over, the client hears of it.
    check(failing, quiet, true);
}

#[test]
fn whoever_names_a_partition_without_having_come_further_is_told_again() {
    let check = |epoch: i32, fetch_offset: i64, expected: bool| {
        let named = |epoch: i32, fetch_offset: i64| Position {
            current_leader_epoch: Some(LeaderEpoch(epoch)),
            ..position(fetch_offset)
        };
        let (mut sessions, id) = cache_with(&[1]);
        for (session_epoch, position, expected) in [
            (1, named(3, 10), true),
            (2, named(epoch, fetch_offset), expected),
        ] {
            let mut request = fetch(id, session_epoch, &[]);
            request.partitions = vec![(key(1), position)];
            let mut context = sessions.handle_fetch(NOW, request).unwrap();
            let found = !answer_all(&mut context, answer(5)).is_empty();
            assert_eq!(found, expected, "{position:?}");
            sessions.handle_answered(NOW, || 0, context);
        }
    };
    check(3, 11, false);
    check(3, 10, true);
    check(3, 9, true);
    check(4, 11, true);
}

#[test]
fn served_partitions_go_to_the_end() {
    let (mut sessions, id) = cache_with(&[1, 2, 3]);
    let mut context = sessions.handle_fetch(NOW, fetch(id, 1, &[])).unwrap();
    for partition in [1, 2] {
        let slot = context.find(&key(partition)).unwrap();
        context.include(
            slot,
            &Answer {
                has_records: true,
                ..answer(0)
            },
        );
    }
    sessions.handle_answered(NOW, || 0, context);
    let context = sessions.handle_fetch(NOW, fetch(id, 2, &[4])).unwrap();
    assert_eq!(order(&context), [3, 1, 2, 4]);
}

#[test]
fn a_session_in_use_or_lost_is_not_found_and_can_be_replaced() {
    let (mut sessions, id) = cache_with(&[1]);
    let waiting = sessions.handle_fetch(NOW, fetch(id, 1, &[])).unwrap();
    let again = sessions.handle_fetch(NOW, fetch(id, 2, &[])).map(|_| ());
    assert_eq!(again, Err(ErrorKind::FetchSessionIdNotFound));
    let renewed = sessions.handle_fetch(NOW, fetch(id, 0, &[1])).unwrap();
    assert_eq!(sessions.handle_answered(NOW, || 42, renewed), 42);
    // The fetch that still waited comes too late and changes nothing.
    sessions.handle_answered(NOW, || 0, waiting);
    assert!(sessions.handle_fetch(NOW, fetch(42, 1, &[])).is_ok());
    assert_eq!((sessions.len(), sessions.partitions()), (1, 1));
}

#[test]
fn full_caches_evict_by_age_then_worth() {
    let make = |sessions: &mut Sessions<()>, now: Instant, follower: bool, partitions: i32| {
        let partitions: Vec<i32> = (0..partitions).collect();
        let request = SessionFetch {
            follower,
            ..fetch(0, 0, &partitions)
        };
        let context = sessions.handle_fetch(now, request).unwrap();
        sessions.handle_answered(now, || 100, context) != 0
    };
    // What is in the cache (made at 0), when the next comes, what it is, whether it gets a session, how many there are then.
    let check = |present: (bool, i32),
                 used_ms: u64,
                 now_ms: u64,
                 next: (bool, i32),
                 expected: (bool, usize)| {
        let mut sessions = Sessions::new(Limits {
            sessions_max: 1,
            ..Limits::default()
        });
        assert!(make(&mut sessions, Instant::ZERO, present.0, present.1));
        if used_ms > 0 {
            let context = sessions
                .handle_fetch(Instant::from_millis(used_ms), fetch(100, 1, &[]))
                .unwrap();
            sessions.handle_answered(Instant::from_millis(used_ms), || 0, context);
        }
        let found = make(&mut sessions, Instant::from_millis(now_ms), next.0, next.1);
        assert_eq!(
            (found, sessions.len()),
            expected,
            "{present:?} {used_ms} {now_ms} {next:?}"
        );
    };
    let (consumer, follower) = (false, true);
    let (refused, displaces, beside) = ((false, 1), (true, 1), (true, 2));
    check((consumer, 5), 0, 1_000, (consumer, 9), refused);
    check((consumer, 5), 0, 121_000, (consumer, 1), displaces);
    check((follower, 5), 0, 121_000, (consumer, 1), displaces);
    check((consumer, 5), 100_000, 121_000, (consumer, 4), refused);
    check((consumer, 5), 100_000, 121_000, (consumer, 5), displaces);
    check((consumer, 5), 0, 1_000, (follower, 1), beside);
    check((consumer, 5), 0, 121_000, (follower, 1), beside);
    check((follower, 5), 100_000, 121_000, (consumer, 9), refused);
    check((follower, 5), 100_000, 121_000, (follower, 9), beside);
}

#[test]
fn followers_displace_others_only_once_many_of_them_have_room() {
    let mut sessions: Sessions<()> = Sessions::new(Limits {
        sessions_max: 2,
        ..Limits::default()
    });
    let mut ids = 0;
    let mut make = |sessions: &mut Sessions<()>, now_ms: u64, follower: bool, partitions: i32| {
        let partitions: Vec<i32> = (0..partitions).collect();
        let request = SessionFetch {
            follower,
            ..fetch(0, 0, &partitions)
        };
        let now = Instant::from_millis(now_ms);
        let context = sessions.handle_fetch(now, request).unwrap();
        ids += 1;
        sessions.handle_answered(now, || ids, context) != 0
    };
    assert!((0..2).all(|_| make(&mut sessions, 0, false, 9)));
    assert!((0..64).all(|_| make(&mut sessions, 121_000, true, 5)));
    assert_eq!((sessions.len(), sessions.evicted()), (66, 0));
    // One more is subject to the limit: the consumers, unused for long, go, and that does not make room enough.
    assert!(!make(&mut sessions, 121_000, true, 4));
    assert_eq!((sessions.len(), sessions.evicted()), (64, 2));
    assert!(!make(&mut sessions, 200_000, true, 9));
    assert_eq!((sessions.len(), sessions.evicted()), (64, 2));
}

#[test]
fn some_followers_find_room_under_any_limit() {
    let mut sessions: Sessions<()> = Sessions::new(Limits {
        sessions_max: 0,
        ..Limits::default()
    });
    let mut make = |follower| {
        let request = SessionFetch {
            follower,
            ..fetch(0, 0, &[1])
        };
        let context = sessions.handle_fetch(NOW, request).unwrap();
        sessions.handle_answered(NOW, || 7, context) != 0
    };
    assert!(!make(false));
    assert!((0..64).all(|_| make(true)));
    assert!(!make(true));
}

#[test]
fn partitions_are_bounded_over_all_sessions() {
    let limits = Limits {
        sessions_max: 10,
        partitions_max: 5,
        evict_after: Duration::from_secs(120),
    };
    let mut sessions: Sessions<()> = Sessions::new(limits);
    let too_many = sessions
        .handle_fetch(NOW, fetch(0, 0, &[0, 1, 2, 3, 4, 5]))
        .unwrap();
    assert_eq!(sessions.handle_answered(NOW, || 9, too_many), 0);
    let fits = sessions
        .handle_fetch(NOW, fetch(0, 0, &[0, 1, 2, 3]))
        .unwrap();
    assert_eq!(sessions.handle_answered(NOW, || 9, fits), 9);
    let grown = sessions.handle_fetch(NOW, fetch(9, 1, &[4, 5])).map(|_| ());
    assert_eq!(grown, Err(ErrorKind::FetchSessionIdNotFound));
    assert_eq!((sessions.len(), sessions.partitions()), (0, 0));
}

proptest! {
    /// The linked list against a plain vector.
    #[test]
    fn partitions_keep_their_order(steps in prop::collection::vec((0..3_u8, 0..8_i32), 1..60)) {
        let mut session = session::Session::<()>::new();
        let mut model: Vec<i32> = Vec::new();
        let mut offsets: BTreeMap<i32, i64> = BTreeMap::new();
        for (number, (what, partition)) in steps.into_iter().enumerate() {
            match what {
                0 => {
                    session.put(key(partition), position(number as i64));
                    offsets.insert(partition, number as i64);
                    if !model.contains(&partition) {
                        model.push(partition);
                    }
                }
                1 => {
                    session.forget(&key(partition));
                    model.retain(|other| *other != partition);
                }
                _ => {
                    if let Some(slot) = session.find(&key(partition)) {
                        session.move_to_end(slot);
                        model.retain(|other| *other != partition);
                        model.push(partition);
                    }
                }
            }
            let found: Vec<i32> = session.iter().map(|(_, cached)| cached.key.partition).collect();
            prop_assert_eq!(&found, &model);
            prop_assert_eq!(session.len(), model.len());
            for (_, cached) in session.iter() {
                prop_assert_eq!(cached.position.fetch_offset, offsets[&cached.key.partition]);
            }
        }
    }
}
