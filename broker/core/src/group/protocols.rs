//! The protocols (assignors) of a group's members: what a member may bring, which of them all members support, and which one is
//! chosen. Nothing here grows faster than the protocols themselves: their number is a client's word.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::ErrorKind;

use super::classic::Classic;
use super::member::Member;
use super::record::{Bytes, TEXT_BYTES_MAX};
use super::request::JoinGroup;
use super::settings::Settings;

/// Protocols of one member. Clients send one for each assignor that they are configured with: 1 to 4.
const PROTOCOLS_MAX: usize = 100;

/// Names and metadata of all protocols of one member, in batches. Only those of the chosen protocol are ever written, and
/// must fit into a batch; clients send up to 4 with much the same metadata.
const MEMBER_BATCHES_MAX: usize = 4;

/// The same of all members of a group, twice: a member that restarted is there a second time until its old session ends.
const GROUP_BATCHES_MAX: usize = 2 * MEMBER_BATCHES_MAX;

/// Names and metadata, preferred first.
pub(super) type Protocols = [(String, Bytes)];

/// Whether a member may bring protocols with these names and sizes of metadata; to be asked before they are copied.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] for more, or larger, ones than could ever be used, and for a name that comes twice.
pub fn check_protocols<'a>(
    settings: &Settings,
    protocols: impl ExactSizeIterator<Item = (&'a str, usize)>,
) -> Result<(), ErrorKind> {
    if protocols.len() > PROTOCOLS_MAX {
        return Err(ErrorKind::InvalidRequest);
    }
    let (mut names, mut all) = (BTreeSet::new(), 0);
    for (name, metadata) in protocols {
        let bytes = name.len() + metadata;
        let fits = name.len() <= TEXT_BYTES_MAX && bytes <= settings.batch_bytes_max;
        if !fits || !names.insert(name) {
            return Err(ErrorKind::InvalidRequest);
        }
        all += bytes;
    }
    if all > MEMBER_BATCHES_MAX * settings.batch_bytes_max {
        return Err(ErrorKind::InvalidRequest);
    }
    Ok(())
}

/// Bytes of names and metadata.
pub(super) fn bytes_of(protocols: &Protocols) -> usize {
    protocols
        .iter()
        .map(|(name, metadata)| name.len() + metadata.len())
        .sum()
}

/// Who supports what, kept as members come and go, so that a member that joins is not compared with all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Supporters {
    /// How many members support a protocol; none is 0.
    counts: BTreeMap<String, usize>,
    /// Names and metadata of all members.
    bytes: usize,
}

impl Supporters {
    pub(super) fn of<'a>(members: impl Iterator<Item = &'a Member>) -> Supporters {
        let mut supporters = Supporters::default();
        members.for_each(|member| supporters.add(&member.protocols));
        supporters
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn add(&mut self, protocols: &Protocols) {
        self.bytes += bytes_of(protocols);
        for (name, _) in protocols {
            match self.counts.get_mut(name) {
                Some(count) => *count += 1,
                None => {
                    self.counts.insert(name.clone(), 1);
                }
            }
        }
    }

    fn remove(&mut self, protocols: &Protocols) {
        self.bytes -= bytes_of(protocols);
        for (name, _) in protocols {
            if let Some(count) = self.counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(name);
                }
            }
        }
    }
}

impl Classic {
    pub(super) fn insert_member(&mut self, member_id: String, member: Member) {
        self.supporters.add(&member.protocols);
        if let Some(old) = self.members.insert(member_id, member) {
            self.supporters.remove(&old.protocols);
        }
    }

    pub(super) fn remove_member(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        self.supporters.remove(&member.protocols);
        Some(member)
    }

    /// Takes what a member says of itself when it joins again.
    pub(super) fn update_member(&mut self, request: &JoinGroup) -> Option<&mut Member> {
        let member = self.members.get_mut(&request.member_id)?;
        self.supporters.remove(&member.protocols);
        member.update(request);
        self.supporters.add(&member.protocols);
        Some(member)
    }

    /// How many bytes more the group holds if this member joins it, or joins it again.
    pub(super) fn grows_by(&self, request: &JoinGroup) -> usize {
        let held = self.members.get(&request.member_id);
        let held = held.map_or(0, |member| bytes_of(&member.protocols));
        bytes_of(&request.protocols).saturating_sub(held)
    }

    /// Whether the members' metadata stays within bounds. Joining again with no more of it than before always does.
    pub(super) fn has_room_for_protocols(&self, settings: &Settings, request: &JoinGroup) -> bool {
        let more = self.grows_by(request);
        more == 0 || self.supporters.bytes + more <= GROUP_BATCHES_MAX * settings.batch_bytes_max
    }

    /// A member must be of the group's type and support one protocol at least that all others do.
    pub(super) fn supports_protocols_of(&self, request: &JoinGroup) -> bool {
        if self.members.is_empty() {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(request.protocol_type.as_str())
            && request
                .protocols
                .iter()
                .any(|(name, _)| self.all_support(name))
    }

    fn all_support(&self, name: &str) -> bool {
        self.supporters.counts.get(name) == Some(&self.members.len())
    }

    /// Of the protocols that all members support, the one that most of them prefer to the others; with as many votes,
    /// the one that comes first in the alphabet, so that the choice does not depend on who joined first.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut names = member.protocols.iter().map(|(name, _)| name.as_str());
            if let Some(preferred) = names.find(|name| self.all_support(name)) {
                *votes.entry(preferred).or_default() += 1;
            }
        }
        votes
            .into_iter()
            .max_by(|(a, votes_of_a), (b, votes_of_b)| {
                votes_of_a.cmp(votes_of_b).then_with(|| b.cmp(a))
            })
            .map(|(name, _)| name.to_owned())
    }
}
