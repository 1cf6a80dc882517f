//! From committed metadata to replicas: logs made and deleted, roles taken, fetchers told. Only what differs between two
//! images is looked at; what is on disk but not in the metadata is set aside, never deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use taffrail_core::config::BrokerConfig;
use taffrail_core::controller::Impairment;
use taffrail_core::ids::{TopicId, TopicPartition};
use taffrail_core::metadata::{Changes, ConfigResource, Image};
use taffrail_log::{LogDirectory, PartitionFolder, with_fewest_partitions};

use super::directories::{already_exists, make_partition, set_aside};
use crate::broker::Broker;
use crate::env::Env;
use crate::partition::{Partition, RoleChange, log_config, replica_settings};

impl<E: Env> Broker<E> {
    /// Makes the replicas here what `new` says. Called with each image in order, after it became visible.
    ///
    /// Until the image holds this process's own registration it is history: it may name this broker the leader of
    /// what others lead by now. Of history only deletions are taken, for they are final.
    pub(crate) fn apply_metadata(self: &Arc<Self>, old: &Arc<Image>, new: &Arc<Image>) {
        if self.is_stopping() {
            // The logs are being closed; the next start finds out what there is to do.
            return;
        }
        for (topic_id, name) in &Changes::between(old, new).removed_topics {
            self.delete_topic(*topic_id, name);
            for missing in self.replication.missing_of(*topic_id) {
                self.replication.forget_missing(missing);
            }
        }
        let registered = new
            .broker(self.id)
            .is_some_and(|registration| registration.incarnation == self.incarnation);
        if !registered {
            return;
        }
        let nothing = Arc::new(Image::default());
        let old = if self.replication.joins() {
            self.note_missing(new);
            &nothing
        } else {
            old
        };
        let changes = Changes::between(old, new);
        self.apply_configs(new, &changes);
        for id in self.touched(new, &changes) {
            self.apply_partition(new, id);
        }
        self.report_elections(old, new, &changes);
        self.groups.apply_metadata(self, old, new, &changes);
    }

    /// Partitions whose state changed, and those here that a changed broker has a replica of.
    fn touched(&self, new: &Image, changes: &Changes) -> BTreeSet<TopicPartition> {
        let mut touched = changes.partitions.clone();
        if !changes.brokers.is_empty() {
            let held = self.partitions();
            touched.extend(held.iter().map(|partition| partition.id).filter(|id| {
                new.partition(*id).is_some_and(|state| {
                    state
                        .replicas
                        .iter()
                        .any(|broker| changes.brokers.contains(broker))
                })
            }));
        }
        touched
    }

    fn apply_partition(self: &Arc<Self>, image: &Image, id: TopicPartition) {
        let Some(state) = image.partition(id) else {
            return;
        };
        let held = self.partition(id);
        let partition = match (held, state.replicas.contains(&self.id)) {
            (None, false) => return self.replication.forget_missing(id),
            (None, true) if self.replication.is_missing(id) => return,
            (Some(partition), true) => partition,
            (Some(partition), false) => {
                tracing::info!(partition = %partition.name(), "the replica was moved away and is deleted here");
                self.delete_replica(&partition);
                return;
            }
            (None, true) => match self.create_replica(image, id) {
                Some(partition) => partition,
                None => {
                    self.replication.impairments.add(id, Impairment::Offline);
                    return self.replication.try_again(id);
                }
            },
        };
        // First of all: the leader of before takes a fetch for proof that this broker neither leads nor follows another one.
        self.replication.unfollow_unless(state.leader, id);
        match partition.apply_metadata(image, self.env.now()) {
            Ok(RoleChange::Follows(leader)) => self.replication.follow(self, leader, id),
            Ok(RoleChange::Leads | RoleChange::Idle) => self.replication.unfollow(id),
            Err(error) => {
                tracing::error!(partition = %partition.name(), ?error, "the replica cannot take its role");
                partition.resign();
                self.replication.unfollow(id);
                self.replication.try_again(id);
            }
        }
    }

    /// With a log directory out of use since the start, replicas that should be here and are not may be in it. They stay
    /// offline until it is back or taken out of `log.dirs`.
    fn note_missing(&self, image: &Image) {
        let broken = self.replication.offline_directory_count();
        if broken == 0 {
            return;
        }
        let mut missing = 0;
        for (id, state) in image.partitions() {
            if state.replicas.contains(&self.id) && self.partition(id).is_none() {
                self.replication.add_missing(id);
                missing += 1;
            }
        }
        if missing > 0 {
            tracing::error!(
                replicas = missing,
                directories = broken,
                "replicas were not found, and may be in a log directory that cannot be used: they stay offline until it is repaired, or taken out of log.dirs to have them made anew from the other replicas"
            );
        }
    }

    fn create_replica(&self, image: &Image, id: TopicPartition) -> Option<Arc<Partition<E>>> {
        let topic = image.topic(id.topic_id)?;
        let directories = self.replication.directories();
        let wish = self.replication.moves.wished(&topic.name, id.partition);
        let wished = directories.iter().position(|directory| {
            wish.as_deref() == Some(directory.path()) && directory.offline().is_none()
        });
        let Some(index) = wished.or_else(|| with_fewest_partitions(directories)) else {
            tracing::error!(
                topic = topic.name,
                partition = id.partition,
                "no log directory is left for a new replica"
            );
            return None;
        };
        let directory = &directories[index];
        let config = self.topic_config(image, &topic.name);
        let log_config = Arc::new(log_config(&config, self.env.random()));
        let create = || {
            directory.create_log(
                &topic.name,
                id.partition,
                id.topic_id.0,
                Arc::clone(&log_config),
                self.env.wall_ms(),
            )
        };
        let created = match create() {
            Err(error) if already_exists(&error) => {
                self.set_namesake_aside(directory, &topic.name, id);
                create()
            }
            other => other,
        };
        match created {
            Ok(log) => {
                let partition = make_partition(self, id, &topic.name, log, &config);
                self.insert_partition(Arc::clone(&partition));
                self.replication.impairments.remove(id, Impairment::Offline);
                self.replication
                    .moves
                    .forget_wish(&topic.name, id.partition);
                Some(partition)
            }
            Err(error) => {
                tracing::error!(topic = topic.name, partition = id.partition, %error, "the replica could not be made");
                None
            }
        }
    }

    /// A folder of that name is there: of a topic that was deleted while this broker was away. It is kept.
    fn set_namesake_aside(
        &self,
        directory: &LogDirectory<E::Disk>,
        topic: &str,
        id: TopicPartition,
    ) {
        let namesake = self.partitions().into_iter().find(|held| {
            &*held.topic == topic && held.id.partition == id.partition && held.id != id
        });
        match namesake {
            Some(held) => self.keep_stray(&held),
            None => {
                let folder = PartitionFolder::live(topic, id.partition);
                if let Err(error) = directory.mark_stray(&folder) {
                    tracing::warn!(partition = folder.name, %error, "the replica of another topic could not be set aside");
                }
            }
        }
    }

    fn keep_stray(&self, partition: &Partition<E>) {
        self.replication.unfollow(partition.id);
        self.replication.impairments.forget(partition.id);
        self.remove_partition(partition.id);
        let log = partition.take_log();
        if let Some(copy) = partition.cancel_move() {
            self.remove_deleted(partition.name(), copy);
        }
        if let Some(log) = log {
            let (directory, folder) = (log.directory().clone(), log.folder().clone());
            set_aside(&directory, &folder, log);
        }
    }

    fn delete_topic(self: &Arc<Self>, topic_id: TopicId, name: &str) {
        let held = self.partitions_of(topic_id);
        if !held.is_empty() {
            tracing::info!(topic = name, %topic_id, replicas = held.len(), "topic deleted");
        }
        for partition in held {
            self.delete_replica(&partition);
        }
        self.metrics().forget_topic(name);
    }

    /// Takes a replica out at once; its files go in the background.
    fn delete_replica(&self, partition: &Arc<Partition<E>>) {
        self.replication.unfollow(partition.id);
        self.replication.impairments.forget(partition.id);
        self.remove_partition(partition.id);
        let log = partition.take_log();
        // The copy goes first: without a replica beside it a start could take it for one.
        if let Some(copy) = partition.cancel_move() {
            self.remove_deleted(partition.name(), copy);
        }
        let Some(log) = log else { return };
        let (directory, folder) = (log.directory().clone(), log.folder().clone());
        drop(log);
        let name = partition.name();
        match directory.mark_deleted(&folder) {
            Ok(deleted) => self.remove_deleted(name, (directory, deleted)),
            Err(error) => {
                tracing::warn!(partition = name, %error, "a deleted replica could not be renamed")
            }
        }
    }

    fn apply_configs(&self, image: &Image, changes: &Changes) {
        let own = |resource: &ConfigResource| match resource {
            ConfigResource::Broker(of) => of.is_none_or(|id| id == self.id),
            ConfigResource::Topic(_) => false,
        };
        if changes.configs.iter().any(own) {
            // Values that cannot be read are told with the topics' configs.
            let (config, _) = BrokerConfig::lenient(&self.cluster.layers(image));
            self.replication.throttles.set_rates(&config);
        }
        for resource in &changes.configs {
            let partitions = match resource {
                ConfigResource::Topic(name) => match image.topic_by_name(name) {
                    Some(topic) => self.partitions_of(topic.id),
                    None => Vec::new(),
                },
                ConfigResource::Broker(None) => self.partitions(),
                ConfigResource::Broker(Some(id)) if *id == self.id => self.partitions(),
                ConfigResource::Broker(Some(_)) => Vec::new(),
            };
            for partition in partitions {
                let config = self.topic_config(image, &partition.topic);
                let log_config = log_config(&config, self.env.random());
                let settings = replica_settings(&config, &self.config);
                partition.handle_config(&config, log_config, settings, self.env.now());
            }
        }
    }

    /// Tries again what could not be done when the metadata said so: a disk that was full may have room by now.
    pub(crate) fn retry_partitions(self: &Arc<Self>) {
        self.cluster.with_followed(|image| {
            for id in self.replication.take_retries() {
                self.apply_partition(image, id);
            }
        });
    }

    /// Once the metadata is known to be current: replicas on disk that it does not know are set aside. Those that it
    /// places elsewhere were moved while this broker was away; they too are kept, not deleted.
    ///
    /// They are judged by the image that this broker follows: a newer one has topics less whose replicas are about to be
    /// deleted, and topics more.
    pub(crate) fn set_strays_aside(&self) {
        if self.replication.strays_checked() {
            return;
        }
        self.cluster.with_followed(|image| {
            for partition in self.partitions() {
                let known = image
                    .partition(partition.id)
                    .is_some_and(|state| state.replicas.contains(&self.id));
                if !known {
                    tracing::warn!(partition = %partition.name(), topic_id = %partition.id.topic_id, "the metadata knows no such replica here");
                    self.keep_stray(&partition);
                }
            }
        });
    }
}
