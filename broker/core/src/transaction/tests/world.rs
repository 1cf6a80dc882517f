//! A coordinator with its log, and producers that say what they want in one line.

use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;
use crate::transaction::*;

pub(super) const WALL_MS: i64 = 1_700_000_000_000;
pub(super) const TIMEOUT_MS: i32 = 60_000;

pub(super) struct World {
    pub(super) coordinator: Coordinator,
    pub(super) log: Vec<Record>,
    pub(super) now_ms: u64,
    /// Markers that are asked for and not written.
    pub(super) owed: Vec<Markers>,
    /// All markers that were ever asked for.
    pub(super) asked: Vec<Markers>,
    next_producer_id: i64,
}

pub(super) fn producer(producer_id: i64, epoch: i16) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch::new(ProducerId(producer_id), epoch)
}

pub(super) fn partitions(names: &[(&str, i32)]) -> Vec<TransactionPartition> {
    names
        .iter()
        .map(|(topic, partition)| TransactionPartition::new(*topic, *partition))
        .collect()
}

fn client<R>(reply: Result<R, Refused>) -> Result<R, ErrorKind> {
    reply.map_err(|refused| match refused {
        Refused::Error(error) => error,
        Refused::NeedsProducerId => panic!("nobody gave a producer id"),
    })
}

impl World {
    pub(super) fn new(version: TransactionVersion) -> World {
        World::with(Settings {
            version,
            ..Settings::default()
        })
    }

    pub(super) fn with(settings: Settings) -> World {
        let mut world = World {
            coordinator: Coordinator::new(settings),
            log: Vec::new(),
            now_ms: 0,
            owed: Vec::new(),
            asked: Vec::new(),
            next_producer_id: 0,
        };
        world.fail_over();
        world
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    pub(super) fn wall_ms(&self) -> i64 {
        WALL_MS + self.now_ms as i64
    }

    /// One producer id, as the node gives it to whoever needs one.
    pub(super) fn give_producer_id(&mut self) {
        self.next_producer_id += 1;
        self.coordinator
            .handle_producer_id(ProducerId(self.next_producer_id));
    }

    pub(super) fn init(
        &mut self,
        id: &str,
        expected: Option<ProducerIdAndEpoch>,
    ) -> Result<ProducerIdAndEpoch, ErrorKind> {
        self.init_with(&InitProducerId {
            transactional_id: id.to_owned(),
            timeout_ms: TIMEOUT_MS,
            expected,
        })
    }

    pub(super) fn init_with(
        &mut self,
        request: &InitProducerId,
    ) -> Result<ProducerIdAndEpoch, ErrorKind> {
        let mut effects = Vec::new();
        let wall_ms = self.wall_ms();
        let mut decision = self
            .coordinator
            .handle_init_producer_id(wall_ms, request, &mut effects);
        if decision.reply == Err(Refused::NeedsProducerId) {
            assert_eq!((decision.records.len(), effects.len()), (0, 0));
            self.give_producer_id();
            decision = self
                .coordinator
                .handle_init_producer_id(wall_ms, request, &mut effects);
        }
        self.finish(decision.records, effects);
        client(decision.reply)
    }

    pub(super) fn add(
        &mut self,
        id: &str,
        producer: ProducerIdAndEpoch,
        names: &[(&str, i32)],
        version: TransactionVersion,
    ) -> Result<(), ErrorKind> {
        let request = AddPartitions {
            transactional_id: id.to_owned(),
            producer,
            partitions: partitions(names),
            version,
        };
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let decision = self
            .coordinator
            .handle_add_partitions(now, wall_ms, &request);
        self.finish(decision.records, Vec::new());
        decision.reply
    }

    pub(super) fn end(
        &mut self,
        id: &str,
        producer: ProducerIdAndEpoch,
        commit: bool,
        version: TransactionVersion,
    ) -> Result<Option<ProducerIdAndEpoch>, ErrorKind> {
        let request = EndTransaction {
            transactional_id: id.to_owned(),
            producer,
            commit,
            version,
        };
        let mut effects = Vec::new();
        let wall_ms = self.wall_ms();
        let mut decision = self
            .coordinator
            .handle_end_transaction(wall_ms, &request, &mut effects);
        if decision.reply == Err(Refused::NeedsProducerId) {
            assert_eq!((decision.records.len(), effects.len()), (0, 0));
            self.give_producer_id();
            decision = self
                .coordinator
                .handle_end_transaction(wall_ms, &request, &mut effects);
        }
        self.finish(decision.records, effects);
        client(decision.reply)
    }

    /// So many of the partitions that wait get their marker, all of them with `usize::MAX`.
    pub(super) fn write_markers(&mut self, limit: usize) {
        for markers in std::mem::take(&mut self.owed) {
            let written = limit.min(markers.partitions.len());
            self.written(&markers, written);
            if written < markers.partitions.len() {
                let partitions = markers.partitions[written..].to_vec();
                self.owed.push(Markers {
                    partitions,
                    ..markers
                });
            }
        }
    }

    pub(super) fn written(&mut self, markers: &Markers, count: usize) {
        let wall_ms = self.wall_ms();
        let records =
            self.coordinator
                .handle_markers_written(wall_ms, markers, &markers.partitions[..count]);
        self.finish(records, Vec::new());
    }

    /// Lets time pass, with every deadline on the way.
    pub(super) fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        let mut calls = 0;
        while let Some(at) = self
            .coordinator
            .next_deadline()
            .filter(|at| *at <= Instant::from_millis(end_ms))
        {
            self.now_ms = self.now_ms.max(at.0.div_ceil(1_000_000));
            self.timeout();
            calls += 1;
            assert!(calls < 10_000, "deadlines come to rest");
        }
        self.now_ms = end_ms;
    }

    pub(super) fn timeout(&mut self) {
        let mut effects = Vec::new();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let records = self.coordinator.handle_timeout(now, wall_ms, &mut effects);
        self.finish(records, effects);
        if self.coordinator.wants_producer_id() {
            self.give_producer_id();
        }
    }

    pub(super) fn finish(&mut self, records: Vec<Record>, effects: Vec<Effect>) {
        for record in records {
            self.coordinator.apply(&record);
            self.log.push(record);
        }
        for effect in effects {
            let Effect::WriteMarkers(markers) = effect;
            self.owed.push(markers.clone());
            self.asked.push(markers);
        }
    }

    /// The coordinator goes to another broker. What was being written there is asked for here.
    pub(super) fn fail_over(&mut self) {
        let mut coordinator = Coordinator::new(*self.coordinator.settings());
        for record in &self.log {
            coordinator.apply(record);
        }
        let mut effects = Vec::new();
        coordinator.handle_loaded(self.now(), self.wall_ms(), &mut effects);
        self.coordinator = coordinator;
        self.owed.clear();
        self.finish(Vec::new(), effects);
    }

    pub(super) fn value(&self, id: &str) -> &TransactionValue {
        self.coordinator
            .transaction(id)
            .unwrap_or_else(|| panic!("{id} is known"))
    }

    /// A transactional id `t` in this state, with the producer that the log has. Partition `p` 0 and 1 were written to.
    pub(super) fn in_state(
        state: State,
        version: TransactionVersion,
    ) -> (World, ProducerIdAndEpoch) {
        let mut world = World::new(version);
        let first = world.init("t", None).expect("a new id");
        if state != State::Empty {
            let added = world.add("t", first, &[("p", 0), ("p", 1)], version);
            assert_eq!(added, Ok(()));
        }
        if state.is_preparing() || matches!(state, State::CompleteCommit | State::CompleteAbort) {
            let commit = matches!(state, State::PrepareCommit | State::CompleteCommit);
            let ended = world.end("t", first, commit, version);
            assert!(ended.is_ok(), "{ended:?}");
        }
        if !state.is_preparing() {
            world.write_markers(usize::MAX);
        }
        assert_eq!(world.value("t").state, state);
        let current = world.value("t").producer();
        (world, current)
    }
}
