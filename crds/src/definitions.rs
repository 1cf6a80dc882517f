//! The CustomResourceDefinitions, as JSON values and as the YAML files of this folder.

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::{Cluster, Topic};

/// How deep below `spec.pod.<field>` the texts of Kubernetes' own types are kept. Their full texts are ten times
/// ours, and `kubectl explain pod.spec` has them.
const POD_DESCRIPTION_DEPTH: usize = 1;

/// A quantity that is not negative (Kubernetes' resource.Quantity).
const QUANTITY: &str = "^([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// What a label's value may be (Kubernetes' validation.IsValidLabelValue). Its length is a bound of its own.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
const LABEL_VALUE_MAX: u64 = 63;

/// One CustomResourceDefinition and the file it is generated into.
pub struct Definition {
    /// File name within this folder.
    pub file: &'static str,
    /// The definition, ready to be applied.
    pub value: Value,
}

impl Definition {
    /// The file's text.
    pub fn yaml(&self) -> Result<String, serde_yaml::Error> {
        Ok(format!(
            "# Generated from the types in crds/src; `make crds` writes it.\n{}",
            serde_yaml::to_string(&self.value)?
        ))
    }
}

/// Both definitions.
pub fn definitions() -> Vec<Definition> {
    vec![
        definition("taffrail.io_clusters.yaml", Cluster::crd()),
        definition("taffrail.io_topics.yaml", Topic::crd()),
    ]
}

fn definition(file: &'static str, crd: impl serde::Serialize) -> Definition {
    // Every field of a CustomResourceDefinition has a JSON form, so the fallback is never seen.
    let mut value = serde_json::to_value(crd).unwrap_or(Value::Null);
    let pod = value.pointer_mut(
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/pod/properties",
    );
    if let Some(Value::Object(fields)) = pod {
        for field in fields.values_mut() {
            strip_descriptions(field, POD_DESCRIPTION_DEPTH);
        }
        judge_values(fields);
    }
    Definition { file, value }
}

/// Kubernetes' own types say nothing in their schemas about quantities and labels; a wrong one would only be found when
/// the pods are written.
fn judge_values(pod: &mut Map<String, Value>) {
    for list in ["limits", "requests"] {
        let quantity = ["resources", "properties", list, "additionalProperties"];
        constrain(pod, &quantity, json!({"pattern": QUANTITY}));
    }
    for map in ["labels", "nodeSelector"] {
        let value = json!({"pattern": LABEL_VALUE, "maxLength": LABEL_VALUE_MAX});
        constrain(pod, &[map, "additionalProperties"], value);
    }
}

/// Adds keywords to the schema at a path. A test demands that they are in the definition.
fn constrain(fields: &mut Map<String, Value>, path: &[&str], keywords: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = Some(fields);
    for parent in parents {
        at = at.and_then(|map| map.get_mut(*parent)?.as_object_mut());
    }
    let schema = at.and_then(|map| map.get_mut(*last)?.as_object_mut());
    if let (Some(schema), Value::Object(keywords)) = (schema, keywords) {
        schema.extend(keywords);
    }
}

fn strip_descriptions(schema: &mut Value, keep: usize) {
    match schema {
        Value::Object(map) => {
            if keep == 0 && map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            for (key, child) in map {
                match (key.as_str(), child) {
                    ("properties", Value::Object(properties)) => {
                        for property in properties.values_mut() {
                            strip_descriptions(property, keep.saturating_sub(1));
                        }
                    }
                    ("items" | "additionalProperties", child) => {
                        strip_descriptions(child, keep.saturating_sub(1));
                    }
                    ("allOf" | "anyOf" | "oneOf", child) => strip_descriptions(child, keep),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                strip_descriptions(item, keep);
            }
        }
        _ => {}
    }
}

/// The OpenAPI schema of a definition's only version.
pub(crate) fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}
