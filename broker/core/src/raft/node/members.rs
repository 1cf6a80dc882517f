//! Who is a member of the quorum: changes by entries of the log, one at a time, and members that lost their log.

use raft::{INVALID_ID, StateRole, eraftpb};

use super::RaftNode;
use crate::ids::BrokerId;
use crate::raft::convert;
use crate::raft::types::{MembershipChange, ProposeError, RaftError, Snapshot};

impl RaftNode {
    /// Appends a change of the members, with records that hold from then on. As `propose`; refused with
    /// `ProposeError::Busy` while an earlier change is not applied. It takes effect when it comes back in `Ready::committed`.
    pub fn propose_change(
        &mut self,
        change: MembershipChange,
        data: &[u8],
    ) -> Result<u64, ProposeError> {
        self.check_leads()?;
        let (voters, learners) = self.members();
        if change == MembershipChange::Remove(self.own_id()) {
            return Err(ProposeError::NotPossible(
                "the leader does not remove itself",
            ));
        }
        if let Some(objection) = objection(change, &voters, &learners) {
            return Err(ProposeError::NotPossible(objection));
        }
        if self.raw.raft.has_pending_conf() {
            return Err(ProposeError::Busy);
        }
        let context = [&change.to_bytes()[..], data].concat();
        let converted = convert::change_to_raft(change);
        let proposed = self.raw.propose_conf_change(context, converted);
        self.settle();
        match proposed {
            Ok(()) => Ok(self.last_index()),
            Err(_) => Err(ProposeError::Busy),
        }
    }

    /// A member lost its disk, and with it all that it acknowledged to this one, which leads: that does not count any more.
    /// Gives the snapshot on which it starts anew, if `image` is that of the last entry handed out to be applied
    /// and this leader has reported itself, so that an entry of its term is committed.
    pub fn restore_voter(&mut self, voter: BrokerId, image: Vec<u8>) -> Option<Snapshot> {
        self.check_leads().ok()?;
        let progress = self
            .raw
            .raft
            .mut_prs()
            .get_mut(convert::id_to_raft(voter))?;
        progress.matched = 0;
        progress.become_probe();
        progress.next_idx = self.applied.0 + 1;
        let (voters, learners) = self.members();
        let snapshot = Snapshot {
            index: self.applied.0,
            term: self.applied.1,
            voters,
            learners,
            data: image,
        };
        self.settle();
        Some(snapshot)
    }

    /// The voters and the learners as of the last entry handed out, each sorted.
    pub fn members(&self) -> (Vec<BrokerId>, Vec<BrokerId>) {
        let ids = |ids: &[u64]| {
            let ids = ids.iter().copied().filter_map(convert::id_from_raft);
            let mut ids: Vec<BrokerId> = ids.collect();
            ids.sort_unstable();
            ids
        };
        let members = self.raw.raft.prs().conf().to_conf_state();
        (ids(&members.voters), ids(&members.learners))
    }

    /// Changes of the members hold from the moment their entries are handed out. So a voter that starts again goes through
    /// all of them after its snapshot, and knows the same members at the same index as every other.
    ///
    /// It goes as far as the commit index on its disk, which may be behind: one that moves alone is written with the next entries.
    /// Still it lacks at most the last change in its log. A leader proposes a change once it has applied the one before, so whoever
    /// is sent the one hears with it that the other is committed, and writes both as one. The majorities before and after
    /// one change have a voter in common, so that two voters which are apart by one are never both elected in a term; apart by two
    /// they could be. A later entry that is written without its commit index, or a second change that is proposed early, breaks this.
    pub(super) fn change_members(&mut self, committed: &[eraftpb::Entry]) -> Result<(), RaftError> {
        for entry in committed {
            let Some(change) = convert::membership_change(entry) else {
                continue;
            };
            let impossible = |reason| RaftError::ImpossibleChange {
                index: entry.index,
                reason,
            };
            let (voters, learners) = self.members();
            if let Some(objection) = objection(change, &voters, &learners) {
                return Err(impossible(objection));
            }
            let changed = self.raw.apply_conf_change(&convert::change_to_raft(change));
            let members = changed.map_err(|_| impossible("raft refuses it"))?;
            self.raw.mut_store().set_members(entry.index, members);
            self.stand_down_if_removed();
        }
        Ok(())
    }

    /// A leader does not propose to remove itself, but it may have come to lead with such a proposal of the one before it in its
    /// log, and commits that. The crate would have it lead on, and stop the process at the next commit.
    fn stand_down_if_removed(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.state != StateRole::Follower && !raft.promotable() {
            let term = raft.term;
            raft.become_follower(term, INVALID_ID);
        }
    }

    fn own_id(&self) -> BrokerId {
        // The one that it was started with: `id_to_raft` and back.
        convert::id_from_raft(self.raw.raft.id).unwrap_or(BrokerId(-1))
    }
}

/// Why a change makes no sense to a quorum of these members, if it does not.
fn objection(
    change: MembershipChange,
    voters: &[BrokerId],
    learners: &[BrokerId],
) -> Option<&'static str> {
    let id = change.member();
    let (votes, learns) = (voters.contains(&id), learners.contains(&id));
    match change {
        _ if id.0 < 0 => Some("a broker id is not negative"),
        MembershipChange::AddLearner(_) if votes || learns => Some("it is a member already"),
        MembershipChange::AddVoter(_) if !learns => Some("only a learner can become a voter"),
        MembershipChange::Remove(_) if !votes && !learns => Some("it is no member"),
        MembershipChange::Remove(_) if voters == [id] => Some("the last voter cannot go"),
        MembershipChange::AddLearner(_)
        | MembershipChange::AddVoter(_)
        | MembershipChange::Remove(_) => None,
    }
}
