//! Live state, replayed log and replayed compacted log are one and the same; epochs never go back; no transaction has two
//! ends; and whatever happened, an obedient producer commits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{World, producer};
use crate::ids::ProducerId;
use crate::transaction::*;

const IDS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    /// A producer starts, or one of two goes on.
    Init {
        id: usize,
        goes_on: Option<usize>,
    },
    Add {
        id: usize,
        who: usize,
        partition: i32,
        version: TransactionVersion,
    },
    End {
        id: usize,
        who: usize,
        commit: bool,
        version: TransactionVersion,
    },
    WriteMarkers {
        limit: usize,
    },
    /// Somebody tells of markers of long ago.
    LateMarkers {
        which: prop::sample::Index,
    },
    /// The epochs of an id are nearly used up.
    UseUpEpochs {
        id: usize,
    },
    Pass {
        ms: u64,
    },
    FailOver,
}

fn step() -> impl Strategy<Value = Step> {
    use TransactionVersion::{V0, V2};
    let id = || 0..IDS.len();
    let version = || prop_oneof![1 => Just(V0), 2 => Just(V2)];
    prop_oneof![
        4 => (id(), prop::option::of(0..2_usize)).prop_map(|(id, goes_on)| Step::Init { id, goes_on }),
        8 => (id(), 0..2_usize, 0..3_i32, version())
            .prop_map(|(id, who, partition, version)| Step::Add { id, who, partition, version }),
        8 => (id(), 0..2_usize, any::<bool>(), version())
            .prop_map(|(id, who, commit, version)| Step::End { id, who, commit, version }),
        8 => (0..4_usize).prop_map(|limit| Step::WriteMarkers { limit }),
        1 => any::<prop::sample::Index>().prop_map(|which| Step::LateMarkers { which }),
        1 => id().prop_map(|id| Step::UseUpEpochs { id }),
        2 => prop_oneof![0..5_000_u64, 50_000..200_000_u64, Just(8 * 24 * 3_600 * 1_000)]
            .prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::FailOver),
    ]
}

/// Two producers for each id, who remember who they are, and what they were told of their ends.
struct Clients {
    world: World,
    who: BTreeMap<(usize, usize), ProducerIdAndEpoch>,
    next_to_start: usize,
    /// Of version 2: the producer of the markers, and whether it was told committed.
    told: BTreeMap<ProducerIdAndEpoch, bool>,
}

impl Clients {
    fn new(version: TransactionVersion) -> Clients {
        Clients {
            world: World::new(version),
            who: BTreeMap::new(),
            next_to_start: 0,
            told: BTreeMap::new(),
        }
    }

    fn who(&self, id: usize, who: usize) -> ProducerIdAndEpoch {
        let known = self.who.get(&(id, who)).copied();
        known.unwrap_or(producer(1_000, 0))
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Init { id, goes_on } => {
                let who = goes_on.unwrap_or_else(|| {
                    self.next_to_start += 1;
                    self.next_to_start % 2
                });
                let expected = goes_on.map(|who| self.who(*id, who));
                if let Ok(producer) = self.world.init(IDS[*id], expected) {
                    self.who.insert((*id, who), producer);
                }
            }
            Step::Add {
                id,
                who,
                partition,
                version,
            } => {
                let asking = self.who(*id, *who);
                let _ = self
                    .world
                    .add(IDS[*id], asking, &[("p", *partition)], *version);
            }
            Step::End {
                id,
                who,
                commit,
                version,
            } => self.end(*id, *who, *commit, *version),
            Step::WriteMarkers { limit } => self.world.write_markers(*limit),
            Step::LateMarkers { which } => {
                if !self.world.asked.is_empty() {
                    let markers = which.get(&self.world.asked).clone();
                    let is_owed = self
                        .world
                        .owed
                        .iter()
                        .any(|owed| owed.token == markers.token);
                    if !is_owed {
                        self.world.written(&markers, markers.partitions.len());
                    }
                }
            }
            Step::UseUpEpochs { id } => self.use_up_epochs(*id),
            Step::Pass { ms } => self.world.pass(*ms),
            Step::FailOver => self.world.fail_over(),
        }
    }

    fn end(&mut self, id: usize, who: usize, commit: bool, version: TransactionVersion) {
        let asking = self.who(id, who);
        let reply = self.world.end(IDS[id], asking, commit, version);
        if let Ok(Some(next)) = reply {
            self.who.insert((id, who), next);
            let marked = ProducerIdAndEpoch::new(asking.producer_id, asking.epoch + 1);
            let before = self.told.insert(marked, commit);
            assert!(
                before.is_none_or(|before| before == commit),
                "a retry is told the same"
            );
        }
    }

    /// As if the id had been used for very long: only where it is at rest, and its producer knows.
    fn use_up_epochs(&mut self, id: usize) {
        let Some(value) = self.world.coordinator.transaction(IDS[id]).cloned() else {
            return;
        };
        if value.state != State::Empty || value.producer_epoch >= i16::MAX - 2 {
            return;
        }
        let before = value.producer();
        let value = TransactionValue {
            producer_epoch: i16::MAX - 2,
            ..value
        };
        for who in 0..2 {
            if self.who.get(&(id, who)) == Some(&before) {
                self.who.insert((id, who), value.producer());
            }
        }
        let record = Record {
            transactional_id: IDS[id].to_owned(),
            value: Some(value),
        };
        self.world.finish(vec![record], Vec::new());
    }
}

/// Keeps the last record of each key.
fn compact(log: &[Record]) -> Vec<Record> {
    let mut last = BTreeMap::new();
    for record in log {
        last.insert(record.transactional_id.clone(), record.clone());
    }
    last.into_values().collect()
}

fn replay<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    world: &World,
) -> (Coordinator, Vec<Effect>) {
    let mut coordinator = Coordinator::new(*world.coordinator.settings());
    for record in records {
        coordinator.apply(record);
    }
    let mut effects = Vec::new();
    coordinator.handle_loaded(world.now(), world.wall_ms(), &mut effects);
    (coordinator, effects)
}

fn check(world: &World) {
    let live = world.coordinator.snapshot();
    let (replayed, effects) = replay(&world.log, world);
    assert_eq!(replayed.snapshot(), live);
    let compacted = compact(&world.log);
    assert_eq!(replay(&compacted, world).0.snapshot(), live);
    assert_eq!(replay(compacted.iter().rev(), world).0.snapshot(), live);
    assert_eq!(replay(&live, world).0.snapshot(), live);
    // Whoever takes over owes markers for the same ends.
    let ends = |owed: &mut dyn Iterator<Item = &Markers>| {
        let mut ends: Vec<_> = owed
            .map(|markers| {
                (
                    markers.transactional_id.clone(),
                    markers.producer,
                    markers.commit,
                )
            })
            .collect();
        ends.sort();
        ends
    };
    let mut replayed_ends = effects.iter().map(|Effect::WriteMarkers(markers)| markers);
    assert_eq!(ends(&mut world.owed.iter()), ends(&mut replayed_ends));
    let open = live.iter().filter(|record| {
        let value = record.value.as_ref().expect("no tombstone");
        assert_eq!(
            value.partitions.is_empty(),
            value.state.is_at_rest(),
            "a transaction has partitions, and nothing else has: {record:?}"
        );
        value.state == State::Ongoing
    });
    if open.count() > 0 {
        assert!(world.coordinator.next_deadline().is_some());
    }
}

/// Each record follows from the one before it; within one producer id epochs never go back, and a producer id is never that
/// of two transactional ids.
fn check_log(log: &[Record]) {
    let mut last: BTreeMap<&str, &TransactionValue> = BTreeMap::new();
    let mut owners: BTreeMap<ProducerId, &str> = BTreeMap::new();
    for record in log {
        let id = record.transactional_id.as_str();
        let Some(value) = &record.value else {
            assert!(
                last.remove(id)
                    .is_some_and(|value| value.state.is_at_rest())
            );
            continue;
        };
        if let Some(before) = last.insert(id, value) {
            assert!(
                before.state.may_become(value.state),
                "{} -> {}",
                before.state,
                value.state
            );
            if before.producer_id == value.producer_id {
                assert!(before.producer_epoch <= value.producer_epoch);
            }
        }
        assert_eq!(*owners.entry(value.producer_id).or_insert(id), id);
        if matches!(value.state, State::Empty | State::Ongoing) {
            assert!(value.producer_epoch < i16::MAX, "one that clients may have");
        }
    }
}

/// In version 2 producer and epoch name one end, which is a commit or an abort and stays what a client was told.
fn check_ends(clients: &Clients) {
    let mut ends: BTreeMap<ProducerIdAndEpoch, bool> = BTreeMap::new();
    for markers in &clients.world.asked {
        if !markers.version.raises_epoch() {
            continue;
        }
        let before = ends.insert(markers.producer, markers.commit);
        assert!(before.is_none_or(|before| before == markers.commit));
        if let Some(told) = clients.told.get(&markers.producer) {
            assert_eq!(*told, markers.commit, "what a client was told is what is");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn live_state_is_what_the_log_says(
        level in prop_oneof![Just(0_i16), Just(2_i16)],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let version = TransactionVersion::from_level(level).expect("a level");
        let mut clients = Clients::new(version);
        for step in &steps {
            clients.run(step);
            check(&clients.world);
        }
        check_log(&clients.world.log);
        check_ends(&clients);
        // A producer that does as it is told commits, whatever others began and left undone.
        for id in IDS {
            let mut rounds = 0;
            let started = loop {
                rounds += 1;
                prop_assert!(rounds < 4, "{:?}", clients.world.coordinator.transaction(id));
                match clients.world.init(id, None) {
                    Ok(started) => break started,
                    Err(_) => clients.world.write_markers(usize::MAX),
                }
            };
            prop_assert_eq!(clients.world.add(id, started, &[("p", 0)], version), Ok(()));
            prop_assert!(clients.world.end(id, started, true, version).is_ok());
            clients.world.write_markers(usize::MAX);
            prop_assert_eq!(clients.world.value(id).state, State::CompleteCommit);
        }
    }
}

#[test]
fn replay_takes_tombstones_of_what_never_was() {
    let mut world = World::new(TransactionVersion::V2);
    let record = Record {
        transactional_id: "t".to_owned(),
        value: None,
    };
    world.finish(vec![record], Vec::new());
    world.fail_over();
    assert_eq!(world.coordinator.transactions().count(), 0);
}
