//! What live objects say: with which configuration and volumes each pod was started, and in what else it is not as
//! wanted.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Objects;
use super::configuration::{config_of, set_by_operator};
use super::pod::{CONFIG_VOLUME, CONTAINER};
use super::template::{self, PARTS_ANNOTATION, Parts};
use crate::health::Health;
use crate::observed::ObservedBroker;

/// The Cluster's configuration that new pods get at this moment; none if the StatefulSet or its ConfigMap is not there.
pub fn live_config(
    stateful_set: &StatefulSet,
    config_maps: &BTreeMap<String, ConfigMap>,
) -> Option<BTreeMap<String, String>> {
    let template = &stateful_set.spec.template;
    config_of(config_maps.get(config_map_of(template.spec.as_ref()?)?)?)
}

/// The ConfigMap that a pod, or a template, takes its configuration from.
pub fn config_map_of(pod: &PodSpec) -> Option<&str> {
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == CONFIG_VOLUME)?;
    Some(volume.config_map.as_ref()?.name.as_str())
}

/// The broker in a pod: the number at the end of its name.
pub fn broker_id(pod: &Pod) -> Option<i32> {
    let (_, number) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    number.parse().ok().filter(|id| *id >= 0)
}

/// The brokers of the StatefulSet, whether their pods are there at this moment or not. `config_maps` by name; `health`
/// as the brokers' HTTP ports answered.
pub(crate) fn observed_brokers(
    stateful_set: Option<&StatefulSet>,
    pods: &[Pod],
    config_maps: &BTreeMap<String, ConfigMap>,
    health: &BTreeMap<i32, Health>,
    wanted: &Objects,
) -> BTreeMap<i32, ObservedBroker> {
    let by_id: BTreeMap<i32, &Pod> = pods
        .iter()
        .filter_map(|pod| Some((broker_id(pod)?, pod)))
        .collect();
    let replicas = stateful_set.and_then(|set| set.spec.replicas).unwrap_or(0);
    let ids: BTreeSet<i32> = (0..replicas).chain(by_id.keys().copied()).collect();
    ids.into_iter()
        .map(|id| {
            let observed = match by_id.get(&id) {
                Some(pod) => {
                    let health = health.get(&id).copied().unwrap_or_default();
                    observed_pod(pod, config_maps, health, wanted)
                }
                None => coming_pod(stateful_set, wanted),
            };
            (id, observed)
        })
        .collect()
}

fn observed_pod(
    pod: &Pod,
    config_maps: &BTreeMap<String, ConfigMap>,
    health: Health,
    wanted: &Objects,
) -> ObservedBroker {
    let spec = pod.spec.as_ref();
    let wanted_config = config_of(&wanted.config_map).unwrap_or_default();
    let now = spec
        .and_then(config_map_of)
        .and_then(|name| named(name, config_maps, &wanted.config_map));
    let mut outdated = Vec::new();
    let config = match now.and_then(|now| Some((now, config_of(now)?))) {
        Some((now, config)) => {
            outdated.extend(changes_of_operator(now, &wanted.config_map));
            config
        }
        None => {
            outdated.push("the configuration that it was started with is gone".to_owned());
            wanted_config
        }
    };
    let parts_now = template::read(annotation(&pod.metadata, PARTS_ANNOTATION));
    let changes = template::differences(&parts_now, &wanted_parts(wanted));
    outdated.extend(changes.into_iter().map(|phrase| {
        let images = (image(spec), image(wanted_spec(wanted)));
        match images {
            (Some(from), Some(to)) if phrase == "the image changes" => {
                format!("the image changes from {from} to {to}")
            }
            _ => phrase,
        }
    }));
    let leaves = pod.metadata.deletion_timestamp.is_some();
    let kubelet_ready = is_ready(pod);
    ObservedBroker {
        config,
        volumes: pod_volumes(pod),
        outdated,
        // The kubelet looks less often than the operator; Services follow the kubelet, so both must have seen it.
        ready: health.ready && kubelet_ready && !leaves,
        down: leaves || !(health.ready || kubelet_ready),
        safe_to_stop: health.safe_to_stop,
    }
}

/// Whether the kubelet calls the pod ready.
fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A pod that its controller has still to make, from the template that is wanted.
fn coming_pod(stateful_set: Option<&StatefulSet>, wanted: &Objects) -> ObservedBroker {
    let spec = stateful_set.map(|set| &set.spec);
    let claims = spec.and_then(|spec| spec.volume_claim_templates.as_ref());
    let names = claims.into_iter().flatten();
    ObservedBroker {
        config: config_of(&wanted.config_map).unwrap_or_default(),
        volumes: names
            .filter_map(|claim| claim.metadata.name.clone())
            .collect(),
        ..ObservedBroker::default()
    }
}

/// The spec's volumes that a pod has.
fn pod_volumes(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let claimed = volumes.into_iter().flatten();
    claimed
        .filter(|volume| volume.persistent_volume_claim.is_some())
        .map(|volume| volume.name.clone())
        .collect()
}

/// Names that the operator sets, whose values differ. Folders follow from volumes, which are told apart.
fn changes_of_operator(now: &ConfigMap, wanted: &ConfigMap) -> Vec<String> {
    let (now, wanted) = (set_by_operator(now), set_by_operator(wanted));
    let names: BTreeSet<&str> = now.keys().chain(wanted.keys()).copied().collect();
    names
        .into_iter()
        .filter(|name| *name != "log.dirs" && now.get(name) != wanted.get(name))
        .map(|name| format!("{name} changes"))
        .collect()
}

fn named<'a>(
    name: &str,
    config_maps: &'a BTreeMap<String, ConfigMap>,
    wanted: &'a ConfigMap,
) -> Option<&'a ConfigMap> {
    if wanted.metadata.name.as_deref() == Some(name) {
        return Some(wanted);
    }
    config_maps.get(name)
}

fn wanted_spec(wanted: &Objects) -> Option<&PodSpec> {
    wanted.stateful_set.spec.template.spec.as_ref()
}

fn wanted_parts(wanted: &Objects) -> Parts {
    let metadata = wanted.stateful_set.spec.template.metadata.as_ref();
    template::read(metadata.and_then(|metadata| annotation(metadata, PARTS_ANNOTATION)))
}

fn image(spec: Option<&PodSpec>) -> Option<&str> {
    let mut containers = spec?.containers.iter();
    let broker = containers.find(|container| container.name == CONTAINER)?;
    broker.image.as_deref()
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}
