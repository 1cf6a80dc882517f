//! Checks a value against a structural OpenAPI schema as the API server does with strict field validation: shapes,
//! bounds, patterns, unknown fields. Understands what the generated schemas use, nothing more.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value};

use super::FieldError;

/// Lists unknown fields' siblings in the message only up to this number, to keep it one line.
const SIBLINGS_LISTED_MAX: usize = 14;

/// Appends every error in `object`, which is a whole manifest.
pub(super) fn check(schema: &Value, object: &Value, errors: &mut Vec<FieldError>) {
    let mut walk = Walk { errors };
    walk.value(schema, object, "");
}

struct Walk<'a> {
    errors: &'a mut Vec<FieldError>,
}

impl Walk<'_> {
    fn refuse(&mut self, path: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(path, message));
    }

    fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        if value.is_null() && flag("nullable") {
            return;
        }
        if flag("x-kubernetes-int-or-string") {
            if !value.is_string() && !value.is_i64() {
                self.refuse(
                    path,
                    format!("must be a string or an integer, not {}", brief(value)),
                );
            } else if let Some(text) = value.as_str() {
                self.string(schema, text, path);
            }
            return;
        }
        let expected = schema.get("type").and_then(Value::as_str);
        let fits = match expected {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            _ => true,
        };
        if !fits {
            let expected = match expected {
                Some("object") => "a map",
                Some("array") => "a list",
                Some("string") => "a string",
                Some("boolean") => "true or false",
                Some("integer") => "an integer",
                _ => "a number",
            };
            self.refuse(path, format!("must be {expected}, not {}", brief(value)));
            return;
        }
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            let allowed: Vec<String> = allowed
                .iter()
                .filter(|value| !value.is_null())
                .map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
                .collect();
            self.refuse(
                path,
                format!("must be {}, not {}", allowed.join(" or "), brief(value)),
            );
            return;
        }
        match value {
            Value::String(text) => self.string(schema, text, path),
            Value::Number(_) => self.number(schema, value, path),
            Value::Array(items) => self.array(schema, items, path),
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn string(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(min) = schema.get("minLength").and_then(Value::as_u64)
            && length < min
        {
            self.refuse(path, "must not be empty");
            return;
        }
        if let Some(max) = schema.get("maxLength").and_then(Value::as_u64)
            && length > max
        {
            self.refuse(
                path,
                format!("may have at most {max} characters, not {length}"),
            );
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            // Patterns come from our own definitions; a test compiles them all.
            let matches = Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
            if !matches {
                self.refuse(path, format!("must match {pattern}, not {text:?}"));
            }
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, path: &str) {
        let number = value.as_f64().unwrap_or(f64::NAN);
        let width = match schema.get("format").and_then(Value::as_str) {
            Some("int32") => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
            _ => None,
        };
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let min = bound("minimum").or(width.map(|(min, _)| min));
        let max = bound("maximum").or(width.map(|(_, max)| max));
        if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
            let message = match (min, max) {
                (Some(min), Some(max)) => format!("must be from {min} to {max}, not {value}"),
                (Some(min), None) => format!("must be at least {min}, not {value}"),
                (_, Some(max)) => format!("must be at most {max}, not {value}"),
                (None, None) => return,
            };
            self.refuse(path, message);
        }
    }

    fn array(&mut self, schema: &Value, items: &[Value], path: &str) {
        let length = items.len() as u64;
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        if let Some(min) = bound("minItems")
            && length < min
        {
            self.refuse(path, format!("must have at least {min} item"));
        }
        if let Some(max) = bound("maxItems")
            && length > max
        {
            self.refuse(path, format!("may have at most {max} items, not {length}"));
            return;
        }
        if let Some(item_schema) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.value(item_schema, item, &format!("{path}[{index}]"));
            }
        }
        if let Some(keys) = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
        {
            self.unique_by(keys, items, path);
        }
    }

    fn unique_by(&mut self, keys: &[Value], items: &[Value], path: &str) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity: Vec<String> = keys
                .iter()
                .filter_map(Value::as_str)
                .map(|key| item.get(key).unwrap_or(&Value::Null).to_string())
                .collect();
            if !seen.insert(identity.clone()) {
                let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
                self.refuse(
                    &format!("{path}[{index}]"),
                    format!(
                        "has the same {} as an item before it: {}",
                        keys.join(" and "),
                        identity.join(", ")
                    ),
                );
            }
        }
    }

    fn object(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        let join = |name: &str| {
            if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            }
        };
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.refuse(&join(name), "is required");
            }
        }
        if let Some(max) = schema.get("maxProperties").and_then(Value::as_u64)
            && fields.len() as u64 > max
        {
            self.refuse(
                path,
                format!("may have at most {max} entries, not {}", fields.len()),
            );
            return;
        }
        let known = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        let any = schema
            .get("x-kubernetes-preserve-unknown-fields")
            .is_some_and(|flag| flag == true)
            // metadata is an object without a schema; `check_metadata` looks at it.
            || (known.is_none() && additional.is_none());
        for (name, value) in fields {
            if let Some(property) = known.and_then(|known| known.get(name)) {
                self.value(property, value, &join(name));
            } else if let Some(additional) = additional.filter(|schema| schema.is_object()) {
                self.value(additional, value, &join(name));
            } else if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")
            {
                // Of every kind, so not in the schema.
            } else if !any {
                self.refuse(&join(name), unknown(known));
            }
        }
    }
}

fn unknown(known: Option<&Map<String, Value>>) -> String {
    match known {
        Some(known) if known.len() <= SIBLINGS_LISTED_MAX => {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("is an unknown field; known ones are {}", names.join(", "))
        }
        _ => "is an unknown field".to_owned(),
    }
}

/// The value as a message shows it.
fn brief(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        other => {
            let text = other.to_string();
            match text.char_indices().nth(60) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}
