//! How the text of a config becomes a value: numbers, words and lists, as Kafka's `ConfigDef.parseType` reads them.

use super::definition::ValueType;

/// A type that a config's text can become.
pub(crate) trait ConfigValue: Sized + Default {
    /// The type that DescribeConfigs names.
    const TYPE: ValueType;
    /// Whether "not set" is a value of its own.
    const NULLABLE: bool = false;
    /// Reads trimmed text; none if it is not of this type.
    fn parse(text: &str) -> Option<Self>;
}

/// The items of a comma-separated list, trimmed; an empty text has none.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    text.split(',')
        .map(str::trim)
        .filter(move |_| !text.is_empty())
}

macro_rules! parsed_by_std {
    ($($type:ty => $value_type:ident),*) => { $(
        impl ConfigValue for $type {
            const TYPE: ValueType = ValueType::$value_type;
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )* };
}
parsed_by_std!(i16 => Short, i32 => Int, i64 => Long);

impl ConfigValue for f64 {
    const TYPE: ValueType = ValueType::Double;
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|value: &f64| value.is_finite())
    }
}

impl ConfigValue for bool {
    const TYPE: ValueType = ValueType::Boolean;
    fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("true") {
            Some(true)
        } else if text.eq_ignore_ascii_case("false") {
            Some(false)
        } else {
            None
        }
    }
}

impl ConfigValue for String {
    const TYPE: ValueType = ValueType::String;
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_string())
    }
}

impl ConfigValue for Vec<String> {
    const TYPE: ValueType = ValueType::List;
    fn parse(text: &str) -> Option<Self> {
        let items: Vec<String> = list(text).map(str::to_string).collect();
        items.iter().all(|item| !item.is_empty()).then_some(items)
    }
}

impl<T: ConfigValue> ConfigValue for Option<T> {
    const TYPE: ValueType = T::TYPE;
    const NULLABLE: bool = true;
    fn parse(text: &str) -> Option<Self> {
        T::parse(text).map(Some)
    }
}

/// Which replicas of a topic are throttled while they catch up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThrottledReplicas {
    all: bool,
    /// Partition and broker.
    replicas: Vec<(i32, i32)>,
}

impl ThrottledReplicas {
    /// Whether the replica of a partition on a broker is one of them.
    pub fn contains(&self, partition: i32, broker: i32) -> bool {
        self.all || self.replicas.contains(&(partition, broker))
    }
}

impl ConfigValue for ThrottledReplicas {
    const TYPE: ValueType = ValueType::List;
    fn parse(text: &str) -> Option<Self> {
        if text.trim() == "*" {
            return Some(ThrottledReplicas {
                all: true,
                replicas: Vec::new(),
            });
        }
        let pair = |item: &str| {
            let (partition, broker) = item.split_once(':')?;
            let number = |text: &str| text.parse::<i32>().ok().filter(|number| *number >= 0);
            Some((number(partition)?, number(broker)?))
        };
        let replicas = list(text).map(pair).collect::<Option<Vec<_>>>()?;
        Some(ThrottledReplicas {
            all: false,
            replicas,
        })
    }
}

/// What happens to old records; both false keeps everything but what DeleteRecords removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Keep the last value of each key.
    pub compact: bool,
    /// Remove segments by age and size.
    pub delete: bool,
}

impl ConfigValue for CleanupPolicy {
    const TYPE: ValueType = ValueType::List;
    fn parse(text: &str) -> Option<Self> {
        let mut policy = CleanupPolicy::default();
        for word in list(text) {
            match word {
                "compact" => policy.compact = true,
                "delete" => policy.delete = true,
                _ => return None,
            }
        }
        Some(policy)
    }
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $( $(#[$doc:meta])* $variant:ident = $word:literal ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $( $(#[$doc])* $variant ),* }

        impl $name {
            /// Every word, in Kafka's spelling.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word that a config file has for it.
            pub fn word(self) -> &'static str {
                match self { $( $name::$variant => $word ),* }
            }
        }

        impl ConfigValue for $name {
            const TYPE: ValueType = ValueType::String;
            fn parse(text: &str) -> Option<Self> {
                match text { $( $word => Some($name::$variant), )* _ => None }
            }
        }
    };
}

words! {
    /// The codec that a topic's batches are stored in.
    CompressionType {
        /// As the producer sent them.
        #[default] Producer = "producer",
        /// Not compressed.
        Uncompressed = "uncompressed",
        /// gzip.
        Gzip = "gzip",
        /// Snappy.
        Snappy = "snappy",
        /// LZ4 frames.
        Lz4 = "lz4",
        /// Zstandard.
        Zstd = "zstd",
    }
}

words! {
    /// Whose clock stamps a record.
    TimestampType {
        /// The producer's.
        #[default] CreateTime = "CreateTime",
        /// The broker's, at append.
        LogAppendTime = "LogAppendTime",
    }
}

words! {
    /// When an append counts as stored.
    FlushPolicy {
        /// When it is in the page cache; the operating system writes it back.
        #[default] Os = "os",
        /// When it is on the disk (fsync).
        Ack = "ack",
    }
}

words! {
    /// How the program's own log lines look.
    LogFormat {
        /// For people.
        #[default] Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

words! {
    /// How a replica is found that a consumer reads from.
    ReplicaSelector {
        /// An in-sync one in its rack, else the leader (KIP-392).
        #[default] RackAware = "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
}
