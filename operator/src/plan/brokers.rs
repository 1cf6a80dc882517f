//! Steps that make the brokers what the Cluster says: missing ones are created, changed ones restarted one at a time
//! when it is safe, surplus ones removed when they hold nothing.

use std::collections::BTreeMap;

use super::{Plan, Step};
use crate::observed::{KafkaWorld, Observed, ObservedBroker};
use crate::refusal::{Concern, Reason, Refusal};
use crate::validate::{Valid, ValidCluster};

/// Partitions named in a message before it says "and N more".
const NAMED_MAX: usize = 5;

pub(super) fn plan(valid: &Valid, observed: &Observed, plan: &mut Plan) {
    create(&valid.cluster, observed, plan);
    remove(&valid.cluster, observed, plan);
    update(&valid.cluster, observed, plan);
}

fn create(cluster: &ValidCluster, observed: &Observed, plan: &mut Plan) {
    if cluster.config.is_err() {
        // A broker cannot be started with a configuration that it would refuse.
        return;
    }
    let existing = observed.brokers.len();
    for broker in (0..cluster.brokers).filter(|id| !observed.brokers.contains_key(id)) {
        plan.step(
            Step::CreateBroker { broker },
            format!(
                "spec.brokers is {} and {}",
                cluster.brokers,
                if existing == 0 {
                    "none is there".to_owned()
                } else {
                    format!("{existing} are there")
                }
            ),
        );
    }
}

/// The highest surplus broker goes first, so that ids stay without gaps; one that holds replicas stops the rest.
fn remove(cluster: &ValidCluster, observed: &Observed, plan: &mut Plan) {
    let surplus = observed
        .brokers
        .keys()
        .rev()
        .filter(|id| **id >= cluster.brokers);
    for &broker in surplus {
        if observed.voters.contains(&broker) {
            plan.cluster.push(Refusal::new(
                Concern::BrokersReady,
                Reason::BrokerVotes,
                format!(
                    "spec.brokers: broker {broker} votes on the cluster's metadata and cannot be removed; set spec.brokers \
                     to {} or more",
                    broker.saturating_add(1)
                ),
            ));
            return;
        }
        let world = observed.kafka.world();
        let Some(world) = world.filter(|world| world.authoritative) else {
            plan.cluster.push(Refusal::new(
                Concern::BrokersReady,
                Reason::BrokersUnreachable,
                format!(
                    "broker {broker} is to go, but the active controller cannot be asked whether it still holds replicas"
                ),
            ));
            return;
        };
        if !is_accounted_for(cluster, observed, &world, broker) {
            plan.cluster.push(Refusal::new(
                Concern::BrokersReady,
                Reason::BrokersStarting,
                format!(
                    "broker {broker} is to go, but has not registered, so that nobody knows what it holds"
                ),
            ));
            return;
        }
        let held = partitions_on(&world, broker);
        if held.is_empty() {
            plan.step(
                Step::RemoveBroker { broker },
                format!(
                    "spec.brokers is {} and the broker holds no replicas",
                    cluster.brokers
                ),
            );
        } else {
            plan.cluster.push(Refusal::new(
                Concern::BrokersReady,
                Reason::BrokerHoldsReplicas,
                format!(
                    "spec.brokers: broker {broker} still holds {} ({}); move them to other brokers, or set spec.brokers \
                     back to {}",
                    count(held.len(), "replica"),
                    named(&held),
                    observed.brokers.len(),
                ),
            ));
            return;
        }
    }
}

/// Whether the brokers' word about a surplus broker is about the one that is there. Metadata that does not know it has
/// forgotten it, unless it never came up: then it knows all that should stay, and nothing of the surplus one runs.
fn is_accounted_for(
    cluster: &ValidCluster,
    observed: &Observed,
    world: &KafkaWorld,
    broker: i32,
) -> bool {
    let down = observed
        .brokers
        .get(&broker)
        .is_some_and(|broker| broker.down);
    let all_others = (0..cluster.brokers).all(|id| world.brokers.contains_key(&id));
    world.brokers.contains_key(&broker) || (down && all_others)
}

fn update(cluster: &ValidCluster, observed: &Observed, plan: &mut Plan) {
    let Ok(config) = &cluster.config else {
        return;
    };
    let wanted = observed
        .brokers
        .iter()
        .filter(|(id, _)| **id < cluster.brokers);
    let mut changed = Vec::new();
    for (&id, broker) in wanted {
        let lost: Vec<&str> = broker
            .volumes
            .iter()
            .filter(|volume| !cluster.volumes.contains(volume))
            .map(String::as_str)
            .collect();
        if !lost.is_empty() {
            plan.cluster.push(Refusal::new(
                Concern::BrokersReady,
                Reason::VolumeInUse,
                format!(
                    "spec.storage.volumes: volume {} of broker {id} is in use and cannot be removed; put it back",
                    lost.join(", ")
                ),
            ));
            return;
        }
        let reasons = differences(cluster, config, broker);
        if !reasons.is_empty() {
            changed.push((id, broker, reasons));
        }
    }
    // A broker that is down already costs nothing to restart; of the others one at a time, once all serve.
    let down = changed.iter().find(|(_, broker, _)| broker.down);
    let Some((id, broker, reasons)) = down.or(changed.first()) else {
        return;
    };
    match why_not_now(*id, broker, observed) {
        Some(message) => plan.cluster.push(Refusal::new(
            Concern::BrokersReady,
            Reason::NotSafeToStop,
            message,
        )),
        None => plan.step(Step::UpdateBroker { broker: *id }, reasons.join(", ")),
    }
}

/// What a restart has to wait for. Only a broker that says itself that it may be stopped is stopped, unless it is down or
/// alone.
fn why_not_now(id: i32, broker: &ObservedBroker, observed: &Observed) -> Option<String> {
    if broker.down {
        return None;
    }
    let mut others = observed.brokers.iter().filter(|(other, _)| **other != id);
    if let Some((other, _)) = others.find(|(_, state)| !state.ready) {
        Some(format!(
            "broker {id} waits for its restart until broker {other} serves"
        ))
    } else if !broker.ready {
        Some(format!(
            "broker {id} waits for its restart until it serves, or is known to be down"
        ))
    } else if broker.safe_to_stop != Some(true) && observed.brokers.len() > 1 {
        Some(format!(
            "broker {id} waits for its restart until its partitions have enough other replicas in sync"
        ))
    } else {
        None
    }
}

fn differences(
    cluster: &ValidCluster,
    config: &BTreeMap<String, String>,
    broker: &ObservedBroker,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, value) in config {
        match broker.config.get(name) {
            None => reasons.push(format!("{name} becomes {value}")),
            Some(now) if !taffrail_core::config::same_meaning_broker(name, now, value) => {
                reasons.push(format!("{name} changes from {now} to {value}"));
            }
            Some(_) => {}
        }
    }
    for name in broker
        .config
        .keys()
        .filter(|name| !config.contains_key(*name))
    {
        reasons.push(format!("{name} goes back to its default"));
    }
    for volume in cluster
        .volumes
        .iter()
        .filter(|volume| !broker.volumes.contains(volume))
    {
        reasons.push(format!("volume {volume} is added"));
    }
    reasons.extend(broker.outdated.iter().cloned());
    reasons
}

fn partitions_on(world: &KafkaWorld, broker: i32) -> Vec<String> {
    let mut held = Vec::new();
    for (name, topic) in &world.topics {
        for (index, partition) in &topic.partitions {
            if partition.replicas.contains(&broker) {
                held.push(format!("{name}-{index}"));
            }
        }
    }
    held
}

pub(super) fn named(items: &[String]) -> String {
    if items.len() <= NAMED_MAX {
        items.join(", ")
    } else {
        format!(
            "{} and {} more",
            items[..NAMED_MAX].join(", "),
            items.len() - NAMED_MAX
        )
    }
}

pub(super) fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}
