//! One value of a `config` map: a string, number or boolean, which all mean the same to Kafka.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// A Kafka configuration value as written in a manifest.
///
/// Any YAML value can be read, so that one that cannot work (a list, a map, null) is refused later by the name of
/// its key rather than by a failure of the whole object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigValue(pub Value);

/// Why a value cannot be a Kafka configuration value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("must be a string, number or boolean, not {0}")]
pub struct ConfigValueError(&'static str);

impl ConfigValue {
    /// The value in Kafka's spelling: text as it stands, numbers in decimal, booleans as `true` or `false`.
    pub fn text(&self) -> Result<String, ConfigValueError> {
        match &self.0 {
            Value::String(text) => Ok(text.clone()),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null => Err(ConfigValueError(
                "null (remove the key to go back to the default)",
            )),
            Value::Array(_) => Err(ConfigValueError(
                "a list (write the items as one string, separated by commas)",
            )),
            Value::Object(_) => Err(ConfigValueError("a map")),
        }
    }
}

impl From<&str> for ConfigValue {
    fn from(text: &str) -> Self {
        Self(Value::String(text.to_owned()))
    }
}

impl JsonSchema for ConfigValue {
    fn schema_name() -> Cow<'static, str> {
        "ConfigValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: Result<&str, &str>) {
        let got = ConfigValue(value).text().map_err(|error| error.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn scalars_have_one_spelling() {
        check(json!("2"), Ok("2"));
        check(json!(2), Ok("2"));
        check(json!(0.5), Ok("0.5"));
        check(json!(true), Ok("true"));
        check(json!(-1), Ok("-1"));
        check(json!(""), Ok(""));
    }

    #[test]
    fn the_rest_is_refused_with_a_hint() {
        check(
            json!(null),
            Err(
                "must be a string, number or boolean, not null (remove the key to go back to the default)",
            ),
        );
        check(
            json!(["a"]),
            Err(
                "must be a string, number or boolean, not a list (write the items as one string, separated by commas)",
            ),
        );
        check(
            json!({}),
            Err("must be a string, number or boolean, not a map"),
        );
    }
}
