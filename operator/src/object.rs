//! Names of the objects of a manifest, and the UIDs they have where no API server gives them one.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use taffrail_protocol::Uuid;

/// Namespace of a manifest that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Namespace and name of an object of a known kind. In JSON `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// metadata.namespace.
    pub namespace: String,
    /// metadata.name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object's metadata.
    pub fn new(namespace: Option<&str>, name: Option<&str>) -> Self {
        Self {
            namespace: namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned(),
            name: name.unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace == DEFAULT_NAMESPACE {
            out.write_str(&self.name)
        } else {
            write!(out, "{}/{}", self.namespace, self.name)
        }
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}/{}", self.namespace, self.name))
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| de::Error::custom("namespace/name expected"))?;
        Ok(Self::new(Some(namespace), Some(name)))
    }
}

/// A UID that follows from kind, namespace and name: the same manifest gets the same placement and the same cluster
/// id each time, as an object in Kubernetes keeps its UID.
pub fn derived_uid(kind: &str, key: &ObjectKey) -> String {
    let bytes = derived_bytes(&format!("{kind}/{}/{}", key.namespace, key.name));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[0..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..32]
    )
}

/// Kafka's cluster id that follows from a Cluster's UID.
pub fn derived_cluster_id(uid: &str) -> String {
    Uuid(derived_bytes(&format!("cluster-id/{uid}"))).to_string()
}

/// Eight hexadecimal digits that stand for a content, in names and annotations.
pub(crate) fn content_hash(content: &str) -> String {
    let words = derived_bytes(content);
    let folded = words.chunks_exact(4).fold(0_u32, |folded, word| {
        folded
            ^ word
                .iter()
                .fold(0, |all, byte| (all << 8) | u32::from(*byte))
    });
    format!("{folded:08x}")
}

/// 128-bit FNV-1a, marked as a version 8 UUID (RFC 9562, 5.8: made by the vendor's own rule).
fn derived_bytes(text: &str) -> [u8; 16] {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = text.bytes().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    let mut bytes = hash.to_be_bytes();
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_is_stable_and_depends_on_every_part() {
        let uid =
            |kind, namespace, name| derived_uid(kind, &ObjectKey::new(Some(namespace), Some(name)));
        let orders = uid("Topic", "default", "orders");
        assert_eq!(orders, uid("Topic", "default", "orders"));
        assert_ne!(orders, uid("Topic", "default", "order"));
        assert_ne!(orders, uid("Topic", "other", "orders"));
        assert_ne!(orders, uid("Cluster", "default", "orders"));
        assert_eq!(orders.len(), 36);
    }

    #[test]
    fn cluster_id_has_the_shape_of_kafkas() {
        let id = derived_cluster_id("a");
        assert_eq!(id.len(), 22);
        assert_eq!(id.parse::<Uuid>().map(|id| id.to_string()), Ok(id));
    }
}
