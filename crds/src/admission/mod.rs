//! Admits manifests where there is no API server to do it: the schema with its defaults and the CEL rules of the
//! generated definitions, so that a manifest is refused for the same reasons everywhere. Knows nothing of the world.

mod structural;

use std::fmt;
use std::sync::LazyLock;

use kube_cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::definitions::{definitions, schema};
use crate::{API_VERSION, Cluster, Topic};

/// One thing wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, for example `spec.listeners[0].port`; empty if the object as a whole is meant.
    pub field: String,
    /// What is wrong, as a phrase that follows the field.
    pub message: String,
}

impl FieldError {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            out.write_str(&self.message)
        } else {
            write!(out, "{}: {}", self.field, self.message)
        }
    }
}

/// A manifest that met every rule, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub enum Admitted {
    /// A Cluster.
    Cluster(Box<Cluster>),
    /// A Topic.
    Topic(Box<Topic>),
}

struct Kind {
    name: &'static str,
    schema: Value,
    rules: CompiledSchema,
}

/// The schemas by kind, with their rules compiled, taken from the generated definitions once.
static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    definitions()
        .iter()
        .map(|definition| {
            let schema = schema(&definition.value);
            Kind {
                name: if definition.value["spec"]["names"]["kind"] == "Cluster" {
                    "Cluster"
                } else {
                    "Topic"
                },
                schema: schema.clone(),
                rules: compile_schema(schema),
            }
        })
        .collect()
});

/// Admits a new object, or with `old` an update of it: then the rules about what may change apply as well.
///
/// All errors are listed, not only the first. `old` must be an object that was admitted before.
pub fn admit(manifest: &Value, old: Option<&Value>) -> Result<Admitted, Vec<FieldError>> {
    let kind = kind_of(manifest)?;
    let mut errors = Vec::new();
    check_metadata(manifest, &mut errors);

    let object = kube_cel::apply_defaults(&kind.schema, manifest);
    structural::check(&kind.schema, &object, &mut errors);
    check_rules(&kind.rules, &object, old, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    match kind.name {
        "Cluster" => decode(object).map(|cluster| Admitted::Cluster(Box::new(cluster))),
        _ => decode(object).map(|topic| Admitted::Topic(Box::new(topic))),
    }
}

fn kind_of(manifest: &Value) -> Result<&'static Kind, Vec<FieldError>> {
    let Value::Object(fields) = manifest else {
        return Err(vec![FieldError::new(
            "",
            "is not a Kubernetes object: apiVersion, kind, metadata and spec are expected",
        )]);
    };
    let mut errors = Vec::new();
    match fields.get("apiVersion") {
        Some(Value::String(version)) if version == API_VERSION => {}
        Some(other) => errors.push(FieldError::new(
            "apiVersion",
            format!("must be {API_VERSION}, not {other}"),
        )),
        None => errors.push(FieldError::new(
            "apiVersion",
            format!("is missing; write {API_VERSION}"),
        )),
    }
    let kind = match fields.get("kind") {
        Some(Value::String(name)) => KINDS.iter().find(|kind| kind.name == name),
        _ => None,
    };
    match kind {
        Some(kind) if errors.is_empty() => Ok(kind),
        Some(_) => Err(errors),
        None => {
            let message = match fields.get("kind") {
                Some(other) => format!("must be Cluster or Topic, not {other}"),
                None => "is missing; write Cluster or Topic".to_owned(),
            };
            errors.push(FieldError::new("kind", message));
            Err(errors)
        }
    }
}

/// What the API server itself checks of metadata: the schema says nothing of it.
fn check_metadata(manifest: &Value, errors: &mut Vec<FieldError>) {
    let Some(Value::Object(metadata)) = manifest.get("metadata") else {
        errors.push(FieldError::new(
            "metadata.name",
            "is missing; every object needs a name",
        ));
        return;
    };
    match metadata.get("name") {
        Some(Value::String(name)) if is_dns_subdomain(name) => {}
        Some(Value::String(_)) => errors.push(FieldError::new(
            "metadata.name",
            "may hold lower-case letters, digits, '-' and '.', must start and end with a letter or digit, and have \
             at most 253 characters",
        )),
        Some(_) => errors.push(FieldError::new("metadata.name", "must be a string")),
        None => errors.push(FieldError::new(
            "metadata.name",
            "is missing; every object needs a name",
        )),
    }
    if metadata
        .get("namespace")
        .is_some_and(|namespace| !namespace.is_string())
    {
        errors.push(FieldError::new("metadata.namespace", "must be a string"));
    }
    for map in ["labels", "annotations"] {
        match metadata.get(map) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => {
                for (key, value) in entries.iter().filter(|(_, value)| !value.is_string()) {
                    errors.push(FieldError::new(
                        format!("metadata.{map}.{key}"),
                        format!("must be a string, not {value}"),
                    ));
                }
            }
            Some(_) => errors.push(FieldError::new(
                format!("metadata.{map}"),
                "must be a map of strings",
            )),
        }
    }
}

fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.first().copied().is_some_and(alphanumeric)
                && bytes.last().copied().is_some_and(alphanumeric)
                && bytes.iter().all(|&byte| alphanumeric(byte) || byte == b'-')
        })
}

/// Evaluates the CEL rules. If the shape is already wrong, rules may fail to evaluate; only plain refusals are
/// reported then, since the shape errors say the rest.
fn check_rules(
    rules: &CompiledSchema,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let shape_is_right = errors.is_empty();
    let Err(failures) = Validator::new().validate_compiled(rules, object, old) else {
        return;
    };
    for failure in failures.into_vec() {
        if shape_is_right || failure.kind == ErrorKind::ValidationFailure {
            errors.push(FieldError::new(failure.field_path, failure.message));
        }
    }
}

fn decode<T: DeserializeOwned>(object: Value) -> Result<T, Vec<FieldError>> {
    serde_json::from_value(object).map_err(|error| vec![FieldError::new("", error.to_string())])
}
