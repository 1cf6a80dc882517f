//! The brokers' pod template. It meets the restricted Pod Security Standard; what the spec says about pods is added
//! where it does not break what the operator sets up: labels that select, and variables that say who a broker is.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, HTTPGetAction, KeyToPath, ObjectFieldSelector, PodSecurityContext, PodSpec,
    PodTemplateSpec, Probe, SeccompProfile, SecurityContext, TopologySpreadConstraint, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use taffrail_crds::{ListenerType, Pod};

use super::configuration::{DATA, FILE, grace_period};
use super::labels::{label_selector, labels};
use super::service::{BROKERS_PORT_NAME, METRICS_PORT_NAME};
use super::template::{self, PARTS_ANNOTATION, TEMPLATE_HASH_ANNOTATION};
use super::{
    BETWEEN_BROKERS, Blueprint, INTERNAL_PORT, METRICS_PORT, broker_listener_name, config_map,
};
use crate::validate::OPERATOR_CONFIGS;

/// The container that is the broker.
pub(super) const CONTAINER: &str = "broker";

/// Volumes that are not the spec's, whose names have at most 15 characters.
pub(super) const CONFIG_VOLUME: &str = "taffrail-configuration";
const TEMPORARY_VOLUME: &str = "taffrail-temporary";

/// The image's user and group.
const USER: i64 = 10001;

/// Label with the pod's ordinal, set by the StatefulSet's controller since Kubernetes 1.28.
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Annotations that other tools set on pods are none of ours; these are.
const OUR_PREFIX: &str = "taffrail.io/";

/// Seconds between two probes, and how often they may fail: a broker may recover logs for an hour, is restarted once
/// its event loop has been stuck for half a minute, and is out of Services three seconds after it stopped serving.
const STARTUP: (i32, i32) = (1, 3600);
const LIVENESS: (i32, i32) = (2, 15);
const READINESS: (i32, i32) = (1, 3);

pub(super) fn pod_template(blueprint: &Blueprint<'_>) -> PodTemplateSpec {
    let pod = blueprint.spec.pod.clone().unwrap_or_default();
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels(blueprint, &pod)),
            annotations: Some(pod_annotations(&pod)),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(blueprint, pod)),
    };
    let parts = template::parts(&template);
    if let Some(annotations) = template
        .metadata
        .as_mut()
        .and_then(|metadata| metadata.annotations.as_mut())
    {
        annotations.insert(TEMPLATE_HASH_ANNOTATION.to_owned(), template::hash(&parts));
        annotations.insert(PARTS_ANNOTATION.to_owned(), template::text(&parts));
    }
    template
}

pub(super) fn ignored(blueprint: &Blueprint<'_>) -> Vec<String> {
    let Some(pod) = &blueprint.spec.pod else {
        return Vec::new();
    };
    let ours = labels(&blueprint.cluster.key.name);
    let labels = pod
        .labels
        .iter()
        .filter(|(name, value)| ours.get(*name).is_some_and(|ours| ours != *value))
        .map(|(name, _)| format!("spec.pod.labels: {name} is set by the operator; leave it out"));
    let annotations = pod
        .annotations
        .keys()
        .filter(|name| name.starts_with(OUR_PREFIX))
        .map(|name| format!("spec.pod.annotations: {name} is the operator's own; leave it out"));
    let env = pod
        .env
        .iter()
        .filter(|variable| is_operators(&variable.name))
        .map(|variable| {
            format!(
                "spec.pod.env: {} is set by the operator; leave it out",
                variable.name
            )
        });
    labels.chain(annotations).chain(env).collect()
}

fn pod_labels(blueprint: &Blueprint<'_>, pod: &Pod) -> BTreeMap<String, String> {
    let mut all = pod.labels.clone();
    all.extend(labels(&blueprint.cluster.key.name));
    all
}

fn pod_annotations(pod: &Pod) -> BTreeMap<String, String> {
    let annotations = pod.annotations.clone().into_iter();
    annotations
        .filter(|(name, _)| !name.starts_with(OUR_PREFIX))
        .collect()
}

fn pod_spec(blueprint: &Blueprint<'_>, pod: Pod) -> PodSpec {
    let names = blueprint.names();
    PodSpec {
        service_account_name: Some(names.brokers()),
        automount_service_account_token: Some(false),
        // A Service called taffrail-… would otherwise give each broker variables that look like its own.
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(grace_period(blueprint)),
        security_context: Some(pod_security_context(pod.security_context.clone())),
        affinity: pod.affinity.clone(),
        node_selector: some(pod.node_selector.clone()),
        tolerations: Some(pod.tolerations.clone()).filter(|list| !list.is_empty()),
        topology_spread_constraints: Some(topology_spread(blueprint, &pod)),
        priority_class_name: pod.priority_class_name.clone(),
        image_pull_secrets: Some(pod.image_pull_secrets.clone()).filter(|list| !list.is_empty()),
        containers: vec![container(blueprint, &pod)],
        volumes: Some(vec![
            Volume {
                name: CONFIG_VOLUME.to_owned(),
                config_map: Some(ConfigMapVolumeSource {
                    name: config_map(blueprint).metadata.name.unwrap_or_default(),
                    items: Some(vec![KeyToPath {
                        key: FILE.to_owned(),
                        path: FILE.to_owned(),
                        ..KeyToPath::default()
                    }]),
                    ..ConfigMapVolumeSource::default()
                }),
                ..Volume::default()
            },
            Volume {
                name: TEMPORARY_VOLUME.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource {
                    size_limit: Some(Quantity("64Mi".to_owned())),
                    ..EmptyDirVolumeSource::default()
                }),
                ..Volume::default()
            },
        ]),
        ..PodSpec::default()
    }
}

/// The spec's settings over ours, one by one.
fn pod_security_context(set: Option<PodSecurityContext>) -> PodSecurityContext {
    let set = set.unwrap_or_default();
    PodSecurityContext {
        run_as_non_root: set.run_as_non_root.or(Some(true)),
        run_as_user: set.run_as_user.or(Some(USER)),
        run_as_group: set.run_as_group.or(Some(USER)),
        fs_group: set.fs_group.or(Some(USER)),
        fs_group_change_policy: set
            .fs_group_change_policy
            .or_else(|| Some("OnRootMismatch".to_owned())),
        seccomp_profile: set.seccomp_profile.or_else(|| {
            Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            })
        }),
        ..set
    }
}

fn topology_spread(blueprint: &Blueprint<'_>, pod: &Pod) -> Vec<TopologySpreadConstraint> {
    if !pod.topology_spread_constraints.is_empty() {
        return pod.topology_spread_constraints.clone();
    }
    let zone = "topology.kubernetes.io/zone";
    let rack = blueprint.spec.rack.as_ref();
    let rack = rack.map_or(zone, |rack| rack.topology_key.as_str());
    let host = "kubernetes.io/hostname";
    [rack, host]
        .into_iter()
        .take(if rack == host { 1 } else { 2 })
        .map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(label_selector(&blueprint.cluster.key.name)),
            ..TopologySpreadConstraint::default()
        })
        .collect()
}

fn container(blueprint: &Blueprint<'_>, pod: &Pod) -> Container {
    let mut mounts = vec![
        mount(CONFIG_VOLUME, "/etc/taffrail", Some(true)),
        mount(TEMPORARY_VOLUME, "/tmp", None),
    ];
    for volume in &blueprint.cluster.volumes {
        mounts.push(mount(volume, &format!("{DATA}/{volume}"), None));
    }
    Container {
        name: CONTAINER.to_owned(),
        image: Some(
            pod.image
                .clone()
                .unwrap_or_else(|| blueprint.image.to_owned()),
        ),
        image_pull_policy: blueprint.image_pull_policy.map(str::to_owned),
        // What a broker said before it ended stands in the pod's status then, and so in the Cluster's.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        command: Some(vec![
            "/usr/bin/taffrail-broker".to_owned(),
            format!("/etc/taffrail/{FILE}"),
        ]),
        env: Some(environment(blueprint, pod)),
        ports: Some(ports(blueprint)),
        resources: pod.resources.clone(),
        startup_probe: Some(probe("/startupz", STARTUP)),
        liveness_probe: Some(probe("/livez", LIVENESS)),
        readiness_probe: Some(probe("/readyz", READINESS)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// Who the broker is and where it is reached from inside, then what the spec adds.
fn environment(blueprint: &Blueprint<'_>, pod: &Pod) -> Vec<EnvVar> {
    let field = |name: &str, path: String| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let host = blueprint.names().host("$(POD_NAME)");
    let mut advertised = vec![format!("{BETWEEN_BROKERS}://{host}:{INTERNAL_PORT}")];
    for listener in &blueprint.cluster.listeners {
        if listener.type_ == ListenerType::Internal {
            let name = broker_listener_name(&listener.name);
            advertised.push(format!("{name}://{host}:{}", listener.port));
        }
    }
    let mut environment = vec![
        field("POD_NAME", "metadata.name".to_owned()),
        field(
            "TAFFRAIL_NODE_ID",
            format!("metadata.labels['{POD_INDEX_LABEL}']"),
        ),
        EnvVar {
            name: "TAFFRAIL_ADVERTISED_LISTENERS".to_owned(),
            value: Some(advertised.join(",")),
            ..EnvVar::default()
        },
    ];
    let added = pod.env.iter();
    environment.extend(
        added
            .filter(|variable| !is_operators(&variable.name))
            .cloned(),
    );
    environment
}

/// Whether a variable, or the config that it would override, is the operator's to set.
fn is_operators(variable: &str) -> bool {
    let config = |name: &str| {
        let name = name.strip_prefix("taffrail.").unwrap_or(name);
        format!("TAFFRAIL_{}", name.replace('.', "_").to_ascii_uppercase())
    };
    variable == "POD_NAME" || OPERATOR_CONFIGS.iter().any(|name| config(name) == variable)
}

fn ports(blueprint: &Blueprint<'_>) -> Vec<ContainerPort> {
    let port = |name: Option<&str>, port: i32| ContainerPort {
        name: name.map(str::to_owned),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let mut ports = vec![
        port(Some(BROKERS_PORT_NAME), INTERNAL_PORT.into()),
        port(Some(METRICS_PORT_NAME), METRICS_PORT.into()),
    ];
    for listener in &blueprint.cluster.listeners {
        let name = listener.name.as_str();
        // Names of container ports may not have two hyphens in a row.
        let legal = name != BROKERS_PORT_NAME && name != METRICS_PORT_NAME && !name.contains("--");
        ports.push(port(legal.then_some(name), listener.port));
    }
    ports
}

fn probe(path: &str, (period_s, failures): (i32, i32)) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(METRICS_PORT_NAME.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_s),
        timeout_seconds: Some(2),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn mount(name: &str, path: &str, read_only: Option<bool>) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only,
        ..VolumeMount::default()
    }
}

fn some(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(map).filter(|map| !map.is_empty())
}
