//! One run of a local cluster: what is wanted, what was seen, and what is done about the difference. It does no waiting:
//! `run` calls it when something happened, and carries its jobs to the brokers.

mod brokers;
mod publish;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use taffrail_crds::{ClusterStatus, TopicStatus};

use super::LocalError;
use super::broker_file::Told;
use super::folder::DataFolder;
use super::intent::{only_cluster, take};
use super::memory::{KeptTopic, Memory};
use super::ports::Ports;
use super::probe::Job;
use super::supervisor::Supervisor;
use crate::health::{Addresses, Health};
use crate::manifest::{self, Objects};
use crate::metrics::{Metrics, PassResult};
use crate::object::ObjectKey;
use crate::observed::{ManagedTopic, Observed, ObservedBroker, ObservedKafka};
use crate::plan::{Plan, PlannedStep, Step, plan};
use crate::refusal::{Concern, Reason, Refusal};
use crate::status::{Failures, cluster_status, is_ready, refused_status, topic_status};
use crate::validate::{Intent, Valid, validate};

/// What a run is started with.
#[derive(Clone, Debug)]
pub(in crate::local) struct Setup {
    /// The manifest file.
    pub(in crate::local) file: PathBuf,
    /// The broker program.
    pub(in crate::local) binary: PathBuf,
    /// Its ports.
    pub(in crate::local) ports: Ports,
    /// First port.
    pub(in crate::local) base_port: u16,
    /// Counts what the run does.
    pub(in crate::local) metrics: Metrics,
}

/// What a pass leaves to be carried to the brokers.
#[derive(Debug)]
pub(in crate::local) enum Next {
    /// Steps for the worker; the pass ends when they are done.
    Apply(Vec<PlannedStep>),
    /// The pass has ended.
    Ended,
}

/// The run.
#[derive(Debug)]
pub(in crate::local) struct Session {
    setup: Setup,
    folder: DataFolder,
    memory: Memory,
    /// The processes.
    pub(in crate::local) supervisor: Supervisor,
    started_with: BTreeMap<i32, ObservedBroker>,
    /// What each broker was told of its cluster when it was started.
    told: BTreeMap<i32, Told>,
    /// The processes that were asked in the pass under way.
    asked: BTreeMap<i32, u32>,
    health: BTreeMap<i32, Health>,
    valid: Valid,
    kafka: ObservedKafka,
    plan: Plan,
    failures: Failures,
    failures_before: Failures,
    cluster_status: ClusterStatus,
    topic_statuses: BTreeMap<ObjectKey, TopicStatus>,
    file_error: Option<String>,
    /// Steps done that nobody was told of yet.
    news: Vec<String>,
    written: String,
    /// Whether the last attempt to write the status failed.
    unwritable: bool,
    began: Option<(Instant, bool)>,
}

impl Session {
    /// A run over a locked folder, before anything is started. The file's objects are in force from here on.
    pub(in crate::local) fn new(
        setup: Setup,
        folder: DataFolder,
        mut memory: Memory,
        objects: &Objects,
    ) -> Result<Self, LocalError> {
        let cluster = only_cluster(&setup.file, objects)?;
        let intent = take(cluster, objects, &mut memory);
        let valid = judge(&intent, objects);
        if let Err(refusal) = &valid.cluster.config {
            // While it runs this is a condition; at the start there would be nothing to see it on.
            return Err(LocalError::Cluster {
                path: setup.file,
                cluster: valid.cluster.key.to_string(),
                message: refusal.message.clone(),
            });
        }
        memory.save(folder.path())?;
        Ok(Self {
            setup,
            folder,
            memory,
            supervisor: Supervisor::default(),
            started_with: BTreeMap::new(),
            told: BTreeMap::new(),
            asked: BTreeMap::new(),
            health: BTreeMap::new(),
            valid,
            kafka: ObservedKafka::Absent,
            plan: Plan::default(),
            failures: Failures::new(),
            failures_before: Failures::new(),
            cluster_status: ClusterStatus::default(),
            topic_statuses: BTreeMap::new(),
            file_error: None,
            news: Vec::new(),
            written: String::new(),
            unwritable: false,
            began: None,
        })
    }

    /// Takes the changed file. An unusable one changes nothing; the error is for the person who wrote it.
    pub(in crate::local) fn reload(&mut self) -> Result<(), LocalError> {
        let loaded = self.load_file();
        self.file_error = loaded.as_ref().err().map(ToString::to_string);
        let objects = loaded?;
        let intent = take(
            only_cluster(&self.setup.file, &objects)?,
            &objects,
            &mut self.memory,
        );
        self.valid = judge(&intent, &objects);
        self.memory.save(self.folder.path())
    }

    /// Goes on without the file, which is gone or cannot be read, until it is back. What is wrong, for the person who may have
    /// moved it.
    pub(in crate::local) fn lost_file(&mut self, error: &io::Error) -> String {
        let file = self.setup.file.display();
        let what = match error.kind() {
            io::ErrorKind::NotFound => format!("{file} is gone"),
            _ => format!("{file} cannot be read ({error})"),
        };
        let lost = format!(
            "{what}; the cluster runs on as the manifest said last, and takes changes again once it is back."
        );
        self.file_error = Some(lost.clone());
        lost
    }

    fn load_file(&self) -> Result<Objects, LocalError> {
        let objects = manifest::objects(&manifest::read(&self.setup.file)?)?;
        let (key, cluster, _) = only_cluster(&self.setup.file, &objects)?;
        if *key != self.memory.cluster {
            return Err(other_cluster(self.folder.path(), &self.memory, key));
        }
        Ports::new(self.setup.base_port, cluster.spec.brokers)?;
        Ok(objects)
    }

    /// What to ask the brokers for the next pass.
    pub(in crate::local) fn begin_pass(&mut self, now: Instant) -> Job {
        self.began = Some((now, false));
        let key = &self.valid.cluster.key;
        self.setup
            .metrics
            .pass_began(&key.namespace, &key.name, unix_seconds());
        let pids = self.started_with.keys();
        self.asked = pids
            .filter_map(|&id| Some((id, self.supervisor.serving_pid(id)?)))
            .collect();
        let brokers = self.started_with.keys().map(|&id| {
            let addresses = Addresses {
                client: self.setup.ports.client(id),
                http: self.setup.ports.metrics(id),
            };
            (id, addresses)
        });
        Job::Observe {
            brokers: brokers.collect(),
            configured: self
                .valid
                .topics
                .iter()
                .map(|topic| topic.name.clone())
                .collect(),
        }
    }

    /// Goes on with a pass: plans, does what concerns brokers, and hands out what concerns topics.
    pub(in crate::local) fn observed(
        &mut self,
        health: BTreeMap<i32, Health>,
        kafka: ObservedKafka,
        now: Instant,
    ) -> Next {
        self.health = health;
        // A process that is stopping, or has been replaced since, says nothing about the one that will serve.
        let (asked, supervisor) = (&self.asked, &self.supervisor);
        self.health.retain(|id, _| {
            let pid = asked.get(id).copied();
            pid.is_some() && pid == supervisor.serving_pid(*id)
        });
        self.kafka = if self.memory.brokers.is_empty() {
            ObservedKafka::Absent
        } else {
            kafka
        };
        self.remember_topics();
        let observed = self.world();
        self.plan = plan(&self.valid, &observed);
        self.failures.clear();
        let mut for_topics = Vec::new();
        let mut brokers_change = false;
        for planned in self.plan.steps.clone() {
            match &planned.step {
                Step::CreateBroker { broker } => {
                    let result = self.create_broker(*broker, now);
                    brokers_change = true;
                    self.step_ended(&planned, result.err().map(|error| error.to_string()));
                }
                Step::UpdateBroker { broker } => {
                    let result = self.update_broker(*broker, now);
                    brokers_change = true;
                    self.step_ended(&planned, result.err().map(|error| error.to_string()));
                }
                Step::RemoveBroker { broker } => {
                    self.supervisor.remove(*broker, now);
                    self.started_with.remove(broker);
                    self.memory.brokers.retain(|id| id != broker);
                    self.step_ended(&planned, None);
                }
                Step::ReleaseTopic { name, .. } => {
                    self.release_topic(name);
                    self.step_ended(&planned, None);
                }
                Step::CreateTopic { .. }
                | Step::AddPartitions { .. }
                | Step::AlterTopicConfig { .. }
                | Step::Reassign { .. }
                | Step::DeleteTopic { .. } => for_topics.push(planned),
            }
        }
        // Topics wait for the next look when brokers were touched just now.
        if for_topics.is_empty() || brokers_change {
            self.end_pass(&observed, now);
            Next::Ended
        } else {
            Next::Apply(for_topics)
        }
    }

    /// Ends a pass whose topic steps were carried out.
    pub(in crate::local) fn applied(
        &mut self,
        results: Vec<(PlannedStep, Option<String>)>,
        now: Instant,
    ) {
        for (planned, error) in results {
            if error.is_none()
                && let Step::DeleteTopic { name, .. } = &planned.step
            {
                self.memory.managed.remove(name);
            }
            self.step_ended(&planned, error);
        }
        let observed = self.world();
        self.end_pass(&observed, now);
    }

    fn end_pass(&mut self, observed: &Observed, now: Instant) {
        self.update_statuses(observed);
        let key = self.valid.cluster.key.clone();
        let (began, changed) = self.began.take().unwrap_or((now, false));
        let result = if !self.failures.is_empty() {
            PassResult::Failed
        } else if changed {
            PassResult::Changed
        } else {
            PassResult::Steady
        };
        let metrics = &self.setup.metrics;
        metrics.pass_ended(
            &key.namespace,
            &key.name,
            result,
            now.saturating_duration_since(began),
            unix_seconds(),
        );
        metrics.set_paused(usize::from(self.valid.cluster.paused));
        metrics.set_blocked(self.plan.refusals().map(|refusal| refusal.reason.word()));
        let ready = self
            .topic_statuses
            .values()
            .filter(|status| is_ready(&status.conditions))
            .count();
        metrics.set_managed("Topic", ready, self.topic_statuses.len() - ready);
        let ready = usize::from(is_ready(&self.cluster_status.conditions));
        metrics.set_managed("Cluster", ready, 1 - ready);
        self.publish();
    }

    /// How soon to look again.
    pub(in crate::local) fn next_look(&self) -> Duration {
        if self.is_settled() {
            Duration::from_millis(1000)
        } else {
            Duration::from_millis(200)
        }
    }

    /// Whether all is as wanted, or waits for someone to change the manifest.
    pub(in crate::local) fn is_settled(&self) -> bool {
        let all_but_refused = |conditions: &[taffrail_crds::Condition], refusals: &[Refusal]| {
            is_ready(conditions)
                || refusals
                    .iter()
                    .any(|refusal| !refusal.reason.is_transient())
        };
        self.failures.is_empty()
            && self.plan.steps.is_empty()
            && matches!(self.kafka, ObservedKafka::Answered(_))
            && all_but_refused(&self.cluster_status.conditions, &self.plan.cluster)
            && self.topic_statuses.iter().all(|(key, status)| {
                let refusals = self.plan.topics.get(key).map_or(&[][..], Vec::as_slice);
                all_but_refused(&status.conditions, refusals)
            })
    }

    /// What someone has to do something about, one line each: refusals that do not pass, and failures seen twice in a
    /// row.
    pub(in crate::local) fn complaints(&self) -> BTreeSet<String> {
        let name = |object: Option<&ObjectKey>| match object {
            None => format!("Cluster {}", self.valid.cluster.key),
            Some(object) => format!("Topic {object}"),
        };
        let mut complaints = BTreeSet::new();
        let refused = self
            .plan
            .topics
            .iter()
            .map(|(object, refusals)| (Some(object), refusals))
            .chain([(None, &self.plan.cluster)]);
        for (object, refusals) in refused {
            for refusal in refusals
                .iter()
                .filter(|refusal| !refusal.reason.is_transient())
            {
                complaints.insert(format!("{}: not done: {refusal}", name(object)));
            }
        }
        for (object, failures) in &self.failures {
            let before = self.failures_before.get(object);
            for failure in failures
                .iter()
                .filter(|failure| before.is_some_and(|before| before.contains(failure)))
            {
                complaints.insert(format!("{}: {failure}", name(object.as_ref())));
            }
        }
        complaints
    }

    /// What was done since the last call, one line each.
    pub(in crate::local) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// The brokers of the Cluster.
    pub(in crate::local) fn brokers(&self) -> Vec<i32> {
        (0..self.valid.cluster.brokers).collect()
    }

    /// Whether a broker said that it serves clients when it was last asked.
    pub(in crate::local) fn is_broker_ready(&self, broker: i32) -> bool {
        self.health.get(&broker).is_some_and(|health| health.ready)
    }

    fn world(&self) -> Observed {
        let brokers = self.started_with.iter().map(|(&id, with)| {
            let health = self.health.get(&id).copied().unwrap_or_default();
            let now = Told::now(&self.valid.cluster, &self.memory.voters, id);
            let told = self.told.get(&id);
            let broker = ObservedBroker {
                outdated: told.map(|told| told.outdated(&now)).unwrap_or_default(),
                ready: health.ready,
                down: !health.ready,
                safe_to_stop: health.safe_to_stop,
                ..with.clone()
            };
            (id, broker)
        });
        Observed {
            brokers: brokers.collect(),
            kafka: self.kafka.clone(),
            managed: self.memory.managed.clone(),
            // Memory has the ids, as of the last look.
            recorded: BTreeMap::new(),
            voters: self.memory.voters.clone(),
        }
    }

    /// Writes down which topics exist for the Topic objects, so that a removal is noticed even if nothing runs then.
    fn remember_topics(&mut self) {
        let world = self.kafka.answered();
        let Some(world) = world.filter(|world| world.authoritative) else {
            return;
        };
        let before = self.memory.clone();
        for topic in &self.valid.topics {
            let Some(existing) = world.topics.get(&topic.name) else {
                continue;
            };
            let managed = ManagedTopic {
                object: topic.key.clone(),
                topic_id: Some(existing.topic_id.clone()),
                deletion_policy: topic.deletion_policy,
            };
            self.memory.managed.insert(topic.name.clone(), managed);
            self.memory.kept.remove(&topic.name);
        }
        self.memory.kept.retain(|name, kept| {
            let existing = world.topics.get(name);
            existing.is_some_and(|topic| kept.topic_id.as_ref() == Some(&topic.topic_id))
        });
        if self.memory != before {
            self.save_memory();
        }
    }

    fn release_topic(&mut self, name: &str) {
        let Some(managed) = self.memory.managed.remove(name) else {
            return;
        };
        let exists = match &self.kafka {
            ObservedKafka::Answered(world) => world
                .topics
                .get(name)
                .is_some_and(|topic| managed.topic_id.as_ref() == Some(&topic.topic_id)),
            ObservedKafka::Absent | ObservedKafka::Unreachable { .. } => false,
        };
        if exists {
            let kept = KeptTopic {
                object: managed.object,
                topic_id: managed.topic_id,
            };
            self.memory.kept.insert(name.to_owned(), kept);
        }
    }

    fn step_ended(&mut self, planned: &PlannedStep, error: Option<String>) {
        self.setup.metrics.step_ended(error.is_none());
        let Some(error) = error else {
            if let Some((_, changed)) = &mut self.began {
                *changed = true;
            }
            self.save_memory();
            self.news
                .push(format!("{}: {}", planned.step, planned.reason));
            return;
        };
        tracing::debug!(step = %planned.step, error, "step failed");
        let concern = match &planned.step {
            Step::AlterTopicConfig { .. } => Concern::Configured,
            Step::CreateTopic { .. } | Step::AddPartitions { .. } | Step::Reassign { .. } => {
                Concern::Placed
            }
            Step::CreateBroker { .. } | Step::UpdateBroker { .. } | Step::RemoveBroker { .. } => {
                Concern::BrokersReady
            }
            Step::DeleteTopic { .. } | Step::ReleaseTopic { .. } => Concern::Ready,
        };
        self.failures
            .entry(planned.step.object().cloned())
            .or_default()
            .push(Refusal::new(
                concern,
                Reason::ApplyFailed,
                format!("cannot {}: {error}", planned.step),
            ));
    }

    fn update_statuses(&mut self, observed: &Observed) {
        let now = Timestamp::now();
        self.cluster_status = cluster_status(
            &self.valid,
            observed,
            &self.plan,
            &self.failures,
            self.listeners(),
            &self.cluster_status,
            now,
        );
        let old = std::mem::take(&mut self.topic_statuses);
        let before = |key: &ObjectKey| old.get(key).cloned().unwrap_or_default();
        for topic in &self.valid.topics {
            let status = topic_status(
                topic,
                observed,
                &self.plan,
                &self.failures,
                &before(&topic.key),
                now,
            );
            self.topic_statuses.insert(topic.key.clone(), status);
        }
        for (key, refusals) in &self.valid.refusals {
            if !self.topic_statuses.contains_key(key) {
                let status = refused_status(refusals, None, &before(key), now);
                self.topic_statuses.insert(key.clone(), status);
            }
        }
        self.failures_before = self.failures.clone();
    }

    fn save_memory(&self) {
        // Without it a removal made while nothing runs might be missed; the run itself goes on.
        if let Err(error) = self.memory.save(self.folder.path()) {
            tracing::warn!(%error, "what is managed cannot be written down");
        }
    }
}

/// The refusal of a folder with another cluster's data.
pub(in crate::local) fn other_cluster(
    folder: &Path,
    memory: &Memory,
    wanted: &ObjectKey,
) -> LocalError {
    LocalError::OtherCluster {
        folder: folder.to_owned(),
        found: format!("Cluster {}", memory.cluster),
        wanted: format!("Cluster {wanted}"),
    }
}

fn judge(intent: &Intent, objects: &Objects) -> Valid {
    let known: Vec<ObjectKey> = objects
        .clusters
        .iter()
        .map(|(key, ..)| key.clone())
        .collect();
    validate(intent, &known)
}

fn unix_seconds() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1000.0
}
