//! How this broker joins its cluster: open the metadata log, take the seat in the quorum or follow it, register.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::ControllerConfig;
use taffrail_core::metadata::Image;
use taffrail_core::raft::{Persisted, RaftConfig, RaftNode};

use super::metadata_log::{self, DAMAGED_ADVICE, MetadataLog, MetadataLogError};
use super::quorum::{Parts, Task};
use super::seat::SeatLost;
use super::{Cluster, doubts, millis, observer, published, records, registration, seat, seating};
use crate::broker::Broker;
use crate::env::Env;
use crate::node::StartError;

/// An election timeout lasts 10 to 20 ticks, so a twentieth of the configured one makes it the upper end.
const TICKS_PER_ELECTION_TIMEOUT: u32 = 20;

impl<E: Env> Cluster<E> {
    /// Opens the metadata log and starts the tasks; the log directories are open already. When it returns, the image has
    /// what was known to be committed at the last stop.
    pub(crate) async fn start(&self, broker: &Arc<Broker<E>>) -> Result<(), StartError> {
        if self.broker.set(Arc::downgrade(broker)).is_err() {
            return Err(StartError::Storage(
                "the cluster was started twice".to_string(),
            ));
        }
        if self.is_observer() {
            broker.env.spawn(observer::run(Arc::clone(broker)));
        } else {
            self.take_seat(broker).await?;
        }
        broker.env.spawn(doubts::run(Arc::clone(broker)));
        broker.env.spawn(published::follow(Arc::clone(broker)));
        broker.env.spawn(registration::run(Arc::clone(broker)));
        Ok(())
    }

    async fn take_seat(&self, broker: &Arc<Broker<E>>) -> Result<(), StartError> {
        let (folder, exists) = self.metadata_folder(broker)?;
        // A voter that served before has voted before.
        let has_served =
            !broker.partitions().is_empty() || broker.replication.clean_shutdown_epoch().is_some();
        let is_alone = self.configured_voters.len() == 1;
        if is_alone && has_served && !exists {
            return Err(StartError::Storage(format!(
                "broker {} alone votes on the cluster's metadata and has data, but its metadata log {} is missing: bring the \
                 folder back, or correct log.dirs and metadata.log.dir",
                broker.id,
                folder.display()
            )));
        }
        if let Some(directory) = folder.parent() {
            self.place_seat(broker, directory)?;
        }
        let disk = broker.env.disk().clone();
        let broker_id = broker.id.0;
        let founders = self.configured_voters.clone();
        let opened = broker
            .env
            .run_blocking(move || MetadataLog::open(&disk, &folder, broker_id, &founders))
            .await;
        let (log, persisted) = opened.map_err(start_error)?;
        if !is_alone && persisted == Persisted::default() {
            let seating = seating::run(Arc::clone(broker), log, has_served);
            broker.env.spawn(seating);
            return Ok(());
        }
        self.seat(broker, log, persisted).await
    }

    /// Takes the seat in the quorum, with what the metadata log holds.
    pub(super) async fn seat(
        &self,
        broker: &Arc<Broker<E>>,
        log: MetadataLog<E::Disk>,
        persisted: Persisted,
    ) -> Result<(), StartError> {
        let config = &broker.config;
        let (image, applied) = match &persisted.snapshot {
            Some(snapshot) => {
                let image = records::replay(&snapshot.data).map_err(|error| {
                    StartError::Storage(format!(
                        "metadata snapshot {} cannot be used: {error}. {DAMAGED_ADVICE}",
                        snapshot.index
                    ))
                })?;
                (image, snapshot.index)
            }
            None => (Image::default(), 0),
        };
        let recorded = image.voter(broker.id);
        if image.voters().count() > 1 && seat::is_other(recorded, self.seat.directory()) {
            let now = broker.env.now();
            self.published.publish(applied, Arc::new(image), now);
            let recorded = recorded.and_then(|voter| voter.directory);
            self.give_up_seat(broker, SeatLost::Replaced(recorded));
            return Ok(());
        }
        let raft = RaftNode::new(
            &RaftConfig::new(broker.id, log.founders().to_vec(), broker.env.random()),
            persisted,
        )
        .map_err(|error| StartError::Storage(format!("metadata log: {error}")))?;
        self.seat.set_log_end(raft.last_index());
        let parts = Parts {
            raft,
            log,
            image,
            applied,
            tick: millis(config.controller_quorum_election_timeout_ms) / TICKS_PER_ELECTION_TIMEOUT,
            snapshot_after_bytes: u64::try_from(
                config.metadata_log_max_record_bytes_between_snapshots,
            )
            .unwrap_or(u64::MAX),
            config: controller_config(broker),
        };
        let Some((sender, events)) = self.quorum.open() else {
            return Err(StartError::Storage(
                "the quorum was joined twice".to_string(),
            ));
        };
        let mut task = Task::new(broker, parts, &sender, events);
        task.begin().await.map_err(StartError::Storage)?;
        self.check_cluster_id()?;
        broker.env.spawn(task.run());
        Ok(())
    }

    /// The folder of the metadata log: where one is, else where one belongs; and whether there is one. A volume that was put in
    /// front of the others must not make a voter forget, nor one that cannot be read.
    fn metadata_folder(&self, broker: &Broker<E>) -> Result<(PathBuf, bool), StartError> {
        let directories = match &broker.config.metadata_log_dir {
            Some(directory) => std::slice::from_ref(directory),
            None => broker.config.log_dirs.as_slice(),
        };
        let mut first = None;
        let mut unreadable = None;
        for directory in directories {
            let folder = Path::new(directory).join(metadata_log::FOLDER);
            match MetadataLog::exists(broker.env.disk(), &folder) {
                Ok(true) => return Ok((folder, true)),
                Ok(false) => {}
                Err(error) => unreadable = Some(error),
            }
            first.get_or_insert(folder);
        }
        if let Some(error) = unreadable {
            return Err(StartError::Storage(format!(
                "{error}: nobody can tell whether this voter's metadata log is there. Bring the disk back, or, if it is lost and \
                 all other voters run, take its directory out of log.dirs or give it an empty one"
            )));
        }
        let folder = first.unwrap_or_else(|| PathBuf::from(metadata_log::FOLDER));
        Ok((folder, false))
    }

    fn check_cluster_id(&self) -> Result<(), StartError> {
        let image = self.image();
        match (image.cluster_id(), &self.configured_cluster_id) {
            (Some(committed), Some(configured)) if committed != configured => {
                Err(StartError::Identity(format!(
                    "the metadata log is of cluster {committed}, but cluster.id is {configured}: correct cluster.id or log.dirs"
                )))
            }
            _ => Ok(()),
        }
    }
}

fn start_error(error: MetadataLogError) -> StartError {
    match error {
        MetadataLogError::OtherBroker { .. } => StartError::Identity(error.to_string()),
        MetadataLogError::Io { .. }
        | MetadataLogError::Damaged { .. }
        | MetadataLogError::Full { .. }
        | MetadataLogError::Poisoned => StartError::Storage(error.to_string()),
    }
}

fn controller_config<E: Env>(broker: &Broker<E>) -> ControllerConfig {
    let config = &broker.config;
    let rebalance =
        u64::try_from(config.leader_imbalance_check_interval_seconds).unwrap_or(u64::MAX);
    ControllerConfig {
        session_timeout: millis(config.broker_session_timeout_ms),
        default_partitions: config.num_partitions,
        default_replication_factor: i16::try_from(config.default_replication_factor)
            .unwrap_or(i16::MAX),
        min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1),
        unclean_leader_election: config.unclean_leader_election_enable,
        leader_rebalance_interval: config
            .auto_leader_rebalance_enable
            .then(|| Duration::from_secs(rebalance)),
        leader_imbalance_percentage: usize::try_from(config.leader_imbalance_per_broker_percentage)
            .unwrap_or(usize::MAX),
        ..ControllerConfig::default()
    }
}
