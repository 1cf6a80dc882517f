//! One pass over a Cluster and its Topics: look, judge, plan, do what can be done now, and write down what was seen.
//! Nothing in it waits for the world to change; whatever is under way is looked at again by the next pass.

mod brokers;
mod look;
mod report;
mod topics;
mod trouble;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use taffrail_core::config::ConfigMap;
use taffrail_crds::{Cluster, Topic};

use super::api::Severity;
use super::cache::key_of;
use super::context::{Context, Memory};
use super::deletion;
use super::endpoints::{self, Live as OutsideLive, Outside};
use super::finalizer::{self, Change};
use super::identity::{Identity, Mark, identity};
use super::news::{self, News};
use super::objects::{
    Blueprint, growing, ignored, in_live_order, live_config, name_clash, objects, observed_brokers,
};
use super::queue::Outcome;
use super::watch::cluster_of_topic;
use crate::health::{Health, health_of, kafka_of, waits_to_be_told};
use crate::kafka;
use crate::metrics::PassResult;
use crate::object::{ObjectKey, derived_cluster_id};
use crate::observed::{Observed, ObservedKafka};
use crate::plan::{Plan, PlannedStep, Step, plan};
use crate::properties::{grown, voters as voters_of_new};
use crate::refusal::{Concern, Reason, Refusal};
use crate::status::Failures;
use crate::validate::{Intent, Valid, validate};

pub(super) use look::Live;
pub(super) use report::{clusterless, write_cluster_status, write_topic_statuses};
pub(super) use topics::set_finalizers;

/// Runs a pass and counts it.
pub(super) async fn run(context: &Context, key: &ObjectKey) -> Outcome {
    let began = Instant::now();
    context
        .metrics
        .pass_began(&key.namespace, &key.name, unix_seconds());
    let memory = context.memory(key);
    let mut memory = memory.lock().await;
    let (outcome, wrote) = pass(context, &mut memory, key).await;
    let result = match outcome {
        Outcome::Failed => PassResult::Failed,
        _ if wrote => PassResult::Changed,
        _ => PassResult::Steady,
    };
    context.metrics.pass_ended(
        &key.namespace,
        &key.name,
        result,
        began.elapsed(),
        unix_seconds(),
    );
    if outcome == Outcome::Gone {
        context.forget(key);
    }
    outcome
}

async fn pass(context: &Context, memory: &mut Memory, key: &ObjectKey) -> (Outcome, bool) {
    let topics: Vec<Arc<Topic>> = context
        .caches
        .topics
        .in_namespace(&key.namespace)
        .into_iter()
        .filter(|topic| cluster_of_topic(topic).as_ref() == Some(key))
        .collect();
    let Some(cluster) = context.caches.clusters.get(key) else {
        context.count(key, Vec::new());
        return deletion::without_cluster(context, key, &topics).await;
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        context.count(key, vec![Reason::Deleting.word()]);
        return deletion::clean_up(context, &cluster, key, &topics).await;
    }
    let mut pass = Pass {
        context,
        memory,
        key,
        uid: cluster.uid().unwrap_or_default(),
        cluster,
        topics,
        failures: Failures::new(),
        created: BTreeMap::new(),
        refusals: Vec::new(),
        news: Vec::new(),
        wrote: false,
    };
    let outcome = pass.reconcile().await;
    let wrote = pass.wrote;
    news::tell(&context.writer, std::mem::take(&mut pass.news)).await;
    (outcome, wrote)
}

/// A pass over a Cluster that is there and stays.
struct Pass<'a> {
    context: &'a Context,
    memory: &'a mut Memory,
    key: &'a ObjectKey,
    /// metadata.uid of the Cluster.
    uid: String,
    cluster: Arc<Cluster>,
    topics: Vec<Arc<Topic>>,
    /// Steps that failed in this pass.
    failures: Failures,
    /// Ids of topics that this pass made, by Topic.
    created: BTreeMap<ObjectKey, String>,
    /// What of the Cluster is refused or waits, beside what the plan says.
    refusals: Vec<Refusal>,
    news: Vec<News>,
    /// Whether anything but status was written.
    wrote: bool,
}

impl Pass<'_> {
    async fn reconcile(&mut self) -> Outcome {
        self.first_visit().await;
        let cluster = Arc::clone(&self.cluster);
        let live = Live::of(&self.context.caches, self.key, true);
        let mut valid = self.judge();
        let (identified, founders) = self.identify(&live, &mut valid);
        let voters = grown(
            &founders,
            cluster.spec.brokers.max(live.brokers_with_claims()),
        );
        in_live_order(&mut valid.cluster.volumes, live.stateful_set.as_ref());
        let config = config_in_force(&valid, &live);
        let image = self.image();
        let config_or_none = config.clone().unwrap_or_default();
        let blueprint = Blueprint {
            cluster: &valid.cluster,
            spec: &cluster.spec,
            uid: &self.uid.clone(),
            config: &config_or_none,
            founders: &founders,
            voters: &voters,
            replicas: live.replicas(),
            image: image.as_deref().unwrap_or_default(),
            image_pull_policy: self.context.image_pull_policy.as_deref(),
        };
        let (observed, health) = self.observe(&live, &valid, &blueprint).await;
        let world = observed.kafka.answered();
        let mut plan = plan(&valid, &observed);
        self.pods_in_trouble(&live);
        self.claims_that_grow(&live);
        self.notes_on_spec(&blueprint);
        let outside = self.outside(&blueprint, &live);

        let may_write = identified && !valid.cluster.paused;
        let brokers_possible =
            may_write && image.is_some() && config.is_some() && name_clash(&blueprint).is_none();
        if !brokers_possible {
            plan.steps.retain(|planned| !is_broker_step(&planned.step));
        }
        if may_write {
            self.storage_finalizer().await;
            self.topic_finalizers(&valid, &mut plan, world).await;
            let changed = brokers_possible && self.brokers(&blueprint, &live, &mut plan).await;
            let told = match world {
                _ if changed => false,
                Some(_) => self.topic_steps(&plan).await,
                None => waits_to_be_told(&health),
            };
            if told {
                self.tell_endpoints(&blueprint, &outside).await;
            }
        }
        plan.cluster.append(&mut self.refusals);
        self.report(&valid, &observed, &plan, outside).await
    }

    /// Whose disks and which founders the Cluster has, and whether that is known.
    fn identify(&mut self, live: &Live, valid: &mut Valid) -> (bool, Vec<i32>) {
        match self.identity(live) {
            Ok(identity) => {
                valid.cluster.cluster_id = identity.cluster_id;
                (true, identity.voters)
            }
            Err(refusal) => {
                self.refusals.push(refusal);
                (false, voters_of_new(self.cluster.spec.brokers))
            }
        }
    }

    /// What there is of brokers and topics, and how the brokers say that they are.
    async fn observe(
        &mut self,
        live: &Live,
        valid: &Valid,
        blueprint: &Blueprint<'_>,
    ) -> (Observed, BTreeMap<i32, Health>) {
        let addresses = live.addresses();
        let health = health_of(&addresses).await;
        let kafka = if live.stateful_set.is_none() && live.pods.is_empty() && live.claims.is_empty()
        {
            ObservedKafka::Absent
        } else {
            let configured = topics::configured(valid);
            self.memory.admin.set_cluster(&valid.cluster.cluster_id);
            kafka_of(&mut self.memory.admin, &addresses, &health, &configured).await
        };
        let observed = Observed {
            brokers: observed_brokers(
                live.stateful_set.as_ref(),
                &live.pods,
                &live.config_maps,
                &health,
                &objects(blueprint),
            ),
            managed: topics::managed(&self.topics),
            recorded: topics::recorded(&self.topics),
            kafka,
            voters: blueprint.voters.to_vec(),
        };
        (observed, health)
    }

    /// Says that the objects were seen, before anything that takes time.
    async fn first_visit(&mut self) {
        report::first_visit(self.context, &self.cluster, &self.topics).await;
        if let Some(cluster) = self.context.caches.clusters.get(self.key) {
            self.cluster = cluster;
        }
        self.refresh_topics();
    }

    /// The Topics as the cache has them now: writes of this pass are in it.
    fn refresh_topics(&mut self) {
        let caches = &self.context.caches;
        let fresh = self.topics.iter();
        self.topics = fresh
            .filter_map(|topic| caches.topics.get(&key_of(topic.as_ref())))
            .collect();
    }

    fn identity(&self, live: &Live) -> Result<Identity, Refusal> {
        if let Some(claim) = live
            .claims
            .iter()
            .find(|claim| claim.metadata.deletion_timestamp.is_some())
            && live.stateful_set.is_none()
        {
            return Err(Refusal::new(
                Concern::Ready,
                Reason::Progressing,
                format!(
                    "claim {} of an earlier Cluster of this name is being deleted",
                    claim.name_any()
                ),
            ));
        }
        let marks: Vec<Mark> = live
            .stateful_set
            .iter()
            .map(|set| Mark::of("StatefulSet", &set.metadata))
            .chain(
                live.claims
                    .iter()
                    .map(|claim| Mark::of("claim", &claim.metadata)),
            )
            .collect();
        let spec = &self.cluster.spec;
        identity(
            spec.cluster_id.as_deref(),
            &derived_cluster_id(&self.uid),
            voters_of_new(spec.brokers),
            &marks,
        )
    }

    fn judge(&self) -> Valid {
        let intent = Intent {
            cluster: self.cluster.as_ref().clone(),
            cluster_uid: self.uid.clone(),
            cluster_update_refused: None,
            topics: topics::intents(&self.topics),
        };
        validate(&intent, std::slice::from_ref(self.key))
    }

    fn image(&mut self) -> Option<String> {
        let pod = self.cluster.spec.pod.as_ref();
        let image = pod
            .and_then(|pod| pod.image.clone())
            .or_else(|| self.context.image.clone());
        if image.is_none() {
            self.refusals.push(Refusal::new(
                Concern::BrokersReady,
                Reason::ImageMissing,
                "spec.pod.image: is not set, and the operator was given no image either; set it, or start the operator \
                 with --broker-image",
            ));
        }
        image
    }

    fn pods_in_trouble(&mut self, live: &Live) {
        let standing = live.pods.iter().filter(|pod| look::is_standing(pod));
        self.refusals.extend(standing.filter_map(trouble::trouble));
    }

    /// What the operator asked for may take its provider long, or never come.
    fn claims_that_grow(&mut self, live: &Live) {
        if let Some(message) = growing(&live.claims) {
            let refusal = Refusal::new(Concern::BrokersReady, Reason::Progressing, message);
            self.refusals.push(refusal);
        }
    }

    fn notes_on_spec(&mut self, blueprint: &Blueprint<'_>) {
        for message in ignored(blueprint) {
            self.refusals.push(Refusal::new(
                Concern::Configured,
                Reason::SettingIgnored,
                message,
            ));
        }
        if let Some(message) = name_clash(blueprint) {
            self.refusals
                .push(Refusal::new(Concern::Ready, Reason::NameTaken, message));
        }
    }

    /// Racks and addresses from outside, as far as they are known.
    fn outside(&mut self, blueprint: &Blueprint<'_>, live: &Live) -> Outside {
        let outside = endpoints::outside(
            blueprint,
            OutsideLive {
                pods: &live.pods,
                services: &live.services,
                nodes: &live.nodes,
            },
        );
        if let Some(why) = self.context.caches.nodes.unavailable()
            && endpoints::needs_nodes(blueprint)
        {
            self.refusals.push(Refusal::new(
                Concern::BrokersReady,
                Reason::NodesUnreadable,
                format!(
                    "racks and NodePort addresses come from nodes, which this operator may not read ({why}); grant it get, \
                     list and watch on nodes"
                ),
            ));
        } else {
            for message in &outside.missing {
                self.refusals.push(Refusal::new(
                    Concern::BrokersReady,
                    Reason::EndpointsPending,
                    message.clone(),
                ));
            }
        }
        outside
    }

    async fn storage_finalizer(&mut self) {
        let list = self.cluster.finalizers();
        let change = finalizer::of_cluster(
            list.iter().any(|name| name == finalizer::STORAGE),
            false,
            self.cluster.spec.storage.deletion_policy,
            false,
        );
        if change == Change::None {
            return;
        }
        let list = finalizer::changed(list, finalizer::STORAGE, change);
        let cluster = Arc::clone(&self.cluster);
        match self
            .context
            .writer
            .set_finalizers(cluster.as_ref(), &list)
            .await
        {
            Ok(cluster) => {
                self.context.caches.clusters.put(cluster);
                self.wrote = true;
                if let Some(cluster) = self.context.caches.clusters.get(self.key) {
                    self.cluster = cluster;
                }
            }
            // Looked at again with the object as it is then.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => self.failed(
                None,
                Concern::Ready,
                format!("cannot set the finalizer {}: {error}", finalizer::STORAGE),
            ),
        }
    }

    /// Puts finalizers on before anything is made that they are to take away again.
    async fn topic_finalizers(
        &mut self,
        valid: &Valid,
        plan: &mut Plan,
        world: Option<&crate::observed::KafkaWorld>,
    ) {
        let changes = self.topics.iter().map(|topic| {
            let key = key_of(topic.as_ref());
            let owns = valid.topics.iter().any(|valid| valid.key == key);
            let gone = topics::is_gone(topic, world, Some(valid));
            (Arc::clone(topic), topics::change(topic, true, owns, gone))
        });
        let (failed, wrote) = set_finalizers(self.context, changes.collect()).await;
        self.wrote |= wrote;
        for (key, error) in failed {
            plan.steps
                .retain(|planned| planned.step.object() != Some(&key));
            if let Some(error) = error {
                self.failed(
                    Some(&key),
                    Concern::Ready,
                    format!("cannot set the finalizer {}: {error}", finalizer::TOPIC),
                );
            }
        }
        self.refresh_topics();
    }

    /// Carries out what concerns topics, until a broker does not answer or the time for it is over: the rest is planned
    /// again by the next pass, and this one still has to report. Says whether brokers answered.
    async fn topic_steps(&mut self, plan: &Plan) -> bool {
        let began = Instant::now();
        for planned in &plan.steps {
            if is_broker_step(&planned.step) || matches!(planned.step, Step::ReleaseTopic { .. }) {
                // Of a released one the finalizer is off already.
                continue;
            }
            if began.elapsed() >= STEPS_TIME_MAX {
                tracing::info!(cluster = %self.key, "the other topics wait for the next pass");
                break;
            }
            match kafka::apply_step(&mut self.memory.admin, &planned.step).await {
                Ok(created) => {
                    if let (Some(topic), Some(id)) = (planned.step.object(), created) {
                        self.record_created(topic.clone(), id).await;
                    }
                    self.step_ended(planned, None);
                }
                Err(error) => {
                    self.step_ended(planned, Some(error.to_string()));
                    if error.is_connection() {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Tells the active controller what it does not know yet, through whichever broker answers.
    async fn tell_endpoints(&mut self, blueprint: &Blueprint<'_>, outside: &Outside) {
        let needed = endpoints::needs_endpoints(blueprint);
        if !needed && self.memory.untold {
            return;
        }
        let admin = &mut self.memory.admin;
        let sent = async {
            let recorded = kafka::recorded_endpoints(admin).await?;
            let changes = endpoints::changes(blueprint, &outside.brokers, &recorded);
            if !changes.is_empty() {
                kafka::set_endpoints(admin, &changes).await?;
            }
            Ok::<usize, kafka::AdminError>(changes.len())
        };
        match sent.await {
            Ok(0) => self.memory.untold = !needed,
            Ok(brokers) => {
                tracing::info!(cluster = %self.key, brokers, "told racks and addresses");
                self.wrote = true;
            }
            Err(error) => self.failed(
                None,
                Concern::BrokersReady,
                format!("cannot tell brokers their racks and addresses: {error}"),
            ),
        }
    }

    fn step_ended(&mut self, planned: &PlannedStep, error: Option<String>) {
        self.wrote = true;
        self.context.metrics.step_ended(error.is_none());
        let object = planned.step.object();
        let Some(error) = error else {
            tracing::info!(cluster = %self.key, step = %planned.step, reason = planned.reason, "done");
            let (reason, action) = news::words(&planned.step);
            let regarding = match object {
                None => self.cluster.object_ref(&()),
                Some(key) => match self
                    .topics
                    .iter()
                    .find(|topic| key_of(topic.as_ref()) == *key)
                {
                    Some(topic) => topic.object_ref(&()),
                    None => return,
                },
            };
            self.news.push(News {
                regarding,
                related: None,
                severity: Severity::Normal,
                reason,
                action,
                note: news::note(planned),
            });
            return;
        };
        let concern = match &planned.step {
            Step::AlterTopicConfig { .. } => Concern::Configured,
            Step::CreateBroker { .. } | Step::UpdateBroker { .. } | Step::RemoveBroker { .. } => {
                Concern::BrokersReady
            }
            Step::CreateTopic { .. }
            | Step::AddPartitions { .. }
            | Step::Reassign { .. }
            | Step::DeleteTopic { .. }
            | Step::ReleaseTopic { .. } => Concern::Placed,
        };
        let object = object.cloned();
        self.failed(
            object.as_ref(),
            concern,
            format!("cannot {}: {error}", planned.step),
        );
    }

    fn failed(&mut self, object: Option<&ObjectKey>, concern: Concern, message: String) {
        tracing::warn!(cluster = %self.key, object = object.map(tracing::field::display), message, "failed");
        self.failures
            .entry(object.cloned())
            .or_default()
            .push(Refusal::new(concern, Reason::ApplyFailed, message));
    }
}

/// The configuration for brokers that start. While the Cluster's is refused, the one in force stays.
fn config_in_force(valid: &Valid, live: &Live) -> Option<ConfigMap> {
    let wanted = valid.cluster.config.as_ref().ok().cloned();
    wanted.or_else(|| live_config(live.stateful_set.as_ref()?, &live.config_maps))
}

fn is_broker_step(step: &Step) -> bool {
    step.object().is_none()
}

/// How long topics are changed in one pass. The step under way may take another 12 s; with the observation (30 s) before
/// and endpoints (24 s) after, a pass stays within its time limit and reports.
const STEPS_TIME_MAX: Duration = Duration::from_secs(40);

/// How long a status field that changes all the time stays as it was written.
const COUNT_EVERY: Duration = Duration::from_secs(60);

fn unix_seconds() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1000.0
}
