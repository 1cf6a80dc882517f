//! Whether two texts mean the same value: `1e-1` and `0.1`, `TRUE` and `true`, `compact,delete` and `delete, compact`.

use super::definition::{Definition, ValueType};
use super::layers::reads_as;
use super::value::list;
use super::{broker_definition, topic_definition};

/// Whether two values of a topic config mean the same; of an unknown one, whether they are the same text.
pub fn same_meaning(name: &str, left: &str, right: &str) -> bool {
    same(topic_definition(name), left, right)
}

/// Whether two values of a broker config mean the same; of an unknown one, whether they are the same text.
pub fn same_meaning_broker(name: &str, left: &str, right: &str) -> bool {
    same(broker_definition(name), left, right)
}

/// The one spelling of a topic config's value among all with its meaning.
pub fn canonical_topic(name: &str, value: &str) -> String {
    topic_definition(name).map_or_else(
        || value.to_string(),
        |definition| canonical(definition, value),
    )
}

/// The one spelling of a broker config's value among all with its meaning.
pub fn canonical_broker(name: &str, value: &str) -> String {
    broker_definition(name).map_or_else(
        || value.to_string(),
        |definition| canonical(definition, value),
    )
}

fn same(definition: Option<&Definition>, left: &str, right: &str) -> bool {
    definition.map_or(left == right, |definition| {
        same_value(definition, left, right)
    })
}

pub(super) fn same_value(definition: &Definition, left: &str, right: &str) -> bool {
    canonical(definition, left) == canonical(definition, right)
}

/// Text that does not read as its type stays as it is, so that it equals only itself.
fn canonical(definition: &Definition, text: &str) -> String {
    let shown = match definition.value_type {
        ValueType::Boolean => reads_as::<bool>(text).map(|value| value.to_string()),
        ValueType::Int | ValueType::Short | ValueType::Long => {
            reads_as::<i64>(text).map(|value| value.to_string())
        }
        ValueType::Double => reads_as::<f64>(text).map(|value| value.to_string()),
        ValueType::String => Some(text.trim().to_string()),
        ValueType::List => {
            let mut items: Vec<&str> = list(text).collect();
            items.sort_unstable();
            items.dedup();
            Some(items.join(","))
        }
    };
    shown.unwrap_or_else(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, left: &str, right: &str, expected: bool) {
        assert_eq!(
            same_meaning(name, left, right),
            expected,
            "{name}: {left} / {right}"
        );
    }

    #[test]
    fn values_are_compared_by_meaning() {
        check("cleanup.policy", "compact,delete", "delete, compact", true);
        check("cleanup.policy", "compact", "delete", false);
        check("retention.ms", "604800000", " +604800000", true);
        check("retention.ms", "604800000", "604800001", false);
        check("retention.ms", "forever", "forever", true);
        check("min.cleanable.dirty.ratio", "0.10", "1e-1", true);
        check("preallocate", "TRUE", "true", true);
        check("compression.type", "zstd", "lz4", false);
        check("no.such.config", "1", "1", true);
        check("no.such.config", "1", "01", false);
    }
}
