//! Who is a member of the quorum, as this voter's part of it: its leader takes members in and lets them go, on request or by the
//! configuration, and keeps the record of the voters; a member notices that it is none any more.

use std::collections::BTreeSet;
use std::time::Duration;

use taffrail_core::controller::{QuorumMembers, VoterStep};
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::{BrokerId, DirectoryId};
use taffrail_core::metadata::{Record, VoterIntent};
use taffrail_core::raft::{MembershipChange, Message, MessageType, VoterProgress};
use taffrail_core::time::Instant;
use tokio::sync::oneshot;

use super::{Decided, Task};
use crate::cluster::quorum::link::Link;
use crate::cluster::quorum::{Release, VoterWish, Wish};
use crate::cluster::records;
use crate::cluster::seat::SeatLost;
use crate::env::Env;

/// Entries that a learner may lack of those committed when it becomes a voter: a few moments' worth. Raft sees to the rest.
const LEARNER_LAG_MAX: u64 = 64;
/// An election timeout is at most so many ticks; a voter that lives is heard of twenty times as often.
const ELECTION_TICKS_MAX: u32 = 20;

/// Who asks for a removal asks again ten times a second.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(1);

/// How another member was heard of last.
pub(super) struct Heard {
    /// The log directory of its metadata log.
    directory: Option<DirectoryId>,
    at: Instant,
}

/// Somebody asks, again and again, for a voter to go.
pub(super) struct Removal {
    voter: BrokerId,
    /// Who is heard of after this lives.
    since: Instant,
    asked_last: Instant,
}

/// To whoever asked for a change of the voters.
type Answer = oneshot::Sender<Result<(), ApiError>>;

impl<E: Env> Task<E> {
    /// Notes that a member lives. A voter whose directory is not recorded yet is known by the first one that it comes with.
    pub(super) fn note_heard(&mut self, voter: BrokerId, directory: Option<DirectoryId>) {
        let at = self.broker.env.now();
        self.heard.insert(voter, Heard { directory, at });
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

    /// Has the controller record how far the voters' logs are. One that votes alone has nobody who would tell it.
    pub(super) fn note_voter_logs(&mut self) {
        let Some(leadership) = &self.leadership else {
            return;
        };
        let voters = self.raft.progress().into_iter();
        let voters = voters.filter(|progress| progress.votes);
        let end = |progress: VoterProgress| (progress.voter, progress.matched as i64);
        let ends: Vec<(BrokerId, i64)> = voters.map(end).collect();
        if ends.len() < 2 {
            return;
        }
        let records = leadership.controller.record_voter_logs(&ends).records;
        if !records.is_empty() {
            self.decide(Box::new(move |_, _| Decided {
                records,
                release: Box::new(|| {}),
            }));
        }
    }

    /// Does the next step of what somebody wishes for the voters. Without the lead it drops the answer, which says so; also
    /// while it hands the lead over.
    pub(super) fn change_voters(&mut self, wish: &VoterWish, answer: Answer) {
        let (id, now) = (wish.key.broker, self.broker.env.now());
        let since = match wish.wish {
            Wish::Add { .. } => now,
            Wish::Remove => self.removal_since(id),
        };
        let members = self.quorum_members(since);
        let waiting = match self.heard.get(&id) {
            Some(heard) if members.learners.contains(&id) => Some(heard.directory),
            _ => self.broker.cluster.waiting.asked_with(id, now),
        };
        let Some(leadership) = &self.leadership else {
            return;
        };
        let controller = &leadership.controller;
        let step = match wish.wish {
            Wish::Add { .. } => controller.add_voter(&wish.key, &members, waiting),
            Wish::Remove => controller.remove_voter(&wish.key, &members),
        };
        match step {
            Ok(VoterStep::Propose(change, records)) => {
                self.propose_voter_change(wish, change, records, answer);
            }
            Ok(VoterStep::HandOver) => self.hand_over(),
            Err(refusal) => {
                // Whoever asked may have given up.
                let _ = answer.send(Err(refusal));
            }
        }
    }

    fn propose_voter_change(
        &mut self,
        wish: &VoterWish,
        change: Option<MembershipChange>,
        records: Vec<Record>,
        answer: Answer,
    ) {
        let broker = wish.key.broker;
        let outcome = match wish.wish {
            Wish::Remove
            | Wish::Add {
                ack_when_committed: false,
            } => Ok(()),
            Wish::Add {
                ack_when_committed: true,
            } => Err(not_yet(format!("Broker {broker} is being taken in."))),
        };
        tracing::info!(%broker, wish = ?wish.wish, "changes the voters of the metadata quorum as asked");
        let proposed = match change {
            Some(change) => self.propose_members(change, &records),
            None => {
                let release: Release = Box::new(move || {
                    let _ = answer.send(outcome);
                });
                return self.decide(Box::new(move |_, _| Decided { records, release }));
            }
        };
        match proposed {
            Ok(index) => self.reply_at(
                index,
                Box::new(move || {
                    let _ = answer.send(outcome);
                }),
            ),
            Err(reason) => {
                let refusal = not_yet(format!(
                    "Another change of the quorum is under way: {reason}."
                ));
                let _ = answer.send(Err(refusal));
            }
        }
    }

    /// Since when a removal is asked for. What was heard before proves nothing: a voter that died a moment ago would count as one
    /// that lives, and the others that stay be no majority.
    fn removal_since(&mut self, voter: BrokerId) -> Instant {
        let now = self.broker.env.now();
        let same = |removal: &&Removal| {
            removal.voter == voter && now < removal.asked_last + ASKED_AGAIN_WITHIN
        };
        let since = self.removal.as_ref().filter(same);
        let since = since.map_or(now, |removal| removal.since);
        self.removal = Some(Removal {
            voter,
            since,
            asked_last: now,
        });
        since
    }

    fn quorum_members(&self, since: Instant) -> QuorumMembers {
        let (voters, learners) = self.raft.members();
        let own = self.broker.id;
        let is_live = |id: &BrokerId| {
            let heard = self.heard.get(id);
            *id == own || heard.is_some_and(|heard| heard.at > since)
        };
        let live = voters.iter().copied().filter(is_live).collect();
        QuorumMembers {
            leader: own,
            live,
            settled: self.broker.env.now() >= since + self.election_timeout(),
            configured: self.broker.cluster.configured_voters().to_vec(),
            voters,
            learners,
        }
    }

    fn election_timeout(&self) -> Duration {
        self.tick * ELECTION_TICKS_MAX
    }

    /// Takes a broker in as a learner, and replies once that is committed; drops the reply if this voter does not lead or another
    /// change is under way.
    pub(super) fn add_learner(&mut self, learner: BrokerId, reply: Release) {
        let (voters, learners) = self.raft.members();
        if self.leadership.is_some() && (learners.contains(&learner) || voters.contains(&learner)) {
            reply();
            return;
        }
        match self.propose_members(MembershipChange::AddLearner(learner), &[]) {
            Ok(index) => self.reply_at(index, reply),
            Err(reason) => tracing::debug!(%learner, reason, "a learner was not taken in"),
        }
    }

    /// Lets a learner that has the log vote. Two voters stand less than one does, so of an even number it waits for another one,
    /// and both then go one right after the other; unless somebody asked for this one.
    pub(super) fn promote_learner(&mut self) {
        let (voters, learners) = self.raft.members();
        let Some(leadership) = &self.leadership else {
            return;
        };
        if learners.is_empty() {
            return;
        }
        let commit_index = self.raft.commit_index();
        // One that was just taken in counts as active before it was heard of.
        let is_ready = |progress: &VoterProgress| {
            !progress.votes
                && progress.matched > 0
                && progress.recently_active
                && progress.matched + LEARNER_LAG_MAX >= commit_index
        };
        let progress = self.raft.progress().into_iter().filter(is_ready);
        let known = progress.filter_map(|progress| {
            let heard = self.heard.get(&progress.voter)?;
            Some((progress.voter, heard.directory))
        });
        let ready: Vec<(BrokerId, Option<DirectoryId>)> = known.collect();
        let image = leadership.controller.image();
        let is_invited = |(id, _): &&(BrokerId, Option<DirectoryId>)| {
            matches!(image.voter_intent(*id), Some(VoterIntent::Invited { .. }))
        };
        let by_itself = (voters.len() % 2 == 0 || ready.len() >= 2).then(|| ready.first());
        let next = ready.iter().find(is_invited).or(by_itself.flatten());
        let Some(&(learner, directory)) = next else {
            return;
        };
        let records = leadership
            .controller
            .replace_voter(learner, directory)
            .records;
        let change = MembershipChange::AddVoter(learner);
        if let Err(reason) = self.propose_members(change, &records) {
            tracing::debug!(%learner, reason, "a learner was not made a voter");
        }
    }

    /// Proposes a change with its records, and gives the entry's index; or why that is not possible at the moment.
    fn propose_members(
        &mut self,
        change: MembershipChange,
        records: &[Record],
    ) -> Result<u64, String> {
        let Some(leadership) = &mut self.leadership else {
            return Err("this voter does not lead".to_owned());
        };
        let data = records::encode(records).map_err(|error| error.to_string())?;
        let proposed = self.raft.propose_change(change, &data);
        let index = proposed.map_err(|error| error.to_string())?;
        tracing::info!(?change, index, "changes the members of the metadata quorum");
        leadership.controller.apply(index as i64, records);
        leadership.proposed = index;
        Ok(index)
    }

    /// Keeps a reply until the entry at `index`, which this leader has just proposed, is committed.
    fn reply_at(&mut self, index: u64, reply: Release) {
        if let Some(leadership) = &mut self.leadership {
            leadership.pending.push(index, reply);
        }
    }

    /// Opens links to new members, and closes those to brokers that are none any more.
    pub(super) fn link_members(&mut self) {
        let (voters, learners) = self.raft.members();
        let members = voters.into_iter().chain(learners);
        let members: BTreeSet<BrokerId> = members.filter(|id| *id != self.broker.id).collect();
        self.links.retain(|id, _| members.contains(id));
        // What was heard of one that comes in again is of its earlier disk.
        self.heard.retain(|id, _| members.contains(id));
        for id in members {
            self.links
                .entry(id)
                .or_insert_with(|| Link::new(&self.broker, id, self.sender.clone()));
        }
    }

    /// Gives up the seat of a broker that its own log says is no member any more.
    pub(super) fn notice_removal(&mut self) {
        let own = self.broker.id;
        let intent = self.image.voter_intent(own);
        if !matches!(intent, Some(VoterIntent::Removed { .. })) {
            return;
        }
        let (voters, learners) = self.raft.members();
        if !voters.contains(&own) && !learners.contains(&own) {
            self.seat_lost = Some(SeatLost::Removed);
        }
    }

    /// A learner asks for no votes, so that nobody would tell it that it was taken out meanwhile. When it hears of nobody it lets
    /// itself be heard: who leads takes that for the answer to a heartbeat, or refuses it and says why.
    pub(super) fn knock_if_forgotten(&mut self) {
        let (voters, _) = self.raft.members();
        let (own, now, patience) = (
            self.broker.id,
            self.broker.env.now(),
            self.election_timeout(),
        );
        if voters.contains(&own) || self.raft.term() == 0 || now < self.knocked_at + patience {
            return;
        }
        let heard = self.heard.values().map(|heard| heard.at).max();
        if heard.is_some_and(|at| now < at + patience * 2) {
            return;
        }
        self.knocked_at = now;
        let knocks = voters.into_iter().map(|to| {
            let mut knock = Message::new(MessageType::HeartbeatResponse, own, to);
            knock.term = self.raft.term();
            knock
        });
        let knocks: Vec<Message> = knocks.collect();
        self.send(knocks);
    }
}

/// As Kafka answers what may succeed later.
fn not_yet(message: String) -> ApiError {
    ApiError::new(ErrorKind::RequestTimedOut, message)
}
