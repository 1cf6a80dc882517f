//! The names of replica folders: `<topic>-<partition>`, and the same with a topic id and `-future`, `-whole`, `-stray` or
//! `-delete`.

/// A replica's folder, as its name tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionFolder {
    /// The folder's name inside its log directory.
    pub name: String,
    /// The topic. Cut short in a stray's or deleted replica's name if it was very long.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Whether the replica is in use.
    pub state: FolderState,
}

/// What a folder's suffix says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FolderState {
    /// In use.
    Live,
    /// A copy in the making of a replica in another log directory, with its topic id (Kafka's future replica).
    Future([u8; 16]),
    /// Such a copy that has everything and is about to take the other one's place.
    Whole([u8; 16]),
    /// Unknown to the metadata and kept, with its topic id.
    Stray([u8; 16]),
    /// To be removed, with its topic id.
    Deleted([u8; 16]),
}

/// Longest file name that Linux file systems take.
const NAME_BYTES_MAX: usize = 255;
const FUTURE_SUFFIX: &str = "-future";
const WHOLE_SUFFIX: &str = "-whole";
const STRAY_SUFFIX: &str = "-stray";
const DELETE_SUFFIX: &str = "-delete";

impl FolderState {
    /// Whether a broker works with it, as the replica or as a copy in the making.
    pub(crate) fn is_in_use(self) -> bool {
        match self {
            FolderState::Live | FolderState::Future(_) | FolderState::Whole(_) => true,
            FolderState::Stray(_) | FolderState::Deleted(_) => false,
        }
    }
}

impl PartitionFolder {
    /// The folder of a replica in use.
    pub fn live(topic: &str, partition: i32) -> PartitionFolder {
        let name = format!("{topic}-{partition}");
        PartitionFolder {
            name,
            topic: topic.to_owned(),
            partition,
            state: FolderState::Live,
        }
    }

    /// The folder of a copy in the making. `None` if the topic's name is too long for one: it must be whole in it, for it
    /// becomes the replica's.
    pub fn future(topic: &str, partition: i32, topic_id: [u8; 16]) -> Option<PartitionFolder> {
        let live = PartitionFolder::live(topic, partition);
        let future = live.in_state(FolderState::Future(topic_id));
        (future.topic == topic).then_some(future)
    }

    /// The same replica's folder in another state.
    pub(crate) fn in_state(&self, state: FolderState) -> PartitionFolder {
        let (id, suffix) = match state {
            FolderState::Live => return PartitionFolder::live(&self.topic, self.partition),
            FolderState::Future(id) => (id, FUTURE_SUFFIX),
            FolderState::Whole(id) => (id, WHOLE_SUFFIX),
            FolderState::Stray(id) => (id, STRAY_SUFFIX),
            FolderState::Deleted(id) => (id, DELETE_SUFFIX),
        };
        let tail = format!("-{}.{}{suffix}", self.partition, hex(&id));
        let mut topic = self.topic.clone();
        while topic.len() + tail.len() > NAME_BYTES_MAX {
            topic.pop();
        }
        PartitionFolder {
            name: format!("{topic}{tail}"),
            topic,
            partition: self.partition,
            state,
        }
    }

    /// What a name says, or `None` for a folder that is no replica's.
    pub fn parse(name: &str) -> Option<PartitionFolder> {
        let marked = |suffix: &str| {
            let (front, id) = name.strip_suffix(suffix)?.rsplit_once('.')?;
            Some((front, parse_hex(id)?))
        };
        type State = fn([u8; 16]) -> FolderState;
        let states: [(&str, State); 4] = [
            (FUTURE_SUFFIX, FolderState::Future),
            (WHOLE_SUFFIX, FolderState::Whole),
            (STRAY_SUFFIX, FolderState::Stray),
            (DELETE_SUFFIX, FolderState::Deleted),
        ];
        let found = states
            .iter()
            .find_map(|(suffix, state)| marked(suffix).map(|(front, id)| (front, state(id))));
        let (front, state) = found.unwrap_or((name, FolderState::Live));
        let (topic, digits) = front.rsplit_once('-')?;
        let partition: i32 = digits.parse().ok()?;
        // "+1" and "007" parse as numbers, but no folder of ours is called so.
        if topic.is_empty() || partition < 0 || digits != partition.to_string() {
            return None;
        }
        Some(PartitionFolder {
            name: name.to_owned(),
            topic: topic.to_owned(),
            partition,
            state,
        })
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_no_replicas() {
        let id = [0xab; 16];
        let hex = "ab".repeat(16);
        let check = |name: &str, expected: Option<(&str, i32, FolderState)>| {
            let found = PartitionFolder::parse(name);
            let found = found
                .as_ref()
                .map(|folder| (folder.topic.as_str(), folder.partition, folder.state));
            assert_eq!(found, expected, "{name}");
        };
        check("orders-0", Some(("orders", 0, FolderState::Live)));
        check("a-b-12", Some(("a-b", 12, FolderState::Live)));
        check("a.b-12", Some(("a.b", 12, FolderState::Live)));
        check(
            &format!("orders-3.{hex}-stray"),
            Some(("orders", 3, FolderState::Stray(id))),
        );
        check(
            &format!("orders-3.{hex}-delete"),
            Some(("orders", 3, FolderState::Deleted(id))),
        );
        check(
            &format!("orders-3.{hex}-future"),
            Some(("orders", 3, FolderState::Future(id))),
        );
        check(
            &format!("orders-3.{hex}-whole"),
            Some(("orders", 3, FolderState::Whole(id))),
        );
        check("orders", None);
        check("orders-", None);
        check("-0", None);
        check("orders--1", Some(("orders-", 1, FolderState::Live)));
        check("orders-01", None);
        check("orders-1.abc-stray", None);
        check("lost+found", None);
    }

    #[test]
    fn a_long_topic_is_cut_to_what_a_file_system_takes() {
        let live = PartitionFolder::live(&"t".repeat(249), 7);
        let stray = live.in_state(FolderState::Stray([1; 16]));
        assert_eq!(stray.name.len(), 255);
        assert_eq!(PartitionFolder::parse(&stray.name), Some(stray));
    }

    #[test]
    fn a_copy_keeps_its_whole_name_or_is_none() {
        let longest = "t".repeat(255 - "-7.-future".len() - 32);
        let future = PartitionFolder::future(&longest, 7, [1; 16]).expect("it fits");
        assert_eq!(future.in_state(FolderState::Live).topic, longest);
        assert_eq!(PartitionFolder::parse(&future.name), Some(future));
        assert_eq!(
            PartitionFolder::future(&"t".repeat(longest.len() + 1), 7, [1; 16]),
            None
        );
    }
}
