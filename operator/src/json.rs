//! A YAML document as a JSON value, as the Kubernetes API takes it. A number that no integer of 64 bits holds becomes the nearest
//! one with a fraction, so that the field's own rule refuses it by name; a YAML parser could only call the document broken. A key that
//! is written twice in one map is refused: nobody can tell which of both was meant.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value of a document or of a part of it.
pub(crate) struct Json(pub(crate) Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value, a list or a map")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json(Value::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json(Value::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json(Value::from(value)))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Json, E> {
        Ok(Json(Value::from(value as f64)))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Json, E> {
        Ok(Json(Value::from(value as f64)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        // JSON has no infinity, and nothing in its place would be taken for a field that was left out.
        let text = || Value::from(value.to_string());
        Ok(Json(if value.is_finite() {
            Value::from(value)
        } else {
            text()
        }))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json(Value::from(value)))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        Json::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(Json(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Json(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut values = Map::new();
        while let Some((key, Json(value))) = map.next_entry::<String, Json>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(format_args!("{key} is written twice")));
            }
            values.insert(key, value);
        }
        Ok(Json(Value::Object(values)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_what_they_say_and_numbers_without_a_place_stay_numbers() {
        let check = |text: &str, expected: Value| {
            let Json(found) = serde_yaml::from_str(text).expect("YAML");
            assert_eq!(found, expected, "{text}");
        };
        check(
            "a: [1, -2, 1.5, true, null, ~, x]",
            json!({"a": [1, -2, 1.5, true, null, null, "x"]}),
        );
        check("1: {b: '2'}", json!({"1": {"b": "2"}}));
        check("~", Value::Null);
        check("18446744073709551615", json!(u64::MAX));
        check("99999999999999999999", json!(1e20));
        check("-99999999999999999999", json!(-1e20));
        check("[9e400, .inf]", json!(["9e400", "inf"]));
    }

    #[test]
    fn a_key_that_is_written_twice_is_refused_by_name() {
        for (text, expected) in [
            // The place is that of the map.
            (
                "a: 1\nspec:\n  b: 1\n  c: 2\n  b: 3\n",
                "spec: b is written twice at line 3 column 3",
            ),
            ("a: 1\n'a': 1\n", "a is written twice"),
            (
                "x: [{1: a, '1': b}]",
                "x[0]: 1 is written twice at line 1 column 5",
            ),
        ] {
            let error = serde_yaml::from_str::<Json>(text).map(|Json(found)| found);
            assert_eq!(error.expect_err(text).to_string(), expected, "{text}");
        }
    }
}
