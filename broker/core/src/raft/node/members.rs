//! Who is a member of the quorum: changes by entries of the log, one at a time, and members that lost their log.

use raft::eraftpb;

use super::RaftNode;
use crate::ids::BrokerId;
use crate::raft::convert;
use crate::raft::types::{MembershipChange, ProposeError, Snapshot};

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
        let id = change.member();
        let refusal = match change {
            _ if id.0 < 0 => Some("a broker id is not negative"),
            MembershipChange::AddLearner(_) if voters.contains(&id) || learners.contains(&id) => {
                Some("it is a member already")
            }
            MembershipChange::AddVoter(_) if !learners.contains(&id) => {
                Some("only a learner can become a voter")
            }
            MembershipChange::Remove(_) if convert::id_to_raft(id) == self.raw.raft.id => {
                Some("the leader does not remove itself")
            }
            MembershipChange::Remove(_) if !voters.contains(&id) && !learners.contains(&id) => {
                Some("it is no member")
            }
            MembershipChange::AddLearner(_)
            | MembershipChange::AddVoter(_)
            | MembershipChange::Remove(_) => None,
        };
        if let Some(refusal) = refusal {
            return Err(ProposeError::NotPossible(refusal));
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
    pub(super) fn change_members(&mut self, committed: &[eraftpb::Entry]) {
        for entry in committed {
            let Some(change) = convert::membership_change(entry) else {
                continue;
            };
            let changed = self.raw.apply_conf_change(&convert::change_to_raft(change));
            let members = changed.expect("a leader proposes only changes that are possible");
            self.raw.mut_store().set_members(entry.index, members);
        }
    }
}
