//! What a pod was made from, part by part, as hashes in its annotations. They are computed from the template as the
//! operator writes it, so that defaults which the API server adds never look like a change.
//!
//! The name of the ConfigMap is left out: configuration is compared by meaning, value by value, elsewhere.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value};

use super::configuration::DATA;
use super::pod::CONFIG_VOLUME;
use crate::object::content_hash;

/// Annotation with the hash of all parts.
pub(super) const TEMPLATE_HASH_ANNOTATION: &str = "taffrail.io/template-hash";

/// Annotation with the hash of each part, as JSON.
pub(super) const PARTS_ANNOTATION: &str = "taffrail.io/template-parts";

/// Volumes are a part whose differences are found from the pods themselves.
const VOLUMES: &str = "volumes";

/// Hashes by part.
pub(super) type Parts = BTreeMap<String, String>;

/// Parts that have a phrase of their own, with the fields of the pod's spec or, after a dot, of its container.
const FIELDS: &[(&str, &str, &[&str])] = &[
    ("image", "the image changes", &[".image"]),
    ("resources", "the resources change", &[".resources"]),
    ("environment", "the environment changes", &[".env"]),
    ("listeners", "the listeners change", &[".ports"]),
    (
        "scheduling",
        "the scheduling changes",
        &[
            "affinity",
            "nodeSelector",
            "tolerations",
            "topologySpreadConstraints",
            "priorityClassName",
        ],
    ),
    (
        "security",
        "the security context changes",
        &["securityContext", ".securityContext"],
    ),
    (
        "grace",
        "the grace period changes",
        &["terminationGracePeriodSeconds"],
    ),
];

/// Parts with a phrase that are found otherwise.
const OTHERS: &[(&str, &str)] = &[
    ("metadata", "the labels or annotations change"),
    ("rest", "the pod template changes"),
];

/// The parts of a template that does not have the annotations yet.
pub(super) fn parts(template: &PodTemplateSpec) -> Parts {
    // Kubernetes' types have string keys only, so JSON can hold them.
    let mut spec = object(serde_json::to_value(&template.spec).unwrap_or_default());
    let containers = spec.remove("containers").unwrap_or_default();
    let mut container = match containers {
        Value::Array(containers) => object(containers.into_iter().next().unwrap_or_default()),
        _ => Map::new(),
    };
    let mut parts = Parts::new();
    for (part, _, fields) in FIELDS {
        let values = fields.iter().map(|field| match field.strip_prefix('.') {
            Some(field) => container.remove(field),
            None => spec.remove(*field),
        });
        let values: Vec<Value> = values.map(Option::unwrap_or_default).collect();
        parts.insert((*part).to_owned(), hash_of(&Value::Array(values)));
    }
    let (data, other): (Vec<Value>, Vec<Value>) = array(container.remove("volumeMounts"))
        .into_iter()
        .partition(|mount| {
            let path = mount.get("mountPath").and_then(Value::as_str);
            path.is_some_and(|path| path.starts_with(DATA))
        });
    parts.insert(VOLUMES.to_owned(), hash_of(&Value::Array(data)));
    let mut volumes = array(spec.remove("volumes"));
    volumes.retain(|volume| volume.get("name").and_then(Value::as_str) != Some(CONFIG_VOLUME));
    let rest = [
        Value::Object(spec),
        Value::Object(container),
        Value::Array(other),
        Value::Array(volumes),
    ];
    parts.insert("rest".to_owned(), hash_of(&Value::Array(rest.into())));
    let metadata = serde_json::to_value(&template.metadata).unwrap_or_default();
    parts.insert("metadata".to_owned(), hash_of(&metadata));
    parts
}

/// One hash of all parts.
pub(super) fn hash(parts: &Parts) -> String {
    content_hash(&text(parts))
}

/// The parts as an annotation's value.
pub(super) fn text(parts: &Parts) -> String {
    serde_json::to_string(parts).unwrap_or_default()
}

/// The parts that an annotation's value has; none that can be read if it was tampered with.
pub(super) fn read(annotation: Option<&str>) -> Parts {
    annotation
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// What changes from one to the other, apart from volumes, as phrases.
pub(super) fn differences(now: &Parts, wanted: &Parts) -> Vec<String> {
    let fields = FIELDS.iter().map(|(part, phrase, _)| (*part, *phrase));
    let known: Vec<(&str, &str)> = fields.chain(OTHERS.iter().copied()).collect();
    let differs = |part: &str| now.get(part) != wanted.get(part);
    let mut phrases: Vec<String> = known
        .iter()
        .filter(|(part, _)| differs(part))
        .map(|(_, phrase)| (*phrase).to_owned())
        .collect();
    // Parts of another version of the operator.
    let unknown = now.keys().chain(wanted.keys()).any(|part| {
        part != VOLUMES && differs(part) && !known.iter().any(|(known, _)| known == part)
    });
    if unknown && phrases.is_empty() {
        phrases.push("the pod template changes".to_owned());
    }
    phrases
}

fn hash_of(value: &Value) -> String {
    content_hash(&value.to_string())
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn array(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}
