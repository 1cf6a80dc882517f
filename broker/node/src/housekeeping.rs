//! What a broker does from time to time: checkpoints, retention, and setting aside what the metadata does not know.
//! One task and one timer each, whatever the number of partitions.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::Broker;
use crate::env::Env;

/// How often the broker looks whether its metadata is current enough to tell strays.
const STRAY_CHECK: Duration = Duration::from_millis(500);

/// How often the broker looks whether it has a log directory left.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);

/// Starts the tasks.
pub(crate) fn start<E: Env>(broker: &Arc<Broker<E>>) {
    broker
        .env
        .spawn(checkpoint_high_watermarks(Arc::clone(broker)));
    broker.env.spawn(checkpoint_logs(Arc::clone(broker)));
    broker.env.spawn(retain(Arc::clone(broker)));
    broker.env.spawn(set_strays_aside(Arc::clone(broker)));
    broker.env.spawn(watch_directories(Arc::clone(broker)));
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
        write(&broker, taffrail_log::CheckpointKind::HighWatermark).await;
    }
}

/// `log.flush.offset.checkpoint.interval.ms`: recovery points, and with them log starts.
async fn checkpoint_logs<E: Env>(broker: Arc<Broker<E>>) {
    let interval = millis(i64::from(
        broker.config.log_flush_offset_checkpoint_interval_ms,
    ));
    while pause(&broker, interval).await {
        write(&broker, taffrail_log::CheckpointKind::RecoveryPoint).await;
        write(&broker, taffrail_log::CheckpointKind::LogStart).await;
    }
}

async fn write<E: Env>(broker: &Arc<Broker<E>>, kind: taffrail_log::CheckpointKind) {
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
    while pause(&broker, interval).await {
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

/// Tries again what a full disk prevented. And a broker without a log directory can serve nothing: it stops, so that
/// others lead (Kafka halts, too).
async fn watch_directories<E: Env>(broker: Arc<Broker<E>>) {
    while pause(&broker, DIRECTORY_CHECK).await {
        broker.retry_partitions();
        let directories = broker.replication.directories();
        if let Some(reason) = directories
            .first()
            .and_then(|directory| directory.offline())
            && directories
                .iter()
                .all(|directory| directory.offline().is_some())
        {
            broker.fail(format!("every log directory is offline: {reason}"));
            return;
        }
    }
}

/// Whether the broker still runs after the pause.
async fn pause<E: Env>(broker: &Broker<E>, interval: Duration) -> bool {
    broker.env.sleep_until(broker.env.now() + interval).await;
    !broker.is_stopping()
}
