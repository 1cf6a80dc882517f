//! The values that Raft exchanges with its shell: what travels, what is persisted, and what is to be done.

use crate::ids::BrokerId;

/// An entry of the metadata log. Indexes start at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What `data` holds.
    pub entry_type: EntryType,
    /// The term of the leader that appended it.
    pub term: u64,
    /// Its index.
    pub index: u64,
    /// The records of one decision, encoded; empty for what a new leader appends first.
    pub data: Vec<u8>,
    /// What a membership entry changes, as `MembershipChange::to_bytes` gives it; unused otherwise.
    pub context: Vec<u8>,
}

/// What an entry holds, with its number on the wire and on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum EntryType {
    /// Records.
    Normal = 0,
    /// A change of who is a member, with records that go with it.
    Membership = 1,
}

/// A change of who is a member of the quorum. One is under way at a time, so that two majorities always share a voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// Somebody new gets the log, and does not vote.
    AddLearner(BrokerId),
    /// A learner votes from now on.
    AddVoter(BrokerId),
    /// A member is none any more.
    Remove(BrokerId),
}

impl MembershipChange {
    /// The bytes of a change: its kind and the broker id.
    pub const SIZE: usize = 5;

    /// Whom it is about.
    pub fn member(self) -> BrokerId {
        let (Self::AddLearner(id) | Self::AddVoter(id) | Self::Remove(id)) = self;
        id
    }

    /// As it travels and persists in an entry's context.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let kind = match self {
            Self::AddLearner(_) => 1,
            Self::AddVoter(_) => 2,
            Self::Remove(_) => 3,
        };
        let mut bytes = [kind; Self::SIZE];
        bytes[1..].copy_from_slice(&self.member().0.to_be_bytes());
        bytes
    }

    /// The change that exactly these bytes say.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, id) = bytes.split_first()?;
        let id = BrokerId(i32::from_be_bytes(id.try_into().ok()?));
        match kind {
            _ if id.0 < 0 => None,
            1 => Some(Self::AddLearner(id)),
            2 => Some(Self::AddVoter(id)),
            3 => Some(Self::Remove(id)),
            _ => None,
        }
    }
}

impl TryFrom<i8> for EntryType {
    type Error = RaftError;

    fn try_from(value: i8) -> Result<Self, RaftError> {
        match value {
            0 => Ok(EntryType::Normal),
            1 => Ok(EntryType::Membership),
            _ => Err(RaftError::Malformed("entry type is unknown")),
        }
    }
}

/// What a voter must remember besides entries and snapshot. Written whole, fsynced when `Persist::must_sync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term it has seen.
    pub term: u64,
    /// For whom it voted in this term.
    pub vote: Option<BrokerId>,
    /// The last index known as committed; may lag, since only `term` and `vote` need a sync.
    pub commit: u64,
}

/// The image at an index, standing for all entries up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last index it includes.
    pub index: u64,
    /// The term of the entry of that index.
    pub term: u64,
    /// The voters as of that index.
    pub voters: Vec<BrokerId>,
    /// The learners as of that index.
    pub learners: Vec<BrokerId>,
    /// The records that rebuild the image, encoded.
    pub data: Vec<u8>,
}

/// The kinds of messages that voters exchange, with their numbers on the wire. Proposals are never forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
#[allow(missing_docs)] // The names are the Raft thesis's.
pub enum MessageType {
    Append = 1,
    AppendResponse = 2,
    RequestVote = 3,
    RequestVoteResponse = 4,
    Snapshot = 5,
    Heartbeat = 6,
    HeartbeatResponse = 7,
    TimeoutNow = 8,
    RequestPreVote = 9,
    RequestPreVoteResponse = 10,
}

impl TryFrom<i8> for MessageType {
    type Error = RaftError;

    fn try_from(value: i8) -> Result<Self, RaftError> {
        Ok(match value {
            1 => MessageType::Append,
            2 => MessageType::AppendResponse,
            3 => MessageType::RequestVote,
            4 => MessageType::RequestVoteResponse,
            5 => MessageType::Snapshot,
            6 => MessageType::Heartbeat,
            7 => MessageType::HeartbeatResponse,
            8 => MessageType::TimeoutNow,
            9 => MessageType::RequestPreVote,
            10 => MessageType::RequestPreVoteResponse,
            _ => return Err(RaftError::Malformed("message type is unknown")),
        })
    }
}

/// A message between voters. Fields that a type does not use are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub message_type: MessageType,
    /// To whom.
    pub to: BrokerId,
    /// From whom.
    pub from: BrokerId,
    /// The sender's term.
    pub term: u64,
    /// The term of the entry at `index`.
    pub log_term: u64,
    /// The index that the message is about: of the entry before `entries`, or the last one.
    pub index: u64,
    /// The sender's commit index.
    pub commit: u64,
    /// The term of the entry at `commit`, in votes.
    pub commit_term: u64,
    /// Whether a response refuses.
    pub reject: bool,
    /// Where to try next after a refusal.
    pub reject_hint: u64,
    /// The index from which a follower asks for a snapshot, or zero.
    pub request_snapshot: u64,
    /// The sender's priority in elections.
    pub priority: i64,
    /// Says why a vote is asked for.
    pub context: Vec<u8>,
    /// Entries of consecutive indexes.
    pub entries: Vec<Entry>,
    /// The snapshot of a `Snapshot` message.
    pub snapshot: Option<Snapshot>,
}

impl Message {
    /// A message with everything else zero.
    pub fn new(message_type: MessageType, from: BrokerId, to: BrokerId) -> Self {
        Self {
            message_type,
            to,
            from,
            term: 0,
            log_term: 0,
            index: 0,
            commit: 0,
            commit_term: 0,
            reject: false,
            reject_hint: 0,
            request_snapshot: 0,
            priority: 0,
            context: Vec::new(),
            entries: Vec::new(),
            snapshot: None,
        }
    }
}

/// What a voter finds on its disk when it starts; all empty at bootstrap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persisted {
    /// The last one written.
    pub hard_state: HardState,
    /// The newest one.
    pub snapshot: Option<Snapshot>,
    /// All that are on disk, of consecutive indexes. Those that the snapshot includes are passed over.
    pub entries: Vec<Entry>,
}

/// What must be written: snapshot first, then entries, then hard state. A stop in between, with any number of the entries
/// written, does no harm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persist {
    /// Replaces all entries and any older snapshot.
    pub snapshot: Option<Snapshot>,
    /// To append; if the first one's index exists on disk, it and all after it are cut off first.
    pub entries: Vec<Entry>,
    /// Replaces the earlier one.
    pub hard_state: Option<HardState>,
    /// Whether an fsync must come before `RaftNode::handle_persisted`. When false, at most the commit index of the hard
    /// state changed, and writing it may wait.
    pub must_sync: bool,
}

impl Persist {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.entries.is_empty() && self.hard_state.is_none()
    }
}

/// What the shell must do, in the order of the fields. A following `Ready` may be taken, and messages and ticks handled,
/// while the writes of `persist` are under way; but they are written in order, one `Ready` after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Passed to `RaftNode::handle_persisted` once `persist` is on disk, also when `persist` is empty.
    pub number: u64,
    /// To be sent at once. A lost message does no harm.
    pub messages: Vec<Message>,
    /// To be installed in place of the committed image, before `committed`.
    pub install: Option<Snapshot>,
    /// Committed entries to apply, in order, each once. They are on this voter's disk already.
    pub committed: Vec<Entry>,
    /// What this voter has become, to act on after `committed` is applied.
    pub role: Option<Role>,
    /// To be written now.
    pub persist: Persist,
}

/// What a voter is in the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leads in this term (a controller of an earlier term is dropped), and every entry of earlier terms is committed and was handed out: the committed image is
    /// the newest there is, and the controller may start on it.
    Leader {
        /// Its term.
        term: u64,
    },
    /// Does not lead (any more): the controller, with all that it proposed and was not yet committed, is dropped.
    Follower {
        /// Who leads, as far as known.
        leader: Option<BrokerId>,
        /// The term it knows.
        term: u64,
    },
}

/// Why a proposal was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This voter does not lead, or leads but has not yet applied what earlier leaders left.
    #[error("not the leader of the metadata quorum")]
    NotLeader {
        /// Who leads, as far as known.
        leader: Option<BrokerId>,
    },
    /// Too much is proposed and not committed, or leadership is being handed over. Nothing was appended; try again later.
    #[error("the metadata quorum does not take proposals at the moment")]
    Busy,
    /// A change of members that makes no sense.
    #[error("{0}")]
    NotPossible(&'static str),
}

/// Why a message or a persisted state was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaftError {
    /// A field has no sensible value.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// The message is for another broker, or an answer of one that is not a member.
    #[error("not a message between members of this quorum")]
    UnknownVoter,
    /// The leader knows of entries that this voter acknowledged and does not have: it lost what it had persisted and must
    /// not vote again under its id.
    #[error("this voter has lost log entries that it had acknowledged")]
    LostLog,
    /// What was persisted does not fit together.
    #[error("the persisted metadata log is damaged: {0}")]
    Damaged(&'static str),
    /// A committed entry changes the members in a way that no correct leader proposes. Whoever applied it would count
    /// votes otherwise than the others do: this voter is of no further use.
    #[error("metadata entry {index} cannot change the members of the quorum: {reason}")]
    ImpossibleChange {
        /// The entry.
        index: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// How far a voter is, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterProgress {
    /// Which voter.
    pub voter: BrokerId,
    /// Whether it votes; a learner only gets the log.
    pub votes: bool,
    /// The last index that is known to be on its disk.
    pub matched: u64,
    /// Whether it was heard from within the last election timeout; always true of the leader itself.
    pub recently_active: bool,
}

/// A piece of the committed log, for brokers that follow it without a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommittedLog {
    /// The entries asked for.
    Entries(Vec<Entry>),
    /// The entries asked for are gone; the log goes on after this.
    Snapshot(Snapshot),
}
