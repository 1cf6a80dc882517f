//! What a broker does from time to time: checkpoints, retention, and setting aside what the metadata does not know.
//! One task and one timer each, whatever the number of partitions.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::Impairment;
use taffrail_log::{CheckpointKind, LogDirectory, Reserve, RoomChange};

use crate::broker::Broker;
use crate::env::Env;
use crate::replication::flush_gathered;

/// How often the broker looks whether its metadata is current enough to tell strays.
const STRAY_CHECK: Duration = Duration::from_millis(500);

/// How often the broker tries again what it could not do; a failed log directory is noticed at once.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);

/// How often the volumes are asked for their room. What is appended meanwhile is counted, so that it need not be often.
const ROOM_CHECK: Duration = Duration::from_secs(1);

/// Starts the tasks.
pub(crate) fn start<E: Env>(broker: &Arc<Broker<E>>) {
    broker
        .env
        .spawn(checkpoint_high_watermarks(Arc::clone(broker)));
    broker.env.spawn(checkpoint_logs(Arc::clone(broker)));
    broker.env.spawn(retain(Arc::clone(broker)));
    broker.env.spawn(set_strays_aside(Arc::clone(broker)));
    broker.env.spawn(watch_directories(Arc::clone(broker)));
    broker.env.spawn(watch_room(Arc::clone(broker)));
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0).max(1))
}

/// `replica.high.watermark.checkpoint.interval.ms`.
async fn checkpoint_high_watermarks<E: Env>(broker: Arc<Broker<E>>) {
    let interval = millis(broker.config.replica_high_watermark_checkpoint_interval_ms);
    while pause(&broker, interval).await {
        for partition in broker.partitions() {
            partition.publish_high_watermark();
        }
        write_checkpoint(&broker, CheckpointKind::HighWatermark).await;
    }
}

/// `log.flush.offset.checkpoint.interval.ms`: recovery points, moved up to what was written lately, and with them log
/// starts. What is read after a kill is what was appended since, not a segment of each partition.
async fn checkpoint_logs<E: Env>(broker: Arc<Broker<E>>) {
    let interval = millis(i64::from(
        broker.config.log_flush_offset_checkpoint_interval_ms,
    ));
    while pause(&broker, interval).await {
        flush_gathered(&broker).await;
        write_checkpoint(&broker, CheckpointKind::RecoveryPoint).await;
        write_checkpoint(&broker, CheckpointKind::LogStart).await;
    }
}

/// Writes one kind of checkpoint in every log directory in use.
pub(crate) async fn write_checkpoint<E: Env>(broker: &Arc<Broker<E>>, kind: CheckpointKind) {
    for directory in broker.replication.directories() {
        if directory.offline().is_some() {
            continue;
        }
        let writer = directory.clone();
        if let Err(error) = broker
            .env
            .run_blocking(move || writer.write_checkpoint(kind))
            .await
        {
            tracing::warn!(directory = %directory.path().display(), %error, ?kind, "checkpoint not written");
        }
    }
}

/// `log.retention.check.interval.ms`.
async fn retain<E: Env>(broker: Arc<Broker<E>>) {
    let interval = millis(broker.config.log_retention_check_interval_ms);
    loop {
        // Also at once, when a disk runs full: what is due may be what makes room.
        tokio::select! {
            biased;
            () = broker.replication.retention_wanted.notified() => {}
            () = broker.env.sleep_until(broker.env.next_round(interval)) => {}
        }
        if broker.is_stopping() {
            return;
        }
        for partition in broker.partitions() {
            let wall_ms = broker.env.wall_ms();
            let owned = Arc::clone(&partition);
            let removed = broker
                .env
                .run_blocking(move || {
                    owned
                        .retire_segments(wall_ms)
                        .map_or(Ok(()), |retired| retired.remove())
                })
                .await;
            if let Err(error) = removed {
                tracing::warn!(partition = %partition.name(), %error, "files of retired segments are still there");
            }
        }
    }
}

/// Once after the start, when the replicas here are what current metadata says.
async fn set_strays_aside<E: Env>(broker: Arc<Broker<E>>) {
    let mut current = None;
    while pause(&broker, STRAY_CHECK).await {
        if !broker.cluster.is_caught_up() {
            continue;
        }
        let index = *current.get_or_insert_with(|| broker.cluster.indexed_image().0);
        if broker.cluster.applied_index() >= index {
            broker.set_strays_aside();
            return;
        }
    }
}

/// Acts on failed log directories at once, and tries again what a full disk prevented.
async fn watch_directories<E: Env>(broker: Arc<Broker<E>>) {
    loop {
        let check = broker.env.next_round(DIRECTORY_CHECK);
        tokio::select! {
            biased;
            () = broker.replication.directory_failed.notified() => {}
            () = broker.env.sleep_until(check) => {}
        }
        if broker.is_stopping() {
            return;
        }
        if let Some(reason) = broker.take_directories_offline() {
            broker.fail(reason);
            return;
        }
        broker.retry_partitions();
    }
}

/// Keeps the room of every log directory in mind, and gives back what a full one can do without.
async fn watch_room<E: Env>(broker: Arc<Broker<E>>) {
    let reserve = match u64::try_from(broker.config.disk_reserve_bytes) {
        Ok(bytes) => Reserve::Bytes(bytes),
        Err(_) => Reserve::OfVolume,
    };
    loop {
        for directory in broker.replication.directories() {
            if directory.offline().is_none() {
                measure_room(&broker, directory, reserve).await;
            }
        }
        for id in broker.replication.impairments.replicas(Impairment::Full) {
            if let Some(partition) = broker.partition(id) {
                partition.look_for_room();
            }
        }
        if !pause(&broker, ROOM_CHECK).await {
            return;
        }
    }
}

async fn measure_room<E: Env>(
    broker: &Arc<Broker<E>>,
    directory: &LogDirectory<E::Disk>,
    reserve: Reserve,
) {
    let measured = directory.clone();
    let change = broker
        .env
        .run_blocking(move || measured.measure_room(reserve))
        .await;
    let (usable_bytes, reserve_bytes) = directory.measured_room();
    match change {
        Ok(None) => {}
        Ok(Some(RoomChange::Full)) => {
            tracing::warn!(directory = %directory.path().display(), usable_bytes, reserve_bytes, "log directory is full up to its reserve: producers are refused until there is room");
            let (broker, path) = (Arc::clone(broker), directory.path().to_owned());
            let env = broker.env.clone();
            env.run_blocking(move || {
                for partition in broker.partitions() {
                    if partition.is_in(&path) {
                        partition.give_back_room();
                    }
                }
                broker.replication.retention_wanted.notify_one();
            })
            .await;
        }
        Ok(Some(RoomChange::Again)) => {
            tracing::info!(directory = %directory.path().display(), usable_bytes, reserve_bytes, "log directory has room again: producers are served");
        }
        Err(error) => {
            tracing::warn!(directory = %directory.path().display(), %error, "the room of a log directory is not known");
        }
    }
}

/// Whether the broker still runs after the pause.
async fn pause<E: Env>(broker: &Broker<E>, interval: Duration) -> bool {
    broker
        .env
        .sleep_until(broker.env.next_round(interval))
        .await;
    !broker.is_stopping()
}
