//! The leader's append: validated outside the lock; admitted by the cores, written, and made known under it.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{LeaderEpoch, ProducerId};
use taffrail_core::producer::{Admission, Batch, BatchKind, KeptBatch, Marker};
use taffrail_core::replica::Acknowledgement;
use taffrail_log::validate::{ProduceRules, RecordRefusal, Refusal, check_produce};
use taffrail_log::{Disk, LogDirectory, RoomFor};
use taffrail_protocol::records::{BatchHeader, EndTransactionMarker, TimestampType};

use super::{Partition, Replica, Role, storage_error};
use crate::env::Env;
use crate::producer_snapshots;
use crate::replication::Waiter;

/// What a batch of a coordinator may take, for the question whether there is room.
const OWN_BATCH_BYTES: u64 = 64 << 10;

/// What a Produce request says besides the records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendRequest {
    /// -1 (all), 0 or 1.
    pub(crate) acks: i16,
    /// Whether the request's version may carry zstd.
    pub(crate) zstd_allowed: bool,
}

/// A batch that is in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) base_offset: i64,
    /// Exclusive end of the batch.
    pub(crate) end_offset: i64,
    /// -1 unless the broker stamps the records.
    pub(crate) log_append_time_ms: i64,
    pub(crate) log_start_offset: i64,
    pub(crate) leader_epoch: LeaderEpoch,
    /// Whether the waiter was registered: in-sync replicas still have to confirm.
    pub(crate) waits: bool,
}

/// Why nothing was appended.
#[derive(Debug, Clone)]
pub(crate) struct ProduceRefusal {
    pub(crate) kind: ErrorKind,
    pub(crate) message: Option<String>,
    /// Records at fault, by index in the batch.
    pub(crate) records: Vec<(i32, String)>,
}

impl From<ErrorKind> for ProduceRefusal {
    fn from(kind: ErrorKind) -> Self {
        Self {
            kind,
            message: None,
            records: Vec::new(),
        }
    }
}

impl ProduceRefusal {
    pub(crate) fn with_message(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Some(message.into()),
            records: Vec::new(),
        }
    }
}

impl<E: Env> Partition<E> {
    /// Appends the one batch of a producer. `records` is patched in place. With acks=all the waiter is registered
    /// under the same lock, unless the batch is committed already.
    pub(crate) fn append_as_leader(
        &self,
        env: &E,
        request: AppendRequest,
        records: &mut [u8],
        waiter: Option<&Arc<Waiter>>,
    ) -> Result<Appended, ProduceRefusal> {
        let wall_ms = env.wall_ms();
        let config = Arc::clone(&self.log_config.read().expect("no panic while locked"));
        let rules = ProduceRules {
            config: &config,
            now_ms: wall_ms,
            zstd_allowed: request.zstd_allowed,
        };
        let result = check_produce(records, &rules)
            .map_err(|refusal| produce_refusal(&refusal))
            .and_then(|mut checked| {
                let (header, log_append_time_ms) = (checked.header, checked.log_append_time_ms);
                self.admit_and_append(
                    env,
                    request,
                    &header,
                    checked.bytes(records),
                    waiter,
                    log_append_time_ms,
                )
            });
        if result.is_err() {
            self.metrics.failed_produce.inc();
        }
        result
    }

    /// Whether this broker may append records of its own in this epoch, with acks=all.
    pub(crate) fn check_own_append(&self, leader_epoch: LeaderEpoch) -> Result<(), ErrorKind> {
        let replica = self.lock();
        match &replica.role {
            Role::Leader(leader) if leader.leader_epoch() == leader_epoch => {
                leader.check_append()?;
            }
            Role::Leader(_) | Role::Follower(_) | Role::Idle => {
                return Err(ErrorKind::NotLeaderOrFollower);
            }
        }
        let log = replica.log.as_ref();
        if log.is_none_or(|log| log.directory().has_room(OWN_BATCH_BYTES, RoomFor::Internal)) {
            Ok(())
        } else {
            Err(ErrorKind::KafkaStorageError)
        }
    }

    /// Appends a batch that this broker made itself (a coordinator's records), in the epoch in which it was decided.
    pub(crate) fn append_own(
        &self,
        env: &E,
        leader_epoch: LeaderEpoch,
        batch: &mut [u8],
    ) -> Result<Appended, ErrorKind> {
        let mut replica = self.lock();
        match &replica.role {
            Role::Leader(leader) if leader.leader_epoch() == leader_epoch => {}
            Role::Leader(_) | Role::Follower(_) | Role::Idle => {
                return Err(ErrorKind::NotLeaderOrFollower);
            }
        }
        self.append_locked(&mut replica, env, batch, None, None, -1)
    }

    /// How far what ends at `end_offset` (exclusive) is committed; registers the waiter if it has to be waited for.
    pub(crate) fn wait_for_commit(
        &self,
        end_offset: i64,
        leader_epoch: LeaderEpoch,
        waiter: &Arc<Waiter>,
    ) -> Result<Acknowledgement, ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let acknowledgement = match &replica.role {
            Role::Leader(leader) if leader.leader_epoch() == leader_epoch => {
                leader.acknowledgement(end_offset)
            }
            Role::Leader(_) | Role::Follower(_) | Role::Idle => {
                return Err(ErrorKind::NotLeaderOrFollower);
            }
        };
        if acknowledgement == Acknowledgement::Waiting {
            replica.waiters.add_produce(end_offset, waiter);
        }
        Ok(acknowledgement)
    }

    /// Whether an acks=all append that ended at `end_offset` (exclusive) in `leader_epoch` may be answered.
    pub(crate) fn acknowledgement(
        &self,
        end_offset: i64,
        leader_epoch: LeaderEpoch,
    ) -> Result<Acknowledgement, ErrorKind> {
        match &self.lock().role {
            Role::Leader(leader) if leader.leader_epoch() == leader_epoch => {
                Ok(leader.acknowledgement(end_offset))
            }
            Role::Leader(_) | Role::Follower(_) | Role::Idle => Err(ErrorKind::NotLeaderOrFollower),
        }
    }

    fn admit_and_append(
        &self,
        env: &E,
        request: AppendRequest,
        header: &BatchHeader,
        records: &mut [u8],
        waiter: Option<&Arc<Waiter>>,
        log_append_time_ms: i64,
    ) -> Result<Appended, ProduceRefusal> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let producer = producer_batch(header, records);
        let admitted = admit(replica, env, request, producer.as_ref(), records.len());
        let appended = match admitted {
            Ok(Admission::Append) => self
                .append_locked(
                    replica,
                    env,
                    records,
                    producer.as_ref(),
                    waiter,
                    log_append_time_ms,
                )
                .map_err(ProduceRefusal::from),
            Ok(Admission::Duplicate(kept)) => {
                if let Some(batch) = &producer {
                    replica.producers.handle_duplicate(batch);
                }
                return Ok(duplicate(replica, kept, waiter));
            }
            // Nobody can have begun a transaction: its APIs are withheld.
            Ok(Admission::Verify) => Err(ErrorKind::InvalidTxnState.into()),
            Err(refusal) => Err(refusal),
        };
        let appended = match (appended, &producer) {
            (Err(refusal), Some(batch)) => {
                self.note_refused(replica, env.now(), batch, refusal.kind);
                return Err(refusal);
            }
            (appended, _) => appended?,
        };
        self.metrics
            .messages_in
            .inc_by(u64::try_from(header.record_count).unwrap_or(0));
        self.metrics.bytes_in.inc_by(records.len() as u64);
        Ok(appended)
    }

    fn append_locked(
        &self,
        replica: &mut Replica<E>,
        env: &E,
        records: &mut [u8],
        producer: Option<&Batch>,
        waiter: Option<&Arc<Waiter>>,
        log_append_time_ms: i64,
    ) -> Result<Appended, ErrorKind> {
        let (now, wall_ms) = (env.now(), env.wall_ms());
        let mut effects = std::mem::take(&mut replica.effects);
        let (Some(log), Role::Leader(leader)) = (&mut replica.log, &mut replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        let leader_epoch = leader.leader_epoch();
        let appended = log
            .append_leader(records, leader_epoch.0, wall_ms)
            .map_err(|error| {
                super::upkeep::log_failure(&self.name(), "append", &error);
                storage_error(&error)
            })?;
        if let Some(offset) = appended.rolled {
            // Before this batch is counted: the snapshot is of what lies below the new segment.
            producer_snapshots::write(log, offset, &replica.producers);
            self.flushes.push(self.id);
        }
        if let Some(batch) = producer {
            let first_offset = appended.first_offset;
            producer_snapshots::note(log, &mut replica.producers, now, batch, first_offset)
                .map_err(|error| {
                    super::upkeep::log_failure(&self.name(), "note a transaction", &error);
                    storage_error(&error)
                })?;
        }
        let (end_offset, log_start_offset) = (log.log_end_offset(), log.log_start_offset());
        self.flushes.note_appended(appended.bytes as u64);
        let bytes = i64::try_from(appended.bytes).unwrap_or(i64::MAX);
        replica.unseen_bytes += bytes;
        replica.waiters.log_end_moved(bytes);
        leader.handle_append(now, end_offset, &mut effects);
        if replica.flush_ack {
            self.flushes.push(self.id);
        }
        self.settle(replica, effects);
        let waits = wait_for(replica, end_offset, waiter);
        Ok(Appended {
            base_offset: appended.first_offset,
            end_offset,
            log_append_time_ms,
            log_start_offset,
            leader_epoch,
            waits,
        })
    }
}

/// Whether a producer's batch of so many bytes may be appended now, or is in the log already.
fn admit<E: Env>(
    replica: &Replica<E>,
    env: &E,
    request: AppendRequest,
    producer: Option<&Batch>,
    bytes: usize,
) -> Result<Admission, ProduceRefusal> {
    let Role::Leader(leader) = &replica.role else {
        return Err(ErrorKind::NotLeaderOrFollower.into());
    };
    if request.acks == -1 {
        leader.check_append()?;
    }
    if let Some(batch) = producer {
        let log_end_offset = leader.log_end_offset();
        let admission = replica
            .producers
            .check(env.now(), batch, log_end_offset, None)?;
        if admission != Admission::Append {
            return Ok(admission);
        }
    }
    if let Some(log) = &replica.log {
        check_room(log.directory(), bytes)?;
    }
    Ok(Admission::Append)
}

/// Refuses a producer while the log directory has no room but its reserve. KAFKA_STORAGE_ERROR makes clients try again,
/// and so go on when there is room.
fn check_room<D: Disk>(directory: &LogDirectory<D>, bytes: usize) -> Result<(), ProduceRefusal> {
    if directory.has_room(bytes as u64, RoomFor::Produce) {
        return Ok(());
    }
    let (usable, reserve) = directory.measured_room();
    Err(ProduceRefusal::with_message(
        ErrorKind::KafkaStorageError,
        format!(
            "the disk of the leader is full: {usable} bytes are left in {}, and {reserve} are kept in reserve \
             (taffrail.disk.reserve.bytes); records are taken again once there is room",
            directory.path().display()
        ),
    ))
}

/// Registers the waiter unless what it waits for has happened.
fn wait_for<E: Env>(
    replica: &mut Replica<E>,
    end_offset: i64,
    waiter: Option<&Arc<Waiter>>,
) -> bool {
    let Some(waiter) = waiter else { return false };
    let Role::Leader(leader) = &replica.role else {
        return false;
    };
    if leader.acknowledgement(end_offset) == Acknowledgement::Committed {
        return false;
    }
    replica.waiters.add_produce(end_offset, waiter);
    true
}

/// A batch that was appended before: its offsets and time of then; acks=all waits for it like for a new one.
fn duplicate<E: Env>(
    replica: &mut Replica<E>,
    kept: KeptBatch,
    waiter: Option<&Arc<Waiter>>,
) -> Appended {
    let end_offset = kept.last_offset + 1;
    let waits = wait_for(replica, end_offset, waiter);
    let log = replica.log.as_ref();
    let stamped =
        log.is_some_and(|log| log.config().timestamp_type == TimestampType::LogAppendTime);
    Appended {
        base_offset: kept.base_offset,
        end_offset,
        log_append_time_ms: if stamped { kept.max_timestamp } else { -1 },
        log_start_offset: log.map_or(-1, |log| log.log_start_offset()),
        leader_epoch: replica.role.leader_epoch(),
        waits,
    }
}

/// What a whole batch says of its producer; none without a producer id, or if it is a control batch that ends no transaction.
pub(crate) fn producer_batch(header: &BatchHeader, batch: &[u8]) -> Option<Batch> {
    if header.producer_id < 0 {
        return None;
    }
    let kind = if header.attributes.is_control() {
        BatchKind::Marker(marker(header, batch)?)
    } else if header.attributes.is_transactional() {
        BatchKind::Transactional
    } else {
        BatchKind::Plain
    };
    Some(Batch {
        producer_id: ProducerId(header.producer_id),
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        last_offset_delta: header.last_offset_delta,
        max_timestamp: header.max_timestamp,
        kind,
    })
}

fn marker(header: &BatchHeader, batch: &[u8]) -> Option<Marker> {
    match EndTransactionMarker::read(batch) {
        Ok(marker) => marker.map(|marker| Marker {
            commit: marker.commit,
            coordinator_epoch: marker.coordinator_epoch,
        }),
        Err(error) => {
            tracing::warn!(producer_id = header.producer_id, base_offset = header.base_offset, %error, "a transaction marker cannot be read");
            None
        }
    }
}

fn produce_refusal(refusal: &Refusal) -> ProduceRefusal {
    let (kind, records): (_, &[RecordRefusal]) = match refusal {
        Refusal::InvalidRecord { records, .. } => (ErrorKind::InvalidRecord, records),
        Refusal::InvalidTimestamp { records, .. } => (ErrorKind::InvalidTimestamp, records),
        Refusal::Corrupt { .. } => (ErrorKind::CorruptMessage, &[]),
        Refusal::TooLarge { .. } => (ErrorKind::MessageTooLarge, &[]),
        Refusal::LargerThanSegment { .. } => (ErrorKind::RecordListTooLarge, &[]),
        Refusal::UnsupportedCompression => (ErrorKind::UnsupportedCompressionType, &[]),
    };
    ProduceRefusal {
        kind,
        message: Some(refusal.to_string()),
        records: records
            .iter()
            .map(|record| (record.index, record.message.clone()))
            .collect(),
    }
}
