//! Opening the log directories and every log in them at start, closing them at the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use taffrail_core::config::TopicConfig;
use taffrail_core::ids::{BrokerEpoch, TopicId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_log::{
    DirectoryError, FolderState, Log, LogDirectory, LogError, OpenFiles, PartitionFolder,
    settle_swaps,
};
use tokio::sync::mpsc;

use crate::broker::Broker;
use crate::env::{Env, random_id};
use crate::node::StartError;
use crate::partition::{Partition, PartitionParts, log_config, replica_settings};
use crate::producer_snapshots;
use crate::replication::UnusableDirectory;

/// Descriptors that idle partitions may keep open; with connections they stay below a limit of 20,000.
const OPEN_FILES_MAX: usize = 8_000;

/// Opens every directory and recovers every log in it. A directory that cannot be used is left out, unless it belongs
/// to somebody else or none is left.
pub(crate) async fn open_directories<E: Env>(broker: &Arc<Broker<E>>) -> Result<(), StartError> {
    let cluster_id = broker.config.cluster_id.clone().ok_or_else(|| {
        StartError::Identity(
            "cluster.id is not set: name the cluster that this broker belongs to".to_owned(),
        )
    })?;
    let files = Arc::new(OpenFiles::new(OPEN_FILES_MAX));
    let mut directories = Vec::new();
    let mut unusable = Vec::new();
    for path in &broker.config.log_dirs {
        let id = random_id(&broker.env);
        let disk = broker.env.disk().clone();
        match LogDirectory::open(
            disk,
            Path::new(path),
            &cluster_id,
            broker.id.0,
            id,
            Arc::clone(&files),
        ) {
            Ok(directory) => directories.push(directory),
            Err(error @ (DirectoryError::InUse { .. } | DirectoryError::Foreign { .. })) => {
                return Err(StartError::Identity(format!("log.dirs: {error}")));
            }
            Err(error @ (DirectoryError::Unreadable { .. } | DirectoryError::Io { .. })) => {
                tracing::error!(%error, "log directory cannot be used and is left out");
                unusable.push(UnusableDirectory {
                    path: path.clone(),
                    reason: error.to_string(),
                });
            }
        }
    }
    if directories.is_empty() {
        return Err(StartError::Storage(format!(
            "log.dirs: none of the log directories can be used: {}",
            listed(&unusable)
        )));
    }
    let all_usable = unusable.is_empty();
    settle_swaps(&directories, all_usable);
    let mut found = Vec::new();
    for directory in &directories {
        let failed = Arc::clone(&broker.replication.directory_failed);
        directory.on_offline(move || failed.notify_one());
        match directory.folders() {
            Ok(folders) => {
                let live = folders
                    .into_iter()
                    .filter(|folder| folder.state == FolderState::Live);
                found.extend(live.map(|folder| (directory.clone(), folder)));
            }
            Err(error) => directory.mark_offline(&format!("it cannot be listed: {error}")),
        }
    }
    broker.replication.unusable.get_or_init(|| unusable);
    broker
        .to_recover
        .store(found.len() as u64, Ordering::Relaxed);
    recover(broker, found).await;
    let resuming = (Arc::clone(broker), directories.clone());
    let resumed = broker.env.run_blocking(move || {
        let (broker, directories) = resuming;
        broker.resume_moves(&directories, all_usable);
    });
    resumed.await;
    directories.iter().for_each(tell_removed);
    if broker.replication.directories.set(directories).is_err() {
        return Err(StartError::Storage("the node was started twice".to_owned()));
    }
    Ok(())
}

/// Says how many empty folders the start has removed, once that is durable.
fn tell_removed<D: taffrail_log::Disk>(directory: &LogDirectory<D>) {
    if directory.offline().is_some() {
        return;
    }
    match directory.sync_removed() {
        Ok(0) => {}
        Ok(folders) => tracing::info!(
            directory = %directory.path().display(),
            folders,
            "folders without a topic id and without a byte in any file were removed"
        ),
        Err(error) => directory.mark_offline(&error.to_string()),
    }
}

fn listed(unusable: &[UnusableDirectory]) -> String {
    let reasons: Vec<&str> = unusable.iter().map(|one| one.reason.as_str()).collect();
    reasons.join("; ")
}

/// The logs that wait to be opened, with their place in the order in which they were found.
type ToOpen<E> = Mutex<VecDeque<(usize, LogDirectory<<E as Env>::Disk>, PartitionFolder)>>;

/// Opens logs, several at a time (`num.recovery.threads.per.data.dir`), in pieces that block, so that the event loop turns
/// meanwhile. What was found first counts, whatever is done first.
async fn recover<E: Env>(
    broker: &Arc<Broker<E>>,
    found: Vec<(LogDirectory<E::Disk>, PartitionFolder)>,
) {
    let of_directory = usize::try_from(broker.config.num_recovery_threads_per_data_dir);
    let threads = of_directory.unwrap_or(1) * broker.config.log_dirs.len();
    let threads = threads.clamp(1, found.len().max(1));
    let numbered = found.into_iter().enumerate();
    let waiting: Arc<ToOpen<E>> = Arc::new(Mutex::new(
        numbered
            .map(|(number, (directory, folder))| (number, directory, folder))
            .collect(),
    ));
    let (sender, mut receiver) = mpsc::channel(threads);
    for _ in 0..threads {
        let (opener, waiting, sender) = (Arc::clone(broker), Arc::clone(&waiting), sender.clone());
        broker.env.spawn(async move {
            loop {
                let next = waiting.lock().expect("no panic while locked").pop_front();
                let Some((number, directory, folder)) = next else {
                    return;
                };
                let opening = Arc::clone(&opener);
                let opened = opener
                    .env
                    .run_blocking(move || open_one(&opening, &directory, &folder))
                    .await;
                // Nobody listens only if the start itself was given up.
                let _ = sender.send((number, opened)).await;
            }
        });
    }
    drop(sender);
    let mut opened = BTreeMap::new();
    while let Some((number, partition)) = receiver.recv().await {
        broker.recovered.fetch_add(1, Ordering::Relaxed);
        opened.extend(partition.map(|partition| (number, partition)));
    }
    for partition in opened.into_values() {
        admit(broker, partition);
    }
}

/// A log with its producers, or none if it cannot be used.
fn open_one<E: Env>(
    broker: &Arc<Broker<E>>,
    directory: &LogDirectory<E::Disk>,
    folder: &PartitionFolder,
) -> Option<Arc<Partition<E>>> {
    let name = &folder.name;
    let _recovery = broker.recovering.begin(name);
    match directory.remove_void(folder) {
        // Nothing was ever flushed of it: if the metadata wants a replica here, it is made anew.
        Ok(true) => return None,
        Ok(false) => {}
        Err(error) => {
            tracing::error!(partition = name, %error, "the replica cannot be looked into; its directory is taken offline");
            directory.mark_offline(&error.to_string());
            return None;
        }
    }
    let config = broker.topic_config(&Image::default(), &folder.topic);
    let log_config = Arc::new(log_config(&config, broker.env.random()));
    match directory.open_log(folder, log_config, broker.env.wall_ms()) {
        Ok((log, recovered)) => {
            broker
                .bytes_scanned
                .fetch_add(recovered.bytes_scanned, Ordering::Relaxed);
            if !recovered.clean {
                tracing::info!(
                    partition = name,
                    log_end_offset = log.log_end_offset(),
                    segments_scanned = recovered.segments_scanned,
                    bytes_scanned = recovered.bytes_scanned,
                    bytes_cut = recovered.bytes_cut,
                    "recovered after an unclean stop"
                );
            }
            let Some(topic_id) = log.topic_id() else {
                tracing::warn!(
                    partition = name,
                    "partition.metadata is missing or unreadable: the replica is kept aside"
                );
                set_aside(directory, folder, log);
                return None;
            };
            let id = TopicPartition::new(TopicId(topic_id), folder.partition);
            Some(make_partition(broker, id, &folder.topic, log, &config))
        }
        Err(error) => {
            tracing::error!(partition = name, %error, "the log cannot be opened; its directory is taken offline");
            directory.mark_offline(&error.to_string());
            None
        }
    }
}

/// Puts a replica into service, unless there is one of the same partition already.
fn admit<E: Env>(broker: &Broker<E>, partition: Arc<Partition<E>>) {
    if broker.partition(partition.id).is_none() {
        broker.insert_partition(partition);
        return;
    }
    tracing::warn!(
        partition = %partition.name(),
        "a second replica of the same partition is kept aside"
    );
    if let Some(log) = partition.take_log() {
        let (directory, folder) = (log.directory().clone(), log.folder().clone());
        set_aside(&directory, &folder, log);
    }
}

/// Closes a log and renames its folder, so that nothing of it is lost or served.
pub(super) fn set_aside<D: taffrail_log::Disk>(
    directory: &LogDirectory<D>,
    folder: &PartitionFolder,
    log: Log<D>,
) {
    let closed = log.close().and_then(|()| directory.mark_stray(folder));
    match closed {
        Ok(stray) => tracing::info!(
            from = folder.name,
            to = stray.name,
            "replica renamed and kept"
        ),
        Err(error) => {
            tracing::warn!(partition = folder.name, %error, "the replica could not be set aside")
        }
    }
}

/// A partition around an open log, with its producers as the log has them.
pub(super) fn make_partition<E: Env>(
    broker: &Broker<E>,
    id: TopicPartition,
    topic: &str,
    mut log: Log<E::Disk>,
    config: &TopicConfig,
) -> Arc<Partition<E>> {
    let producers = producer_snapshots::load(
        &mut log,
        producer_snapshots::settings(&broker.config),
        broker.env.now(),
    );
    Partition::new(PartitionParts {
        id,
        topic: Arc::from(topic),
        me: broker.id,
        metrics: broker.metrics().topic(topic),
        proposals: Arc::clone(&broker.replication.proposals),
        flushes: Arc::clone(&broker.replication.flushes),
        throttles: Arc::clone(&broker.replication.throttles),
        impairments: Arc::clone(&broker.replication.impairments),
        suspects: Arc::clone(&broker.replication.suspects),
        log,
        producers,
        config: config.clone(),
        settings: replica_settings(config, &broker.config),
    })
}

/// How many logs are closed at a time. Each costs some fsyncs, and a file system joins those that come at once.
const CLOSED_AT_ONCE: usize = 8;

/// Closes every log and marks the directories clean, if the broker knows under which epoch it ran.
pub(crate) async fn close_all<E: Env>(broker: &Arc<Broker<E>>, epoch: Option<BrokerEpoch>) {
    let waiting = Arc::new(Mutex::new(broker.partitions()));
    let (ended, mut closers) = mpsc::channel(CLOSED_AT_ONCE);
    for _ in 0..CLOSED_AT_ONCE {
        let (waiting, ended, env) = (Arc::clone(&waiting), ended.clone(), broker.env.clone());
        broker.env.spawn(async move {
            let dirty = env.run_blocking(move || close_waiting(&waiting)).await;
            // Nobody listens only if the stop itself was given up.
            let _ = ended.send(dirty).await;
        });
    }
    drop(ended);
    let mut dirty = BTreeSet::new();
    while let Some(more) = closers.recv().await {
        dirty.extend(more);
    }
    let directories = broker.replication.directories().to_vec();
    let marks = broker.env.run_blocking(move || {
        for directory in directories {
            if dirty.contains(directory.path()) || directory.offline().is_some() {
                continue;
            }
            let Some(epoch) = epoch else { continue };
            if let Err(error) = directory.mark_clean_shutdown(epoch.0) {
                tracing::warn!(directory = %directory.path().display(), %error, "not marked clean");
            }
        }
    });
    marks.await;
}

/// Closes logs until none waits. Gives the directories in which one could not be closed.
fn close_waiting<E: Env>(waiting: &Mutex<Vec<Arc<Partition<E>>>>) -> BTreeSet<PathBuf> {
    let mut dirty = BTreeSet::new();
    loop {
        let next = waiting.lock().expect("no panic while locked").pop();
        let Some(partition) = next else {
            return dirty;
        };
        partition.publish_high_watermark();
        // In this order: no copy is begun of a replica that is closed.
        for (path, result) in [partition.close(), partition.close_copy()]
            .into_iter()
            .flatten()
        {
            if let Err(error) = result {
                tracing::warn!(partition = %partition.name(), %error, "log not closed cleanly");
                dirty.insert(path);
            }
        }
    }
}

/// What a failed open of a new replica means to the caller.
pub(super) fn already_exists(error: &LogError) -> bool {
    matches!(error, LogError::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
}
