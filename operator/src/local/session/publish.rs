//! What the session tells the outside: addresses for the status, and the report that `local status` shows.

use taffrail_crds::ListenerStatus;

use super::super::folder::{replace, status_file};
use super::super::report::{
    BrokerReport, ClusterReport, KeptReport, PartitionReport, Report, TopicReport,
};
use super::Session;

impl Session {
    pub(super) fn listeners(&self) -> Vec<ListenerStatus> {
        // All client listeners are one on this machine: there is no outside.
        let first = self.valid.cluster.listeners.first();
        first
            .map(|listener| ListenerStatus {
                name: listener.name.clone(),
                bootstrap_servers: self.bootstrap_servers(),
            })
            .into_iter()
            .collect()
    }

    /// Addresses for Kafka clients.
    pub(in crate::local) fn bootstrap_servers(&self) -> String {
        let addresses: Vec<String> = self
            .brokers()
            .into_iter()
            .map(|broker| self.setup.ports.client(broker).to_string())
            .collect();
        addresses.join(",")
    }

    /// What `local status` shows.
    pub(in crate::local) fn report(&self) -> Report {
        let world = self.kafka.world().unwrap_or_default();
        let topics = self.topic_statuses.iter().map(|(object, status)| {
            let topic = status
                .topic_name
                .as_ref()
                .and_then(|name| world.topics.get(name));
            let partitions = topic.into_iter().flat_map(|topic| &topic.partitions);
            TopicReport {
                object: object.clone(),
                status: status.clone(),
                partitions: partitions
                    .map(|(&partition, state)| PartitionReport {
                        partition,
                        leader: state.leader,
                        replicas: state.replicas.clone(),
                        isr: state.isr.clone(),
                    })
                    .collect(),
            }
        });
        let kept = self.memory.kept.iter().map(|(topic, kept)| KeptReport {
            topic: topic.clone(),
            object: kept.object.clone(),
            message: format!(
                "Topic {} was removed and said deletionPolicy: Retain; a Topic of this name takes it up again",
                kept.object
            ),
        });
        let brokers = self.started_with.iter().map(|(&id, with)| BrokerReport {
            id,
            pid: self.supervisor.pid(id),
            state: self.supervisor.state(id).to_owned(),
            ready: self.is_broker_ready(id),
            restarts: self.supervisor.restarts(id),
            client: self.setup.ports.client(id).to_string(),
            metrics: self.setup.ports.metrics(id).to_string(),
            config: self.folder.properties(id),
            spec_config: with.config.clone(),
            volumes: with.volumes.clone(),
            told: self.told.get(&id).cloned(),
            log: self.folder.log(id),
        });
        let leaving = self
            .supervisor
            .brokers()
            .filter(|broker| !self.started_with.contains_key(broker));
        Report {
            running: true,
            pid: std::process::id(),
            file: self.setup.file.clone(),
            data_dir: self.folder.path().to_owned(),
            base_port: self.setup.base_port,
            bootstrap_servers: self.bootstrap_servers(),
            metrics: format!("http://{}/metrics", self.setup.ports.operator_metrics()),
            cluster: ClusterReport {
                object: self.valid.cluster.key.clone(),
                status: self.cluster_status.clone(),
            },
            brokers: brokers.collect(),
            leaving: leaving.collect(),
            topics: topics.collect(),
            kept: kept.collect(),
            file_error: self.file_error.clone(),
        }
    }

    /// Writes the report where `local status` finds it, if it changed.
    pub(in crate::local) fn publish(&mut self) {
        let text = match serde_json::to_string_pretty(&self.report()) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, "the status cannot be written");
                return;
            }
        };
        if text == self.written {
            return;
        }
        match replace(&status_file(self.folder.path()), &text) {
            Ok(()) => {
                self.written = text;
                self.unwritable = false;
            }
            // Tried again with each change, told once.
            Err(error) => {
                if !std::mem::replace(&mut self.unwritable, true) {
                    tracing::warn!(%error, "the status cannot be written: `local status` shows an old one");
                }
            }
        }
    }
}
