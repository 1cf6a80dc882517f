//! Newtypes of everything that identifies: brokers, topics, partitions, epochs, producers, directories.
//!
//! 16-byte ids print as Kafka prints a `Uuid`: base64url without padding (`org.apache.kafka.common.Uuid`).

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

macro_rules! uuid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The id that means "none" on the wire.
            pub const ZERO: Self = Self([0; 16]);

            /// Whether this is the id that means "none" on the wire.
            pub fn is_zero(&self) -> bool {
                *self == Self::ZERO
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_base64url(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl From<[u8; 16]> for $name {
            fn from(value: [u8; 16]) -> Self {
                Self(value)
            }
        }
    };
}

number! {
    /// A broker: the ordinal of its pod, zero or more.
    BrokerId(i32)
}
number! {
    /// Counts the leaders of a partition; one leader per epoch.
    LeaderEpoch(i32)
}
number! {
    /// Counts the changes of a partition's state; AlterPartition compares and sets on it.
    PartitionEpoch(i32)
}
number! {
    /// One registration of a broker: the index of the metadata log entry that registered it.
    BrokerEpoch(i64)
}
number! {
    /// An idempotent or transactional producer.
    ProducerId(i64)
}

uuid! {
    /// Identifies a topic's data in every path, file and request; a name may be used again, an id never.
    TopicId
}
uuid! {
    /// Drawn when a broker process starts: tells a retry of a registration from a restart.
    Incarnation
}
uuid! {
    /// Identifies one log directory of a broker, kept on its disk.
    DirectoryId
}

/// One partition of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition's index, from zero.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition of this index of this topic.
    pub fn new(topic_id: TopicId, partition: i32) -> Self {
        Self {
            topic_id,
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic_id, self.partition)
    }
}

fn write_base64url(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // 128 bits are 21 whole digits and one that holds the last two bits, left-aligned.
    let bits = u128::from_be_bytes(*bytes);
    let mut text = String::with_capacity(22);
    for digit in 0..21 {
        let shift = 128 - 6 * (digit + 1);
        text.push(char::from(DIGITS[(bits >> shift) as usize & 63]));
    }
    text.push(char::from(DIGITS[((bits & 3) << 4) as usize]));
    f.pad(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_kafka_prints_them() {
        let check =
            |bytes: [u8; 16], expected: &str| assert_eq!(TopicId(bytes).to_string(), expected);
        check([0; 16], "AAAAAAAAAAAAAAAAAAAAAA");
        check([255; 16], "_____________________w");
        check(
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            "AAAAAAAAAAAAAAAAAAAAAQ",
        );
        check(
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            "AQIDBAUGBwgJCgsMDQ4PEA",
        );
    }
}
