//! What a voter does as the leader of the quorum, besides the controller's decisions: it takes the lead and hands it over, and
//! keeps the record of the voters.

use std::collections::BTreeSet;

use taffrail_core::controller::Controller;
use taffrail_core::ids::{BrokerId, DirectoryId, TopicId};
use taffrail_core::metadata::{Image, Record};
use taffrail_core::raft::{MembershipChange, Role, Snapshot, VoterProgress, VoterStanding};

use super::{Decided, Leadership, Task};
use crate::cluster::quorum::Release;
use crate::cluster::quorum::link::Link;
use crate::cluster::quorum::pending::PendingReplies;
use crate::cluster::records;
use crate::env::{Env, random_id};

/// Entries that a learner may lack of those committed when it becomes a voter: a few moments' worth. Raft sees to the rest.
const LEARNER_LAG_MAX: u64 = 64;

impl<E: Env> Task<E> {
    pub(super) fn take_role(&mut self, role: Role) {
        match role {
            Role::Leader { term } => {
                tracing::info!(broker = %self.broker.id, term, "leads the metadata quorum");
                let now = self.broker.env.now();
                let controller = Controller::new(
                    now,
                    self.config.clone(),
                    Image::clone(&self.image),
                    self.applied as i64,
                );
                self.leadership = Some(Leadership {
                    term,
                    controller,
                    proposed: self.applied,
                    pending: PendingReplies::default(),
                });
                self.bootstrap();
                self.broker.cluster.set_leader(Some(self.broker.id));
            }
            Role::Follower { leader, term } => {
                if let Some(mut leadership) = self.leadership.take() {
                    tracing::info!(broker = %self.broker.id, term, "does not lead the metadata quorum any more");
                    leadership.pending.drop_all();
                }
                self.broker.cluster.set_leader(leader);
            }
        }
    }

    /// The first controller gives the cluster its id: the configured one, else one drawn like any other id.
    fn bootstrap(&mut self) {
        let drawn = || TopicId(random_id(&self.broker.env)).to_string();
        let cluster_id = self.broker.cluster.cluster_id().unwrap_or_else(drawn);
        let own = (self.broker.id, self.broker.cluster.seat.directory());
        let others = self.raft.progress().into_iter();
        let others = others.filter(|progress| progress.votes && progress.voter != own.0);
        let voters: Vec<_> = others
            .map(|progress| (progress.voter, None))
            .chain([own])
            .collect();
        self.decide(Box::new(move |controller, _| {
            let mut records = controller.bootstrap(&cluster_id).records;
            records.extend(match voters.as_slice() {
                // With nobody to ask there is no other way to move the metadata log.
                [(own, directory)] => controller.replace_voter(*own, *directory).records,
                voters => controller.record_voters(voters).records,
            });
            Decided {
                records,
                release: Box::new(|| {}),
            }
        }));
    }

    /// Lets the voter lead that is most up to date, so that the others need not notice a silence; rather one that does not
    /// stop, too, and would hand over again.
    pub(super) fn hand_over(&mut self) {
        let own = self.broker.id;
        let candidates = self.raft.progress().into_iter();
        let stays = |voter| {
            let broker = self.image.broker(voter);
            broker.is_some_and(|broker| !broker.fenced && !broker.in_controlled_shutdown)
        };
        let best = candidates
            .filter(|progress| progress.votes && progress.voter != own && progress.recently_active)
            .max_by_key(|progress| (stays(progress.voter), progress.matched, progress.voter));
        if let Some(best) = best {
            tracing::info!(to = %best.voter, "hands the lead of the metadata quorum over");
            self.raft.transfer_leader(best.voter);
        }
    }

    /// A voter whose directory is not recorded yet is known by the first one that it comes with.
    pub(super) fn note_directory(&mut self, voter: BrokerId, directory: Option<DirectoryId>) {
        self.directories.insert(voter, directory);
        let Some(leadership) = &self.leadership else {
            return;
        };
        let known = leadership.controller.image().voter(voter);
        if directory.is_some() && known.is_some_and(|known| known.directory.is_none()) {
            self.decide(Box::new(move |controller, _| {
                let decision = controller.record_voters(&[(voter, directory)]);
                Decided {
                    records: decision.records,
                    release: Box::new(|| {}),
                }
            }));
        }
    }

    /// A voter whose disk was lost starts anew on what is committed here.
    pub(super) fn restore(&mut self, voter: BrokerId) -> Result<Option<Snapshot>, String> {
        if self.leadership.is_none() || self.raft.applied_index() != self.applied {
            return Ok(None);
        }
        let data = records::encode(&self.image.snapshot()).map_err(|error| error.to_string())?;
        let snapshot = self.raft.restore_voter(voter, data);
        tracing::warn!(%voter, given = snapshot.is_some(), "a voter with an empty metadata log asks for a snapshot");
        Ok(snapshot)
    }

    /// How this voter stands, as a broker without a metadata log is told.
    pub(super) fn standing_to(&self, asker: BrokerId) -> VoterStanding {
        let counts_asker = self.raft.members().0.contains(&asker);
        if self.raft.last_index() == 0 && counts_asker {
            return VoterStanding::Fresh;
        }
        VoterStanding::Seated {
            term: self.raft.term(),
            leader: self.raft.leader(),
            counts_asker,
        }
    }

    /// Takes a broker in as a learner, and replies once that is committed; drops the reply if this voter does not lead or another
    /// change is under way.
    pub(super) fn add_learner(&mut self, learner: BrokerId, reply: Release) {
        let (voters, learners) = self.raft.members();
        if self.leadership.is_some() && (learners.contains(&learner) || voters.contains(&learner)) {
            reply();
            return;
        }
        self.change_members(MembershipChange::AddLearner(learner), Vec::new, reply);
    }

    /// Lets a learner that has the log vote. Two voters stand less than one does, so of an even number it waits for another one;
    /// both then go one right after the other.
    pub(super) fn promote_learner(&mut self) {
        if self.leadership.is_none() {
            return;
        }
        let (voters, learners) = self.raft.members();
        if learners.is_empty() {
            return;
        }
        let commit_index = self.raft.commit_index();
        let is_ready = |progress: &VoterProgress| {
            !progress.votes
                && progress.recently_active
                && progress.matched + LEARNER_LAG_MAX >= commit_index
        };
        let progress = self.raft.progress().into_iter().filter(is_ready);
        let known = progress.filter_map(|progress| {
            let directory = self.directories.get(&progress.voter)?;
            Some((progress.voter, *directory))
        });
        let ready: Vec<(BrokerId, Option<DirectoryId>)> = known.collect();
        let Some(&(learner, directory)) = ready.first() else {
            return;
        };
        if voters.len() % 2 == 1 && ready.len() < 2 {
            return;
        }
        let Some(leadership) = &self.leadership else {
            return;
        };
        let records = leadership
            .controller
            .replace_voter(learner, directory)
            .records;
        let change = MembershipChange::AddVoter(learner);
        self.change_members(change, || records, Box::new(|| {}));
    }

    /// Proposes a change with its records; drops the reply if that is not possible at the moment.
    fn change_members(
        &mut self,
        change: MembershipChange,
        records: impl FnOnce() -> Vec<Record>,
        reply: Release,
    ) {
        let Some(leadership) = &mut self.leadership else {
            return;
        };
        let records = records();
        let proposed = records::encode(&records)
            .map_err(|error| error.to_string())
            .and_then(|data| {
                let proposed = self.raft.propose_change(change, &data);
                proposed.map_err(|error| error.to_string())
            });
        match proposed {
            Ok(index) => {
                tracing::info!(?change, index, "changes the members of the metadata quorum");
                leadership.controller.apply(index as i64, &records);
                leadership.proposed = index;
                leadership.pending.push(index, reply);
            }
            Err(reason) => {
                tracing::debug!(?change, reason, "a change of members was not proposed");
            }
        }
    }

    /// Opens links to new members, and closes those to brokers that are none any more.
    pub(super) fn link_members(&mut self) {
        let (voters, learners) = self.raft.members();
        let members = voters.into_iter().chain(learners);
        let members: BTreeSet<BrokerId> = members.filter(|id| *id != self.broker.id).collect();
        self.links.retain(|id, _| members.contains(id));
        for id in members {
            self.links
                .entry(id)
                .or_insert_with(|| Link::new(&self.broker, id, self.sender.clone()));
        }
    }
}
