//! What a voter does as the leader of the quorum, besides the controller's decisions: it takes the lead and hands it over, and
//! restores voters that lost their log.

use taffrail_core::controller::Controller;
use taffrail_core::ids::{BrokerId, TopicId};
use taffrail_core::metadata::Image;
use taffrail_core::raft::{Role, Snapshot, VoterStanding};

use super::{Decided, Leadership, Task};
use crate::cluster::quorum::pending::PendingReplies;
use crate::cluster::records;
use crate::env::{Env, random_id};

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
}
