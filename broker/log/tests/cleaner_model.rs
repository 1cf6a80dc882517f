//! Any sequence of appends, transactions, cleanings, truncations, stops and kills, against the list of all records that were ever
//! appended: whatever is removed from a log, what it says of each key is the same.

mod rig;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rig::cleaning::{Clean, Seen, read_batches};
use rig::{NOW, Rig, small_segments};
use taffrail_log::cleaner::LastRecord;
use taffrail_log::{AbortedTransaction, Log, LogConfig, RealDisk};
use taffrail_protocol::records::{Compression, EndTransactionMarker, RecordBatchBuilder};

const RETENTION_MS: i64 = 10_000;

#[derive(Clone, Debug)]
enum Step {
    /// Keys and whether they have a value.
    Append {
        records: Vec<(u8, bool)>,
        producer: Option<i64>,
        codec: u8,
    },
    End {
        producer: i64,
        commit: bool,
    },
    Roll,
    Wait {
        ms: i64,
    },
    Clean {
        slots: usize,
        step_bytes: u64,
        forget: bool,
    },
    Truncate {
        part: f64,
    },
    Stop,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let records = prop::collection::vec((0_u8..12, any::<bool>()), 1..6);
    let producer = prop_oneof![2 => Just(None), 3 => (1_i64..4).prop_map(Some)];
    prop_oneof![
        14 => (records, producer, 0_u8..5).prop_map(|(records, producer, codec)| Step::Append { records, producer, codec }),
        5 => (1_i64..4, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
        3 => Just(Step::Roll),
        2 => (1_i64..RETENTION_MS).prop_map(|ms| Step::Wait { ms }),
        4 => (2_usize..20, 1_u64..2000, any::<bool>()).prop_map(|(slots, step_bytes, forget)| Step::Clean { slots, step_bytes, forget }),
        1 => (0.0..1.0).prop_map(|part| Step::Truncate { part }),
        1 => Just(Step::Stop),
        1 => Just(Step::Kill),
    ]
}

/// A record that was appended.
struct Record {
    seen: Seen,
    /// Of a transaction's producer.
    producer: Option<i64>,
    /// When a cleaning first could have met it.
    cleaned_at: Option<i64>,
}

#[derive(Default)]
struct Model {
    records: Vec<Record>,
    /// First offsets of transactions that were not ended.
    open: BTreeMap<i64, i64>,
    aborted: Vec<AbortedTransaction>,
    /// Producer, first offset and marker of those that were.
    ended: Vec<(i64, i64, i64)>,
    /// Nothing below it is ever truncated.
    high_watermark: i64,
    /// By producer: the last offset and the last sequence of its records.
    last: BTreeMap<i64, (i64, i32)>,
    end: i64,
    now_ms: i64,
    first_dirty_offset: Option<i64>,
}

impl Model {
    fn stable_end(&self) -> i64 {
        self.open.values().copied().min().unwrap_or(self.end)
    }

    fn is_aborted(&self, record: &Record) -> bool {
        let (Some(producer), offset) = (record.producer, record.seen.offset) else {
            return false;
        };
        self.aborted.iter().any(|aborted| {
            aborted.producer_id == producer
                && (aborted.first_offset..aborted.last_offset).contains(&offset)
        })
    }

    /// The newest record of each key, of those that were committed.
    fn newest(&self) -> BTreeMap<&[u8], &Record> {
        let stable_end = self.stable_end();
        let records = self
            .records
            .iter()
            .filter(|record| record.seen.offset < stable_end && !self.is_aborted(record));
        records
            .map(|record| (record.seen.key.as_deref().expect("all have one"), record))
            .collect()
    }
}

struct Run {
    rig: Rig,
    log: Option<Log<RealDisk>>,
    model: Model,
}

fn config() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        segment_bytes: 1200,
        ..small_segments()
    }
}

impl Run {
    fn new() -> Run {
        let rig = Rig::new();
        let log = rig.create(&config());
        Run {
            rig,
            log: Some(log),
            model: Model {
                now_ms: NOW,
                ..Model::default()
            },
        }
    }

    fn log(&mut self) -> &mut Log<RealDisk> {
        self.log.as_mut().expect("open")
    }

    fn run(&mut self, step: &Step) {
        let is_plain = matches!(step, Step::Append { .. } | Step::Roll | Step::Wait { .. });
        match step {
            Step::Append {
                records,
                producer,
                codec,
            } => self.append(records, *producer, *codec),
            Step::End { producer, commit } => self.end_transaction(*producer, *commit),
            Step::Roll => self.log().roll(NOW).expect("room"),
            Step::Wait { ms } => self.model.now_ms += ms,
            Step::Clean {
                slots,
                step_bytes,
                forget,
            } => {
                if *forget {
                    self.model.first_dirty_offset = None;
                }
                self.clean(*slots, *step_bytes);
            }
            Step::Truncate { part } => self.truncate(*part),
            Step::Stop => {
                let log = self.log.take().expect("open");
                let directory = log.directory().clone();
                log.close().expect("durable");
                directory.mark_clean_shutdown(1).expect("durable");
                drop(directory);
                self.log = Some(self.rig.open(&config()));
            }
            Step::Kill => {
                drop(self.log.take());
                self.log = Some(self.rig.open(&config()));
            }
        }
        if !is_plain {
            self.check();
        }
    }

    fn append(&mut self, records: &[(u8, bool)], producer: Option<i64>, codec: u8) {
        let codec = Compression::from_code(i16::from(codec)).expect("five there are");
        let sequence = producer.map_or(0, |producer| {
            self.model.last.get(&producer).map_or(0, |last| last.1 + 1)
        });
        let mut builder = RecordBatchBuilder::new(0, self.model.now_ms).compression(codec);
        if let Some(producer) = producer {
            builder = builder.producer(producer, 0, sequence).transactional(true);
        }
        let first = self.model.end;
        for (delta, (key, has_value)) in (0..).zip(records) {
            let offset = first + i64::from(delta);
            let timestamp = self.model.now_ms + i64::from(delta);
            let key = format!("key{key}").into_bytes();
            let value = has_value.then(|| format!("{offset:060}").into_bytes());
            builder.push_at(delta, timestamp, Some(&key), value.as_deref(), &[]);
            self.model.records.push(Record {
                seen: Seen {
                    offset,
                    timestamp,
                    key: Some(key),
                    value,
                },
                producer,
                cleaned_at: None,
            });
        }
        let now_ms = self.model.now_ms;
        let appended = self
            .log()
            .append_leader(&mut builder.build(), 1, now_ms)
            .expect("room");
        assert_eq!(appended.first_offset, first);
        self.model.end = appended.last_offset + 1;
        if let Some(producer) = producer {
            self.model.open.entry(producer).or_insert(first);
            let last_sequence = sequence + records.len() as i32 - 1;
            self.model
                .last
                .insert(producer, (appended.last_offset, last_sequence));
        }
    }

    fn end_transaction(&mut self, producer: i64, commit: bool) {
        let Some(first_offset) = self.model.open.remove(&producer) else {
            return;
        };
        let marker = EndTransactionMarker {
            commit,
            coordinator_epoch: 0,
        };
        let mut batch = marker.batch(producer, 0, self.model.now_ms);
        let appended = self.log().append_leader(&mut batch, 1, NOW).expect("room");
        self.model.end = appended.last_offset + 1;
        let marker = appended.first_offset;
        self.model.ended.push((producer, first_offset, marker));
        if !commit {
            let aborted = AbortedTransaction {
                producer_id: producer,
                first_offset,
                last_offset: appended.first_offset,
                last_stable_offset: self.model.stable_end(),
            };
            self.log().note_aborted(aborted).expect("noted");
            self.model.aborted.push(aborted);
        }
    }

    fn clean(&mut self, slots: usize, step_bytes: u64) {
        self.log().flush().expect("durable");
        self.model.high_watermark = self.model.end;
        let last = self.model.last.iter();
        let producers = last.map(|(producer, (offset, _))| {
            let last = LastRecord {
                last_offset: Some(*offset),
                producer_epoch: 0,
            };
            (*producer, last)
        });
        let mut clean = Clean::all(self.model.now_ms);
        clean.checkpointed = self.model.first_dirty_offset;
        clean.stable_end = self.model.stable_end();
        clean.config.delete_retention_ms = RETENTION_MS;
        clean.producers = producers.collect();
        clean.map_bytes_max = slots * 24;
        clean.step_bytes = step_bytes;
        let above = clean.stable_end.min(self.log().active_base_offset());
        let untouched = |batches: Vec<(_, Vec<Seen>)>| -> Vec<Seen> {
            let records = batches.into_iter().flat_map(|(_, records)| records);
            records.filter(|record| record.offset >= above).collect()
        };
        let before = untouched(read_batches(self.log()));
        let end = clean.run(self.log()).expect("cleaned");
        assert_eq!(untouched(read_batches(self.log())), before);
        if let Some(end) = end {
            assert!(end <= above && Some(end) > self.model.first_dirty_offset);
            self.model.first_dirty_offset = Some(end);
            let now_ms = self.model.now_ms;
            for record in &mut self.model.records {
                if record.seen.offset < above {
                    record.cleaned_at.get_or_insert(now_ms);
                }
            }
            self.check_removed(end);
            self.check_producers();
        }
    }

    /// As a follower does, above the high watermark.
    fn truncate(&mut self, part: f64) {
        let committed = self.model.high_watermark;
        let offset = committed + ((self.model.end - committed) as f64 * part) as i64;
        let end = self.log().truncate_to(offset, NOW).expect("cut");
        self.model.end = end;
        self.model.records.retain(|record| record.seen.offset < end);
        let Model {
            open,
            ended,
            aborted,
            ..
        } = &mut self.model;
        open.retain(|_, first| *first < end);
        ended.retain(|(producer, first, marker)| {
            if *marker >= end && *first < end {
                open.insert(*producer, *first);
            }
            *marker < end
        });
        aborted.retain(|aborted| aborted.last_offset < end);
        // What a producer sent last is found in what is left.
        let batches = read_batches(self.log());
        self.model.last.clear();
        for (header, _) in batches {
            if header.producer_id >= 0 && !header.attributes.is_control() {
                let last = (header.last_offset(), header.last_sequence());
                self.model.last.insert(header.producer_id, last);
            }
        }
        let dirty = self.model.first_dirty_offset;
        self.model.first_dirty_offset = dirty.map(|dirty| dirty.min(end));
    }

    /// What a reader of committed records sees.
    fn committed(&mut self) -> Vec<Seen> {
        let stable_end = self.model.stable_end();
        let aborted = self.log().aborted_transactions(0, stable_end);
        let aborted = aborted.expect("readable");
        let mut seen = Vec::new();
        for (header, records) in read_batches(self.log()) {
            let is_aborted = header.attributes.is_transactional()
                && aborted.iter().any(|aborted| {
                    aborted.producer_id == header.producer_id
                        && (aborted.first_offset..aborted.last_offset).contains(&header.base_offset)
                });
            if !header.attributes.is_control() && !is_aborted && header.base_offset < stable_end {
                seen.extend(records);
            }
        }
        seen
    }

    fn check(&mut self) {
        assert_eq!(self.log().log_end_offset(), self.model.end);
        let committed = self.committed();
        let appended: BTreeMap<i64, &Seen> = (self.model.records.iter())
            .map(|record| (record.seen.offset, &record.seen))
            .collect();
        assert!(committed.is_sorted_by(|a, b| a.offset < b.offset));
        for record in &committed {
            assert_eq!(appended.get(&record.offset), Some(&record), "as it was");
        }
        let found: BTreeMap<&[u8], &Seen> = committed
            .iter()
            .map(|record| (record.key.as_deref().expect("all have one"), record))
            .collect();
        for (key, newest) in self.model.newest() {
            match found.get(key) {
                Some(record) => assert_eq!(**record, newest.seen, "the newest of its key"),
                None => {
                    assert_eq!(newest.seen.value, None, "only a tombstone may be gone");
                    let since = newest.cleaned_at.expect("something removed it");
                    assert!(self.model.now_ms >= since + RETENTION_MS, "too early");
                }
            }
        }
    }

    /// Below the end of a cleaning every key has one record, and nothing aborted is left.
    fn check_removed(&mut self, end: i64) {
        let mut keys = BTreeSet::new();
        for (header, records) in read_batches(self.log()) {
            for record in records {
                if !header.attributes.is_control() && record.offset < end {
                    assert!(keys.insert(record.key), "one record a key");
                }
            }
        }
    }

    fn check_producers(&mut self) {
        let last: BTreeMap<i64, (i64, i32)> = read_batches(self.log())
            .iter()
            .filter(|(header, _)| header.producer_id >= 0 && !header.attributes.is_control())
            .map(|(header, _)| {
                (
                    header.producer_id,
                    (header.last_offset(), header.last_sequence()),
                )
            })
            .collect();
        assert_eq!(
            last, self.model.last,
            "what the producers sent last is there"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_cleaned_log_says_of_each_key_what_was_said_last(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.run(step);
        }
        // Everything ends, and is cleaned until nothing changes: then every key has one record.
        for producer in 1..4 {
            run.run(&Step::End { producer, commit: producer == 2 });
        }
        run.run(&Step::Roll);
        for _ in 0..2 {
            run.model.first_dirty_offset = None;
            while run.model.first_dirty_offset != Some(run.model.end) && run.model.end > 0 {
                run.run(&Step::Clean { slots: 7, step_bytes: 5000, forget: false });
            }
        }
        let content = run.committed();
        run.run(&Step::Clean { slots: 50, step_bytes: 5000, forget: true });
        prop_assert_eq!(run.committed(), content);
    }
}
