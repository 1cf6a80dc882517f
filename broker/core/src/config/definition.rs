//! One row of a config table: name, type, default, bounds, where it can be changed and what it does;
//! and the macro that makes a table and its typed struct from the same rows.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::value::ConfigValue;

/// Names and values as written, of one layer.
pub type ConfigMap = BTreeMap<String, String>;

/// Kafka's config types, with the numbers that DescribeConfigs sends (`ConfigDef.Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `true` or `false`, in any case.
    Boolean = 1,
    /// Text.
    String = 2,
    /// A 32-bit integer.
    Int = 3,
    /// A 16-bit integer.
    Short = 4,
    /// A 64-bit integer.
    Long = 5,
    /// A floating-point number.
    Double = 6,
    /// Comma-separated values.
    List = 7,
}

/// The values that a config accepts beyond its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// Whatever its type can hold.
    Any,
    /// A number that is not smaller.
    AtLeast(i64),
    /// A number between both, inclusive.
    Between(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any number of these words.
    SomeOf(&'static [&'static str]),
    /// Text of a shape that its typed value knows; the words follow "must be".
    Shape(&'static str),
    /// `*`, or pairs of a partition and a broker as Kafka writes them (`0:1,1:2`).
    Replicas,
    /// Only the default: the name is Kafka's, what it would switch on is not here.
    OnlyDefault,
}

/// Where a config can be changed (Kafka's "dynamic update mode").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// In the broker's file, followed by a restart.
    ReadOnly,
    /// For one broker or for the cluster, while it runs.
    Dynamic,
    /// For the whole cluster only, while it runs: brokers must agree on it.
    ClusterOnly,
}

/// A broker config whose value stands in for a topic config that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The broker config's name.
    pub name: &'static str,
    /// What its number is multiplied with (hours to milliseconds), 1 for none.
    pub multiplier: i64,
}

impl Synonym {
    /// A synonym in the same unit.
    pub const fn same(name: &'static str) -> Synonym {
        Synonym {
            name,
            multiplier: 1,
        }
    }

    /// A synonym in minutes for a config in milliseconds.
    pub const fn minutes(name: &'static str) -> Synonym {
        Synonym {
            name,
            multiplier: 60_000,
        }
    }

    /// A synonym in hours for a config in milliseconds.
    pub const fn hours(name: &'static str) -> Synonym {
        Synonym {
            name,
            multiplier: 3_600_000,
        }
    }
}

/// One config.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Kafka's name, or ours with the prefix `taffrail.`.
    pub name: &'static str,
    /// Its type.
    pub value_type: ValueType,
    /// The value when no layer has one; none where "not set" has a meaning or a value must be given.
    pub default: Option<&'static str>,
    /// Whether a value must be given.
    pub required: bool,
    /// Its bounds.
    pub allowed: Allowed,
    /// Where it can be changed.
    pub update: Update,
    /// Of a topic config: the broker configs behind it, first match wins.
    pub synonyms: &'static [Synonym],
    /// Whether it is for tests and left out of descriptions.
    pub internal: bool,
    /// What it does.
    pub doc: &'static str,
}

impl Definition {
    /// What a value must be, to follow "must be": `an integer of at least 1`.
    pub fn allowed_text(&self) -> String {
        let noun = match self.value_type {
            ValueType::Boolean => "true or false",
            ValueType::String => "text",
            ValueType::Int => "an integer (32 bits)",
            ValueType::Short => "an integer (16 bits)",
            ValueType::Long => "an integer (64 bits)",
            ValueType::Double => "a number",
            ValueType::List => "a comma-separated list",
        };
        match self.allowed {
            Allowed::Any => noun.to_string(),
            Allowed::AtLeast(least) => format!("{noun} of at least {least}"),
            Allowed::Between(least, most) => format!("{noun} between {least} and {most}"),
            Allowed::OneOf(words) => format!("one of {}", words.join(", ")),
            Allowed::SomeOf(words) => format!("a comma-separated list of {}", words.join(", ")),
            Allowed::Shape(shape) => shape.to_string(),
            Allowed::Replicas => "* or a comma-separated list of partition:broker".to_string(),
            Allowed::OnlyDefault => {
                let default = self
                    .default
                    .filter(|default| !default.is_empty())
                    .unwrap_or("empty");
                format!("at its default ({default}): Taffrail does not have this function")
            }
        }
    }

    /// Reads a value as its type and checks the bounds.
    pub(super) fn parse<T: ConfigValue>(&self, text: &str) -> Result<T, ConfigError> {
        let invalid = || ConfigError::Invalid {
            name: self.name.to_string(),
            value: text.to_string(),
            allowed: self.allowed_text(),
        };
        let text = text.trim();
        if !self.allows(text) {
            return Err(invalid());
        }
        T::parse(text).ok_or_else(invalid)
    }

    fn allows(&self, text: &str) -> bool {
        match self.allowed {
            Allowed::Any | Allowed::Shape(_) => true,
            Allowed::AtLeast(least) => number(text).is_some_and(|value| value >= least as f64),
            Allowed::Between(least, most) => {
                number(text).is_some_and(|value| value >= least as f64 && value <= most as f64)
            }
            Allowed::OneOf(words) => words.contains(&text),
            Allowed::SomeOf(words) => super::value::list(text).all(|word| words.contains(&word)),
            Allowed::Replicas => super::value::ThrottledReplicas::parse(text).is_some(),
            Allowed::OnlyDefault => self
                .default
                .is_some_and(|default| super::meaning::same_value(self, default, text)),
        }
    }
}

/// Bounds are small numbers, so the rounding of a large value cannot move it across one.
fn number(text: &str) -> Option<f64> {
    text.parse::<i64>()
        .map(|value| value as f64)
        .ok()
        .or_else(|| text.parse::<f64>().ok())
}

/// Makes a table of definitions and the struct of their typed values from the same rows.
///
/// A row is `"name" field: Type = default, allowed, update, [synonyms], "doc";` where the default is
/// `Some("text")`, `None` for a nullable config, or `required`.
macro_rules! configs {
    (
        $(#[$meta:meta])*
        pub struct $typed:ident, table $table:ident;
        $( $name:literal $field:ident: $type:ty = $default:expr, $allowed:expr, $update:expr, [$($synonym:expr),*], $doc:literal; )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $typed { $( #[doc = concat!("`", $name, "`: ", $doc)] pub $field: $type, )* }

        #[doc = concat!("Every config behind [`", stringify!($typed), "`].")]
        pub const $table: &[Definition] = &[ $( Definition {
            name: $name,
            value_type: <$type as ConfigValue>::TYPE,
            default: $default,
            required: {
                let default: Option<&'static str> = $default;
                default.is_none() && !<$type as ConfigValue>::NULLABLE
            },
            allowed: $allowed,
            update: $update,
            synonyms: &[$($synonym),*],
            internal: $crate::config::definition::is_internal($name),
            doc: $doc,
        } ),* ];

        impl $typed {
            /// Takes each value from `lookup`; one that is missing or wrong is reported and replaced by its default.
            fn from_lookup(mut lookup: impl FnMut(&Definition) -> Option<String>, errors: &mut Vec<ConfigError>) -> Self {
                let mut rows = $table.iter();
                $typed { $( $field: $crate::config::definition::read::<$type>(rows.next(), &mut lookup, errors), )* }
            }
        }
    };
}
pub(super) use configs;

/// Names that only tests set.
pub(super) const fn is_internal(name: &str) -> bool {
    let (name, prefix) = (name.as_bytes(), b"internal.");
    let mut position = 0;
    while position < prefix.len() {
        if position >= name.len() || name[position] != prefix[position] {
            return false;
        }
        position += 1;
    }
    true
}

/// Reads one row's value for [`configs!`].
pub(super) fn read<T: ConfigValue>(
    definition: Option<&'static Definition>,
    lookup: &mut impl FnMut(&Definition) -> Option<String>,
    errors: &mut Vec<ConfigError>,
) -> T {
    let Some(definition) = definition else {
        return T::default();
    };
    let default = || definition.default.and_then(T::parse).unwrap_or_default();
    match lookup(definition) {
        Some(text) => definition.parse(&text).unwrap_or_else(|error| {
            errors.push(error);
            default()
        }),
        None => {
            if definition.required {
                errors.push(ConfigError::Missing {
                    name: definition.name.to_string(),
                    allowed: definition.allowed_text(),
                });
            }
            default()
        }
    }
}
