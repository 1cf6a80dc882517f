//! Reads manifests from standard input and tells which of them Kubernetes would not understand: kinds that are not known
//! here, values of the wrong type, and fields that do not exist. It needs no server and no network.
//!
//! A manifest is read into the type that Kubernetes defines for it and written again; what did not come back is a field
//! that the type does not have. Cluster and Topic are judged as the API server would, rules included.

use std::io::Read;
use std::process::ExitCode;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taffrail_crds::admission::admit;

/// The part of the Prometheus operator's PodMonitor that the chart uses.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMonitor {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: PodMonitorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMonitorSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_selector: Option<NamespaceSelector>,
    selector: LabelSelector,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pod_target_labels: Vec<String>,
    pod_metrics_endpoints: Vec<PodMetricsEndpoint>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NamespaceSelector {
    #[serde(skip_serializing_if = "Option::is_none")]
    any: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    match_names: Vec<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMetricsEndpoint {
    port: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scrape_timeout: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    relabelings: Vec<Relabeling>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    metric_relabelings: Vec<Relabeling>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Relabeling {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    source_labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacement: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

fn main() -> ExitCode {
    let mut text = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut text) {
        eprintln!("standard input: {error}");
        return ExitCode::FAILURE;
    }
    let mut complaints = Vec::new();
    let mut documents = 0;
    for document in serde_yaml::Deserializer::from_str(&text) {
        match Value::deserialize(document) {
            Ok(Value::Null) => {}
            Ok(manifest) => {
                documents += 1;
                complaints.extend(complaints_of(&manifest));
            }
            Err(error) => complaints.push(format!("not YAML: {error}")),
        }
    }
    if documents == 0 {
        complaints.push("no manifests".to_owned());
    }
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn complaints_of(manifest: &Value) -> Vec<String> {
    let word = |pointer| manifest.pointer(pointer).and_then(Value::as_str);
    let api_version = word("/apiVersion").unwrap_or_default();
    let kind = word("/kind").unwrap_or_default();
    let found = match (api_version, kind) {
        ("v1", "ConfigMap") => unknown::<ConfigMap>(manifest),
        ("v1", "Namespace") => unknown::<Namespace>(manifest),
        ("v1", "PersistentVolumeClaim") => unknown::<PersistentVolumeClaim>(manifest),
        ("v1", "Pod") => unknown::<Pod>(manifest),
        ("v1", "Secret") => unknown::<Secret>(manifest),
        ("v1", "Service") => unknown::<Service>(manifest),
        ("v1", "ServiceAccount") => unknown::<ServiceAccount>(manifest),
        ("apps/v1", "Deployment") => unknown::<Deployment>(manifest),
        ("apps/v1", "StatefulSet") => unknown::<StatefulSet>(manifest),
        ("policy/v1", "PodDisruptionBudget") => unknown::<PodDisruptionBudget>(manifest),
        ("rbac.authorization.k8s.io/v1", "Role") => unknown::<Role>(manifest),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => unknown::<RoleBinding>(manifest),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => unknown::<ClusterRole>(manifest),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            unknown::<ClusterRoleBinding>(manifest)
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            unknown::<CustomResourceDefinition>(manifest)
        }
        ("monitoring.coreos.com/v1", "PodMonitor") => unknown::<PodMonitor>(manifest),
        ("taffrail.io/v1alpha1", _) => match admit(manifest, None) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        },
        _ => vec!["a kind that is not known here".to_owned()],
    };
    let name = word("/metadata/name").unwrap_or("without a name");
    found
        .iter()
        .map(|complaint| format!("{api_version} {kind} {name}: {complaint}"))
        .collect()
}

/// The paths of all fields that `T` does not have.
fn unknown<T: DeserializeOwned + Serialize>(manifest: &Value) -> Vec<String> {
    let again = T::deserialize(manifest).and_then(|typed| serde_json::to_value(typed));
    match again {
        Ok(again) => {
            let mut paths = Vec::new();
            missing("", manifest, &again, &mut paths);
            paths
        }
        Err(error) => vec![error.to_string()],
    }
}

/// What `wrote` has and `read` has not. Nothing, an empty list and an empty map mean the same.
fn missing(path: &str, wrote: &Value, read: &Value, paths: &mut Vec<String>) {
    match (wrote, read) {
        (Value::Object(wrote), Value::Object(read)) => {
            for (name, value) in wrote {
                let path = format!("{path}.{name}");
                match read.get(name) {
                    Some(again) => missing(&path, value, again, paths),
                    None if is_empty(value) => {}
                    None => paths.push(format!("{path} is no field")),
                }
            }
        }
        (Value::Array(wrote), Value::Array(read)) => {
            for (index, (value, again)) in wrote.iter().zip(read).enumerate() {
                missing(&format!("{path}[{index}]"), value, again, paths);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
