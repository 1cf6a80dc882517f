//! The CustomResourceDefinitions, as JSON values and as the YAML files of this folder.

use kube::CustomResourceExt;
use serde_json::Value;

use crate::{Cluster, Topic};

/// How deep below `spec.pod.<field>` the texts of Kubernetes' own types are kept. Their full texts are ten times
/// ours, and `kubectl explain pod.spec` has them.
const POD_DESCRIPTION_DEPTH: usize = 1;

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
    }
    Definition { file, value }
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
