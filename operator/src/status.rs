//! Status of the objects: what was observed, and for each concern a condition with its reason. Pure.

mod finding;

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use taffrail_crds::{ClusterStatus, Condition, ConditionStatus, ListenerStatus, TopicStatus};

use crate::object::ObjectKey;
use crate::observed::{KafkaWorld, Observed, ObservedKafka, ObservedTopic};
use crate::plan::{Plan, Step, replaced};
use crate::refusal::{Concern, Reason, Refusal};
use crate::validate::{Valid, ValidTopic};
use finding::{Finding, concern, cut};

/// The condition that tells of replicas.
const IN_SYNC: &str = "InSync";

/// Partitions named in a message.
const NAMED_MAX: usize = 5;

/// Steps that failed in the last pass, by Topic object; those of the Cluster under none.
pub type Failures = BTreeMap<Option<ObjectKey>, Vec<Refusal>>;

/// The status of the Cluster. `old` keeps transition times; `listeners` says where clients connect.
pub fn cluster_status(
    valid: &Valid,
    observed: &Observed,
    plan: &Plan,
    failures: &Failures,
    listeners: Vec<ListenerStatus>,
    old: &ClusterStatus,
    now: Timestamp,
) -> ClusterStatus {
    let cluster = &valid.cluster;
    let world = observed.kafka.answered();
    let ready = observed
        .brokers
        .values()
        .filter(|broker| broker.ready)
        .count();
    let refused = refusals_of(&plan.cluster, failures.get(&None));

    let mut findings = vec![
        brokers_ready(valid, observed, plan, ready, &refused),
        concern(
            Concern::Configured,
            &refused,
            "the configuration is in force",
        ),
    ];
    findings.push(match &observed.kafka {
        ObservedKafka::Answered(world) => in_sync(world.topics.iter()),
        ObservedKafka::Absent => Finding::unknown("InSync", "there are no brokers yet"),
        ObservedKafka::Unreachable { why } => Finding::unknown("InSync", cut(why)),
    });
    let mut status = ClusterStatus {
        conditions: old.conditions.clone(),
        observed_generation: cluster.generation,
        brokers: saturated(observed.brokers.len()),
        ready_brokers: saturated(ready),
        controller: world.and_then(|world| world.controller),
        under_replicated_partitions: world.map(under_replicated),
        // It never changes.
        cluster_id: world
            .and_then(|world| world.cluster_id.clone())
            .or_else(|| old.cluster_id.clone()),
        listeners,
        selector: old.selector.clone(),
    };
    let paused = Finding {
        type_: "Paused",
        status: if cluster.paused {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        },
        reason: if cluster.paused {
            "Paused"
        } else {
            "NotPaused"
        },
        message: if cluster.paused {
            "spec.paused is true: nothing is changed".to_owned()
        } else {
            String::new()
        },
    };
    let summary = summary(&findings, &refused);
    for finding in findings.into_iter().chain([paused, summary]) {
        finding.set(&mut status.conditions, cluster.generation, now);
    }
    status
}

/// The status of a Topic that is reconciled.
pub fn topic_status(
    topic: &ValidTopic,
    observed: &Observed,
    plan: &Plan,
    failures: &Failures,
    old: &TopicStatus,
    now: Timestamp,
) -> TopicStatus {
    let world = observed.kafka.answered();
    let existing = world.and_then(|world| world.topics.get(&topic.name));
    let refused = refusals_of(
        plan.topics.get(&topic.key).map_or(&[], Vec::as_slice),
        failures.get(&Some(topic.key.clone())),
    );
    let mut findings = vec![
        placed(topic, world, existing, plan, &refused),
        configured(topic, existing, plan, &refused),
    ];
    findings.push(match existing {
        Some(existing) => in_sync([(&topic.name, existing)].into_iter()),
        None => Finding::unknown("InSync", "the topic has not been seen yet"),
    });
    // Of a topic that nobody can be asked about, or that its controller does not know any more, what was seen last stays:
    // above all its id, without which another topic of its name would be taken for it.
    let mut status = old.clone();
    status.observed_generation = topic.generation;
    status.topic_name = Some(topic.name.clone());
    if let (Some(world), Some(existing)) = (world, existing) {
        status.partitions = Some(saturated(existing.partitions.len()));
        status.replication_factor = replication_factor(existing);
        status.preferred_leaders = preferred_leaders(existing);
        if world.authoritative {
            let id = replaced(topic, existing, world, observed);
            status.topic_id = Some(id.unwrap_or(&existing.topic_id).clone());
        }
    }
    let summary = summary(&findings, &refused);
    for finding in findings.into_iter().chain([summary]) {
        finding.set(&mut status.conditions, topic.generation, now);
    }
    status
}

/// The status of a Topic that is refused as a whole, so that nothing of it is reconciled.
pub fn refused_status(
    refusals: &[Refusal],
    generation: Option<i64>,
    old: &TopicStatus,
    now: Timestamp,
) -> TopicStatus {
    let mut status = TopicStatus {
        conditions: ready_only(&old.conditions),
        observed_generation: generation,
        ..old.clone()
    };
    if let Some(refusal) = refusals.first() {
        Finding {
            type_: Concern::Ready.condition(),
            status: ConditionStatus::False,
            reason: refusal.reason.word(),
            message: refusal.message.clone(),
        }
        .set(&mut status.conditions, generation, now);
    }
    status
}

/// What is known of a Topic that was not looked at yet.
pub fn unseen_topic(generation: Option<i64>, now: Timestamp) -> TopicStatus {
    TopicStatus {
        conditions: unseen(generation, now),
        observed_generation: generation,
        ..TopicStatus::default()
    }
}

/// What is known of a Cluster that was not looked at yet.
pub fn unseen_cluster(generation: Option<i64>, now: Timestamp) -> ClusterStatus {
    ClusterStatus {
        conditions: unseen(generation, now),
        observed_generation: generation,
        ..ClusterStatus::default()
    }
}

/// A Topic that is being deleted: all that was observed stays, and Ready says what is waited for.
pub fn deleting_topic(
    waits_for: &str,
    generation: Option<i64>,
    old: &TopicStatus,
    now: Timestamp,
) -> TopicStatus {
    let mut status = old.clone();
    status.observed_generation = generation;
    let finding = Finding::fails("Ready", Reason::Deleting, waits_for);
    finding.set(&mut status.conditions, generation, now);
    status
}

/// A Cluster that is being deleted.
pub fn deleting_cluster(
    waits_for: &str,
    generation: Option<i64>,
    old: &ClusterStatus,
    now: Timestamp,
) -> ClusterStatus {
    let mut status = old.clone();
    status.observed_generation = generation;
    let finding = Finding::fails("Ready", Reason::Deleting, waits_for);
    finding.set(&mut status.conditions, generation, now);
    status
}

fn unseen(generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let mut conditions = Vec::new();
    Finding::unknown("Ready", "not looked at yet").set(&mut conditions, generation, now);
    conditions
}

/// Of a Topic that is not reconciled no other condition is known any more.
fn ready_only(conditions: &[Condition]) -> Vec<Condition> {
    let ready = conditions
        .iter()
        .filter(|condition| condition.type_ == Concern::Ready.condition());
    ready.cloned().collect()
}

/// Whether nothing but the wording of InSync differs. It names replicas, which come and go all the time while brokers
/// restart.
pub fn is_reworded(old: &[Condition], new: &[Condition]) -> bool {
    match (find(old, IN_SYNC), find(new, IN_SYNC)) {
        (Some(old), Some(new)) => same_word(old, new) && old.message != new.message,
        _ => false,
    }
}

/// Puts the old wording of InSync back, and that of Ready where it repeats it.
pub fn keep_wording(old: &[Condition], new: &mut [Condition]) {
    let Some(reworded) = find(new, IN_SYNC).map(|condition| condition.message.clone()) else {
        return;
    };
    for condition in new
        .iter_mut()
        .filter(|condition| condition.message == reworded)
    {
        if let Some(old) = find(old, &condition.type_)
            && same_word(old, condition)
        {
            condition.message.clone_from(&old.message);
        }
    }
}

fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn same_word(one: &Condition, other: &Condition) -> bool {
    (one.status, &one.reason) == (other.status, &other.reason)
}

/// Whether an object's conditions say Ready.
pub fn is_ready(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == ConditionStatus::True)
}

/// Planned refusals and failed steps in one list.
fn refusals_of(planned: &[Refusal], failed: Option<&Vec<Refusal>>) -> Vec<Refusal> {
    planned
        .iter()
        .chain(failed.into_iter().flatten())
        .cloned()
        .collect()
}

/// What it means that one broker of several keeps the metadata: there are fewer than three.
fn lone_voter(observed: &Observed, brokers: usize) -> Option<String> {
    match observed.voters.as_slice() {
        [voter] if brokers > 1 => Some(format!(
            "; broker {voter} alone keeps the metadata: while it is down, clients are served but no leader changes and no \
             topic is created. With three or more brokers three keep it"
        )),
        _ => None,
    }
}

fn brokers_ready(
    valid: &Valid,
    observed: &Observed,
    plan: &Plan,
    ready: usize,
    refused: &[Refusal],
) -> Finding {
    let wanted = usize::try_from(valid.cluster.brokers).unwrap_or(0);
    let type_ = Concern::BrokersReady.condition();
    let refusal = concern(Concern::BrokersReady, refused, "");
    if refusal.status == ConditionStatus::False {
        return refusal;
    }
    if let Some(planned) = plan.steps.iter().find(|planned| {
        matches!(
            planned.step,
            Step::CreateBroker { .. } | Step::UpdateBroker { .. } | Step::RemoveBroker { .. }
        )
    }) {
        return Finding::fails(
            type_,
            Reason::Progressing,
            format!("{}: {}", planned.step, planned.reason),
        );
    }
    let waiting: Vec<String> = observed
        .brokers
        .iter()
        .filter(|(_, broker)| !broker.ready)
        .map(|(id, _)| id.to_string())
        .collect();
    if ready < wanted || !waiting.is_empty() {
        Finding::fails(
            type_,
            Reason::BrokersStarting,
            format!(
                "{ready} of {wanted} brokers serve clients; not ready: {}",
                waiting.join(", ")
            ),
        )
    } else {
        Finding::holds(
            type_,
            "AllReady",
            format!(
                "{ready} of {wanted} brokers serve clients{}",
                lone_voter(observed, wanted).unwrap_or_default()
            ),
        )
    }
}

fn placed(
    topic: &ValidTopic,
    world: Option<&KafkaWorld>,
    existing: Option<&ObservedTopic>,
    plan: &Plan,
    refused: &[Refusal],
) -> Finding {
    let type_ = Concern::Placed.condition();
    let refusal = concern(
        Concern::Placed,
        refused,
        "partitions and replicas are as the spec says",
    );
    if refusal.status == ConditionStatus::False {
        return refusal;
    }
    if let Some(planned) = plan.steps.iter().find(|planned| {
        planned.step.object() == Some(&topic.key)
            && matches!(
                planned.step,
                Step::CreateTopic { .. } | Step::AddPartitions { .. } | Step::Reassign { .. }
            )
    }) {
        return Finding::fails(
            type_,
            Reason::Progressing,
            format!("{}: {}", planned.step, planned.reason),
        );
    }
    match existing {
        None if world.is_none() => Finding::unknown(type_, "no broker answers"),
        None => Finding::fails(type_, Reason::Progressing, "the topic does not exist yet"),
        Some(existing)
            if existing
                .partitions
                .values()
                .any(|partition| partition.moves_to.is_some()) =>
        {
            Finding::fails(type_, Reason::Progressing, "replicas are being moved")
        }
        Some(_) => refusal,
    }
}

fn configured(
    topic: &ValidTopic,
    existing: Option<&ObservedTopic>,
    plan: &Plan,
    refused: &[Refusal],
) -> Finding {
    let type_ = Concern::Configured.condition();
    let refusal = concern(
        Concern::Configured,
        refused,
        "the configuration is as the spec says",
    );
    if refusal.status == ConditionStatus::False {
        return refusal;
    }
    if let Some(planned) = plan.steps.iter().find(|planned| {
        planned.step.object() == Some(&topic.key)
            && matches!(planned.step, Step::AlterTopicConfig { .. })
    }) {
        return Finding::fails(type_, Reason::Progressing, planned.reason.clone());
    }
    match existing {
        None => Finding::unknown(type_, "the topic has not been seen yet"),
        Some(existing) if existing.config.is_none() => {
            Finding::unknown(type_, "the topic's configuration could not be read")
        }
        Some(_) => refusal,
    }
}

fn in_sync<'a>(topics: impl Iterator<Item = (&'a String, &'a ObservedTopic)>) -> Finding {
    let mut offline = Vec::new();
    let mut behind = Vec::new();
    for (name, topic) in topics {
        for (index, partition) in &topic.partitions {
            if partition.leader.is_none() {
                offline.push(format!("{name}-{index}"));
            } else if partition.isr.len() < partition.replicas.len() {
                behind.push(format!(
                    "{name}-{index}: ISR {} of {}",
                    numbers(&partition.isr),
                    numbers(&partition.replicas)
                ));
            }
        }
    }
    let (status, reason, message) = if !offline.is_empty() {
        (
            ConditionStatus::False,
            "NoLeader",
            format!("no leader: {}", named(&offline)),
        )
    } else if !behind.is_empty() {
        (ConditionStatus::False, "UnderReplicated", named(&behind))
    } else {
        (
            ConditionStatus::True,
            "AllInSync",
            "all replicas follow their leader".to_owned(),
        )
    };
    Finding {
        type_: "InSync",
        status,
        reason,
        message,
    }
}

/// Ready: refusals of the whole object first, then the first condition that does not hold.
fn summary(findings: &[Finding], refused: &[Refusal]) -> Finding {
    let whole = concern(Concern::Ready, refused, "");
    if whole.status == ConditionStatus::False {
        return whole;
    }
    // A failing condition tells more than an unknown one.
    let failing = findings
        .iter()
        .find(|finding| finding.status == ConditionStatus::False)
        .or_else(|| {
            findings
                .iter()
                .find(|finding| finding.status == ConditionStatus::Unknown)
        });
    match failing {
        None => Finding::holds("Ready", "AsSpecified", "all is as the spec says"),
        Some(failing) => Finding {
            type_: "Ready",
            status: failing.status,
            reason: failing.reason,
            message: failing.message.clone(),
        },
    }
}

fn under_replicated(world: &KafkaWorld) -> i32 {
    let number = world
        .topics
        .values()
        .flat_map(|topic| topic.partitions.values())
        .filter(|partition| partition.isr.len() < partition.replicas.len())
        .count();
    saturated(number)
}

fn replication_factor(topic: &ObservedTopic) -> Option<i32> {
    topic
        .partitions
        .values()
        .map(|partition| saturated(partition.replicas.len()))
        .min()
}

fn preferred_leaders(topic: &ObservedTopic) -> BTreeMap<String, i32> {
    let mut leaders = BTreeMap::new();
    for first in topic
        .partitions
        .values()
        .filter_map(|partition| partition.replicas.first())
    {
        *leaders.entry(first.to_string()).or_insert(0) += 1;
    }
    leaders
}

fn numbers(ids: &[i32]) -> String {
    let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
    ids.join(",")
}

fn named(items: &[String]) -> String {
    let more = items.len().saturating_sub(NAMED_MAX);
    let shown = items.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    if more > 0 {
        format!("{}; and {more} more", shown.join("; "))
    } else {
        shown.join("; ")
    }
}

fn saturated(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
