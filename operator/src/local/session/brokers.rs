//! The session's steps that concern brokers: files written, processes started.

use std::fs;
use std::time::Instant;

use super::super::LocalError;
use super::super::broker_file::{Told, properties};
use super::super::folder::replace;
use super::super::supervisor::BrokerCommand;
use super::Session;
use crate::observed::ObservedBroker;
use crate::properties::text;

impl Session {
    /// Starts the brokers that have data but are more than the Cluster wants: their replicas are needed until they are
    /// moved.
    pub(in crate::local) fn start_surplus(&mut self) -> Result<(), LocalError> {
        let surplus = self.memory.brokers.iter().copied();
        let surplus: Vec<i32> = surplus
            .filter(|broker| *broker >= self.valid.cluster.brokers)
            .collect();
        let now = Instant::now();
        surplus
            .into_iter()
            .try_for_each(|broker| self.create_broker(broker, now))
    }

    pub(super) fn create_broker(&mut self, broker: i32, now: Instant) -> Result<(), LocalError> {
        // Its own process may not have stopped yet, and holds them until then.
        if !self.supervisor.brokers().any(|known| known == broker) {
            self.setup.ports.check_free(broker)?;
        }
        let command = self.write_broker(broker)?;
        // Written down first: a broker that ran may hold data.
        if !self.memory.brokers.contains(&broker) {
            self.memory.brokers.push(broker);
            self.memory.brokers.sort_unstable();
            self.memory.save(self.folder.path())?;
        }
        let program = command.program.clone();
        self.supervisor
            .start(broker, command, now)
            .map_err(LocalError::io(program))
    }

    pub(super) fn update_broker(&mut self, broker: i32, now: Instant) -> Result<(), LocalError> {
        let command = self.write_broker(broker)?;
        self.supervisor.restart(broker, command, now);
        Ok(())
    }

    fn write_broker(&mut self, broker: i32) -> Result<BrokerCommand, LocalError> {
        let cluster = &self.valid.cluster;
        let config = match &cluster.config {
            Ok(config) => config.clone(),
            // No step is planned for a refused configuration; a surplus broker keeps what it had.
            Err(_) => self
                .started_with
                .get(&broker)
                .map(|with| with.config.clone())
                .unwrap_or_default(),
        };
        for volume in &cluster.volumes {
            let path = self.folder.volume(broker, volume);
            fs::create_dir_all(&path).map_err(LocalError::data(&path))?;
        }
        let told = Told::now(cluster, &self.memory.voters, broker);
        let properties = properties(
            cluster,
            &config,
            &told,
            broker,
            self.setup.ports,
            &self.folder,
        );
        let path = self.folder.properties(broker);
        replace(&path, &text(&properties))?;
        let with = ObservedBroker {
            config,
            volumes: cluster.volumes.clone(),
            outdated: Vec::new(),
            ready: false,
            down: true,
            safe_to_stop: None,
        };
        self.started_with.insert(broker, with);
        self.told.insert(broker, told);
        self.health.remove(&broker);
        Ok(BrokerCommand {
            program: self.setup.binary.clone(),
            arguments: vec!["--config".to_owned(), path.display().to_string()],
            log: self.folder.log(broker),
        })
    }
}
