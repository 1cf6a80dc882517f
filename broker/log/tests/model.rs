//! Any sequence of appends, truncations, deletions, stops and kills, against a list of batches in memory.

mod rig;

use std::sync::Arc;

use proptest::prelude::*;
use rig::{NOW, Rig, batch, batch_of, bytes, find_offset, stored};
use taffrail_log::{Log, LogConfig, OffsetSpec, ReadLimits, RealDisk};
use taffrail_protocol::records::{Batches, RecordIter, uncompressed_records};

#[derive(Clone, Debug)]
enum Step {
    Append {
        records: i32,
        value_bytes: usize,
        timestamp: i64,
    },
    AppendAsFollower {
        batches: usize,
        gap: i64,
        value_bytes: usize,
    },
    NewEpoch,
    Roll,
    Truncate {
        part: f64,
    },
    StartOver {
        offset: i64,
    },
    DeleteRecords {
        part: f64,
    },
    Retire {
        age_ms: i64,
    },
    Flush,
    ReleaseMemory,
    Stop,
    Kill,
    Read {
        part: f64,
        end: f64,
        max_bytes: usize,
        min_one: bool,
    },
    FindTimestamp {
        timestamp: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..6, 0_usize..300, 0_i64..10_000).prop_map(|(records, value_bytes, timestamp)| Step::Append { records, value_bytes, timestamp }),
        4 => (1_usize..20, 0_i64..5, 0_usize..100).prop_map(|(batches, gap, value_bytes)| Step::AppendAsFollower { batches, gap, value_bytes }),
        2 => Just(Step::NewEpoch),
        1 => Just(Step::Roll),
        2 => (0.0..1.0).prop_map(|part| Step::Truncate { part }),
        1 => (0_i64..3000).prop_map(|offset| Step::StartOver { offset }),
        1 => (0.0..1.0).prop_map(|part| Step::DeleteRecords { part }),
        2 => (0_i64..12_000).prop_map(|age_ms| Step::Retire { age_ms }),
        1 => Just(Step::Flush),
        1 => Just(Step::ReleaseMemory),
        1 => Just(Step::Stop),
        2 => Just(Step::Kill),
        8 => (0.0..1.1, 0.0..1.1, 0_usize..4000, any::<bool>()).prop_map(|(part, end, max_bytes, min_one)| Step::Read { part, end, max_bytes, min_one }),
        3 => (0_i64..11_000).prop_map(|timestamp| Step::FindTimestamp { timestamp }),
    ]
}

struct Stored {
    next_offset: i64,
    bytes: Vec<u8>,
}

/// The log as a list. Batches below the start are kept: a kill may bring a log start back that was not checkpointed.
struct Model {
    batches: Vec<Stored>,
    /// Where the log was started.
    first: i64,
    start: i64,
    end: i64,
    epoch: i32,
    epochs: Vec<(i32, i64)>,
}

impl Model {
    fn offset_at(&self, part: f64) -> i64 {
        self.start + ((self.end - self.start) as f64 * part) as i64
    }

    fn append(&mut self, base_offset: i64, batch: Vec<u8>) {
        let (header, _) = Batches::new(&batch)
            .next()
            .expect("a batch")
            .expect("intact");
        if self
            .epochs
            .last()
            .is_none_or(|(epoch, _)| *epoch < self.epoch)
        {
            self.epochs.retain(|(_, start)| *start < base_offset);
            self.epochs.push((self.epoch, base_offset));
        }
        let bytes = stored(base_offset, self.epoch, batch);
        self.end = base_offset + i64::from(header.last_offset_delta) + 1;
        self.batches.push(Stored {
            next_offset: self.end,
            bytes,
        });
    }

    fn truncate(&mut self, offset: i64) {
        if offset < self.end {
            self.batches.retain(|batch| batch.next_offset <= offset);
            self.end = self
                .batches
                .last()
                .map_or(self.first, |last| last.next_offset);
        }
        self.start = self.start.min(self.end);
        self.epochs
            .retain(|(_, start)| *start < self.end.min(offset));
    }

    /// Bytes of all batches that hold something at or above the log start.
    fn content(&self) -> Vec<u8> {
        let visible = self
            .batches
            .iter()
            .filter(|batch| batch.next_offset > self.start);
        visible
            .flat_map(|batch| batch.bytes.iter().copied())
            .collect()
    }

    fn first_since(&self, timestamp: i64) -> Option<(i64, i64)> {
        self.batches.iter().find_map(|batch| {
            let (header, records) = uncompressed_records(&batch.bytes, 1 << 20).expect("intact");
            let mut records =
                RecordIter::new(&header, &records).map(|record| record.expect("intact"));
            let found = records
                .find(|record| record.offset >= self.start && record.timestamp >= timestamp)?;
            Some((found.timestamp, found.offset))
        })
    }
}

struct Pair {
    rig: Rig,
    config: Arc<LogConfig>,
    /// Absent only while it is opened again.
    log: Option<Log<RealDisk>>,
    model: Model,
}

impl Pair {
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Append {
                records,
                value_bytes,
                timestamp,
            } => self.append(records, value_bytes, timestamp),
            Step::AppendAsFollower {
                batches,
                gap,
                value_bytes,
            } => self.append_as_follower(batches, gap, value_bytes),
            Step::NewEpoch => {
                self.model.epoch += 1;
                self.log
                    .as_mut()
                    .expect("open")
                    .assign_epoch(self.model.epoch)
                    .expect("a higher epoch");
                self.model
                    .epochs
                    .retain(|(_, start)| *start < self.model.end);
                self.model.epochs.push((self.model.epoch, self.model.end));
            }
            Step::Roll => self
                .log
                .as_mut()
                .expect("open")
                .roll(NOW)
                .expect("writable"),
            Step::Truncate { part } => {
                let offset = self.model.offset_at(part);
                self.model.truncate(offset);
                assert_eq!(
                    self.log
                        .as_mut()
                        .expect("open")
                        .truncate_to(offset, NOW)
                        .expect("within the log"),
                    self.model.end
                );
            }
            Step::StartOver { offset } => {
                self.log
                    .as_mut()
                    .expect("open")
                    .truncate_fully_and_start_at(offset, NOW)
                    .expect("writable");
                self.model.batches.clear();
                self.model.epochs.clear();
                (self.model.first, self.model.start, self.model.end) = (offset, offset, offset);
            }
            Step::DeleteRecords { part } => {
                let offset = self.model.offset_at(part);
                let retired = self
                    .log
                    .as_mut()
                    .expect("open")
                    .delete_records(offset, self.model.end, NOW)
                    .expect("within the log");
                retired.remove().expect("removable");
                self.model.start = self.model.start.max(offset);
                self.trim_epochs();
            }
            Step::Retire { age_ms } => self.retire(age_ms),
            Step::Flush => assert_eq!(
                self.log.as_mut().expect("open").flush().expect("writable"),
                self.model
                    .end
                    .max(self.log.as_mut().expect("open").recovery_point())
            ),
            Step::ReleaseMemory => self
                .log
                .as_mut()
                .expect("open")
                .release_memory()
                .expect("writable"),
            Step::Stop => self.reopen(true),
            Step::Kill => self.reopen(false),
            Step::Read {
                part,
                end,
                max_bytes,
                min_one,
            } => self.read(part, end, max_bytes, min_one),
            Step::FindTimestamp { timestamp } => {
                let log = self.log.as_mut().expect("open");
                let found = find_offset(log, OffsetSpec::Timestamp(NOW + timestamp), i64::MAX)
                    .expect("intact");
                let found = found.map(|found| (found.timestamp, found.offset));
                assert_eq!(
                    found,
                    self.model.first_since(NOW + timestamp),
                    "timestamp {timestamp}"
                );
            }
        }
    }

    fn append(&mut self, records: i32, value_bytes: usize, timestamp: i64) {
        // The records' times rise and fall, so that a batch's largest is not its last.
        let sent = batch_of(records, value_bytes, |number| {
            NOW + timestamp + i64::from(number * 7 % 4)
        });
        let appended = self
            .log
            .as_mut()
            .expect("open")
            .append_leader(&mut sent.clone(), self.model.epoch, NOW)
            .expect("room");
        assert_eq!(appended.first_offset, self.model.end);
        self.model.append(self.model.end, sent);
        assert_eq!(appended.last_offset + 1, self.model.end);
    }

    fn append_as_follower(&mut self, batches: usize, gap: i64, value_bytes: usize) {
        let mut fetched = Vec::new();
        // Who leads an epoch from here on writes the next offset; recovery knows the epoch's start by its first batch.
        let leads = self
            .model
            .epochs
            .last()
            .is_some_and(|(_, start)| *start == self.model.end);
        for number in 0..batches {
            let sent = batch(
                1 + number as i32 % 3,
                NOW + number as i64 * 100,
                value_bytes,
            );
            let gap = if leads && number == 0 { 0 } else { gap };
            self.model.append(self.model.end + gap, sent);
            fetched.extend_from_slice(&self.model.batches.last().expect("just appended").bytes);
        }
        let whole = fetched.len();
        // A response may end within a batch.
        fetched.extend_from_slice(&fetched.clone()[..30.min(whole)]);
        let appended = self
            .log
            .as_mut()
            .expect("open")
            .append_follower(&fetched, self.model.epoch, NOW)
            .expect("in order");
        assert_eq!(appended.bytes, whole);
    }

    fn retire(&mut self, age_ms: i64) {
        let before = self.model.content().len() as u64;
        let retired = self
            .log
            .as_mut()
            .expect("open")
            .retire_segments(NOW + 10_000 + age_ms, self.model.end)
            .expect("writable");
        assert!(retired.bytes <= before + 4000, "whole segments only");
        retired.remove().expect("removable");
        let start = self.log.as_mut().expect("open").log_start_offset();
        assert!(start >= self.model.start && start <= self.model.end);
        self.model.start = start;
        self.trim_epochs();
        assert!(
            self.log.as_mut().expect("open").segment_count() == 1
                || self.log.as_mut().expect("open").size() < 10_000 + 2000
        );
    }

    fn trim_epochs(&mut self) {
        let start = self.model.start;
        let after = self
            .model
            .epochs
            .partition_point(|(_, from)| *from <= start);
        if after > 0 {
            self.model.epochs.drain(..after - 1);
            self.model.epochs[0].1 = start;
        }
    }

    /// Opens the log again, after a clean stop or as after a kill (what was written is in the page cache).
    fn reopen(&mut self, clean: bool) {
        let log = self.log.take().expect("open");
        if clean {
            let directory = log.directory().clone();
            log.close().expect("writable");
            directory.mark_clean_shutdown(1).expect("writable");
        } else {
            drop(log);
        }
        self.log = Some(self.rig.open(&self.config));
        let start = self.log.as_mut().expect("open").log_start_offset();
        if clean {
            assert_eq!(start, self.model.start);
        } else {
            assert!(
                start <= self.model.start,
                "a kill never loses records: {start} > {}",
                self.model.start
            );
        }
        // An epoch that began at the end and has no record is not kept, as in Kafka.
        self.model.epochs.retain(|(_, from)| *from < self.model.end);
        self.model.start = start;
        let epochs = self.log.as_mut().expect("open").epochs().entries();
        let known: Vec<_> = epochs
            .iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect();
        // The epoch that the start lies in is told by batches, if it has any above; of those after it none is gone.
        let after_first = self.model.epochs.get(1..).unwrap_or_default();
        assert!(
            known.ends_with(after_first),
            "{known:?} after {:?}",
            self.model.epochs
        );
        self.model.epochs = known;
    }

    fn read(&mut self, part: f64, end: f64, max_bytes: usize, min_one: bool) {
        let (offset, end_offset) = (self.model.offset_at(part), self.model.offset_at(end));
        let limits = ReadLimits {
            max_bytes,
            min_one,
            end_offset,
        };
        let result = self.log.as_mut().expect("open").read(offset, limits);
        if offset > self.model.end {
            assert!(result.is_err(), "offset {offset} is out of range");
            return;
        }
        let range = result.expect("in range");
        let first = self
            .model
            .batches
            .iter()
            .position(|batch| batch.next_offset > offset);
        let readable = first.filter(|first| {
            let batch = &self.model.batches[*first];
            offset < end_offset
                && batch.next_offset <= end_offset
                && (min_one || batch.bytes.len() <= max_bytes)
        });
        let Some(first) = readable else {
            assert!(
                range.is_none(),
                "nothing is readable at {offset} within {limits:?}"
            );
            return;
        };
        let got = bytes(
            &range.unwrap_or_else(|| panic!("a batch is readable at {offset} within {limits:?}")),
        );
        let mut expected = Vec::new();
        let mut boundary = false;
        for (count, batch) in self.model.batches[first..].iter().enumerate() {
            expected.extend_from_slice(&batch.bytes);
            if expected.len() >= got.len() {
                boundary = expected.len() == got.len();
                assert!(
                    batch.next_offset <= end_offset,
                    "nothing at or above the limit"
                );
                assert!(
                    got.len() <= max_bytes || count == 0,
                    "one batch may be larger, no more"
                );
                break;
            }
        }
        assert!(
            boundary && got == expected,
            "whole batches from the one that holds {offset}"
        );
    }

    fn check(&mut self) {
        assert_eq!(
            self.log.as_mut().expect("open").log_end_offset(),
            self.model.end
        );
        assert_eq!(
            self.log.as_mut().expect("open").log_start_offset(),
            self.model.start
        );
        let content = rig::read_all(self.log.as_mut().expect("open")).expect("readable");
        assert!(
            content == self.model.content(),
            "the content is that of the batches"
        );
        let epochs: Vec<_> = self
            .log
            .as_mut()
            .expect("open")
            .epochs()
            .entries()
            .iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect();
        assert_eq!(epochs, self.model.epochs);
    }
}

/// 48 cases take seconds; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    asked.unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_the_list_of_its_batches(steps in prop::collection::vec(step(), 1..80)) {
        let rig = Rig::new();
        let config = Arc::new(LogConfig {
            retention_ms: Some(10_000),
            retention_bytes: Some(10_000),
            compact: true,
            ..rig::small_segments()
        });
        let log = rig.create(&config);
        let model = Model { batches: Vec::new(), first: 0, start: 0, end: 0, epoch: 0, epochs: Vec::new() };
        let mut pair = Pair { rig, config, log: Some(log), model };
        for step in &steps {
            pair.apply(step);
            pair.check();
        }
    }
}
