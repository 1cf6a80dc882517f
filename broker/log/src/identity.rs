//! Who a log directory and a replica's folder belong to: `meta.properties` and `partition.metadata`.

use std::io;
use std::path::Path;

use taffrail_protocol::Uuid;

use crate::checkpoint::read_if_present;
use crate::disk::{Disk, DiskFile};

pub(crate) const META_PROPERTIES: &str = "meta.properties";
pub(crate) const PARTITION_METADATA: &str = "partition.metadata";

/// The identity of a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster that its data belongs to.
    pub cluster_id: String,
    /// The broker that its data belongs to.
    pub node_id: i32,
    /// The directory's own id.
    pub directory_id: [u8; 16],
}

impl Identity {
    pub(crate) fn format(&self) -> String {
        format!(
            "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
            self.cluster_id,
            self.node_id,
            Uuid(self.directory_id)
        )
    }

    /// What a file says, or the key that is missing or wrong.
    pub fn parse(content: &[u8]) -> Result<Identity, &'static str> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not text")?;
        let value = |key: &str| {
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .find_map(|line| {
                    let (found, value) = line.split_once('=')?;
                    (found.trim() == key).then(|| value.trim())
                })
        };
        if value("version") != Some("1") {
            return Err("version is not 1");
        }
        let cluster_id = value("cluster.id")
            .filter(|id| !id.is_empty())
            .ok_or("cluster.id is missing")?
            .to_owned();
        let node_id = value("node.id")
            .and_then(|id| id.parse().ok())
            .ok_or("node.id is missing or no number")?;
        let directory_id = value("directory.id")
            .and_then(parse_id)
            .ok_or("directory.id is missing or not 22 characters of base64url")?;
        Ok(Identity {
            cluster_id,
            node_id,
            directory_id,
        })
    }
}

/// Durable with the log's first flush, as everything in a new replica's folder.
pub(crate) fn write_topic_id<D: Disk>(
    disk: &D,
    folder: &Path,
    topic_id: &[u8; 16],
) -> io::Result<()> {
    let content = format!("version: 0\ntopic_id: {}\n", Uuid(*topic_id));
    let file = disk.create(&folder.join(PARTITION_METADATA))?;
    file.write_all_at(content.as_bytes(), 0)
}

/// The topic id of a replica's folder; `None` if the file is missing or unreadable.
pub(crate) fn read_topic_id<D: Disk>(disk: &D, folder: &Path) -> io::Result<Option<[u8; 16]>> {
    let content = read_if_present(disk, &folder.join(PARTITION_METADATA))?;
    Ok(content.and_then(|content| parse_topic_id(&content)))
}

/// What a `partition.metadata` says.
pub(crate) fn parse_topic_id(content: &[u8]) -> Option<[u8; 16]> {
    let mut lines = std::str::from_utf8(content).ok()?.lines();
    if lines.next() != Some("version: 0") {
        return None;
    }
    lines.next()?.strip_prefix("topic_id: ").and_then(parse_id)
}

fn parse_id(text: &str) -> Option<[u8; 16]> {
    text.parse::<Uuid>().ok().map(|id| id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_round_trips_and_names_what_is_wrong() {
        let identity = Identity {
            cluster_id: "demo".to_owned(),
            node_id: 2,
            directory_id: [7; 16],
        };
        assert_eq!(
            Identity::parse(identity.format().as_bytes()),
            Ok(identity.clone())
        );
        let kafka = format!(
            "#\n#Sun Nov 29 2026\nnode.id=2\ndirectory.id={}\nversion=1\ncluster.id=demo\n",
            Uuid([7; 16])
        );
        assert_eq!(Identity::parse(kafka.as_bytes()), Ok(identity));
        for (text, error) in [
            ("", "version is not 1"),
            ("version=1\n", "cluster.id is missing"),
            (
                "version=1\ncluster.id=a\nnode.id=x\n",
                "node.id is missing or no number",
            ),
            (
                "version=1\ncluster.id=a\nnode.id=1\n",
                "directory.id is missing or not 22 characters of base64url",
            ),
        ] {
            assert_eq!(Identity::parse(text.as_bytes()), Err(error), "{text}");
        }
    }
}
