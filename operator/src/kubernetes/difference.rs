//! Differences of JSON documents: where a live object is not as wanted, and the merge patch that leads from one status
//! to another. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Places (JSON pointers) where `live` does not hold what `wanted` says. What only `live` has is no difference: the API
/// server and others fill in fields of their own.
pub(super) fn differences(wanted: &Value, live: &Value) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    compare(wanted, Some(live), &mut String::new(), &mut places);
    places
}

fn compare(
    wanted: &Value,
    live: Option<&Value>,
    place: &mut String,
    places: &mut BTreeSet<String>,
) {
    let length = place.len();
    match (wanted, live) {
        (Value::Object(wanted), live) if live.is_none_or(Value::is_object) => {
            for (name, value) in wanted {
                place.push('/');
                place.push_str(name);
                compare(value, live.and_then(|live| live.get(name)), place, places);
                place.truncate(length);
            }
        }
        (Value::Array(wanted), Some(Value::Array(live))) if wanted.len() <= live.len() => {
            for (index, value) in wanted.iter().enumerate() {
                let counterpart = match name_of(value) {
                    Some(name) => live.iter().find(|live| name_of(live) == Some(name)),
                    None => live.get(index),
                };
                place.push_str(&format!("/{index}"));
                compare(value, counterpart, place, places);
                place.truncate(length);
            }
        }
        // Not written at all is the same as empty.
        (wanted, None) if is_empty(wanted) => {}
        (wanted, Some(live)) if wanted == live => {}
        _ => {
            places.insert(place.clone());
        }
    }
}

/// What an item of a list is known by: a container's name, or that of a claim template.
fn name_of(item: &Value) -> Option<&Value> {
    item.get("name").or_else(|| item.pointer("/metadata/name"))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The merge patch (RFC 7386) that makes `old` into `new`; none if they are the same. Lists are replaced as a whole.
pub(super) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            None if value.is_null() => {}
            None => {
                patch.insert(name.clone(), value.clone());
            }
            Some(before) => {
                if let Some(change) = merge_patch(before, value) {
                    patch.insert(name.clone(), change);
                }
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_wanted_is_compared() {
        for (wanted, live, expected) in [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), vec![]),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), vec!["/a/b"]),
            (json!({"a": {"b": 1}}), json!({}), vec!["/a/b"]),
            (json!({"a": {"b": 1}}), json!({"a": 3}), vec!["/a"]),
            (json!({"a": [], "b": {}, "c": null}), json!({}), vec![]),
            (json!({"a": [1, 2]}), json!({"a": [1]}), vec!["/a"]),
            (
                json!({"a": [{"p": 1}]}),
                json!({"a": [{"p": 1, "q": 2}]}),
                vec![],
            ),
            (
                json!({"c": [{"name": "broker", "image": "x"}]}),
                json!({"c": [{"name": "sidecar"}, {"name": "broker", "image": "y"}]}),
                vec!["/c/0/image"],
            ),
            (
                json!({"t": [{"metadata": {"name": "a"}, "p": 1}, {"metadata": {"name": "b"}, "p": 2}]}),
                json!({"t": [{"metadata": {"name": "b"}, "p": 2}, {"metadata": {"name": "a"}, "p": 3}]}),
                vec!["/t/0/p"],
            ),
        ] {
            let places: Vec<String> = differences(&wanted, &live).into_iter().collect();
            assert_eq!(places, expected, "{wanted} {live}");
        }
    }

    #[test]
    fn patch_leads_from_old_to_new() {
        for (old, new, expected) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 2}), Some(json!({"a": 2}))),
            (json!({"a": 1}), json!({}), Some(json!({"a": null}))),
            (json!({}), json!({"a": [1]}), Some(json!({"a": [1]}))),
            (
                json!({"m": {"0": 1, "1": 2}}),
                json!({"m": {"1": 2, "2": 1}}),
                Some(json!({"m": {"0": null, "2": 1}})),
            ),
            (json!(null), json!({"a": 1}), Some(json!({"a": 1}))),
        ] {
            assert_eq!(merge_patch(&old, &new), expected);
        }
    }
}
