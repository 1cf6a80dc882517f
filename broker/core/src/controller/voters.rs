//! Who votes on the metadata, and with which log directory each voter keeps its metadata log. A voter is a broker and a directory
//! together: whoever comes with another one, an old disk or somebody else's, does not vote as the one that is recorded.
//!
//! A directory is recorded when it is first heard of, and replaced only for a voter that lost its log, before that gets what it
//! starts anew on (`raft/seating.rs` of this crate says when that is). Beside it stands how far the voter's log has been, so that an old copy
//! of the disk, whose directory has the same id, is known by what it lacks.
//!
//! Voters come and go on request, one at a time (KIP-853):
//! one that is taken out stays out until somebody asks for it, whatever the configurations say; one that is to come in must
//! wait for that with an empty metadata log, gets the log as a learner, and then votes.

use std::collections::BTreeSet;

use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerId, DirectoryId};
use crate::metadata::{Record, Voter, VoterIntent};
use crate::raft::MembershipChange;

/// A voter's log may lack so many of the indexes that it has had, and is not known as an old copy yet. One record in as many
/// entries is the price.
const LOG_STEP: i64 = 64;

/// Which voter a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterKey {
    /// The cluster that is meant, if the request says.
    pub cluster_id: Option<String>,
    /// The broker.
    pub broker: BrokerId,
    /// The log directory of its metadata log.
    pub directory: Option<DirectoryId>,
}

/// The members of the quorum, as its leader knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumMembers {
    /// This broker, which leads.
    pub leader: BrokerId,
    /// The voters, this one among them.
    pub voters: Vec<BrokerId>,
    /// Who gets the log and does not vote.
    pub learners: Vec<BrokerId>,
    /// The voters that were heard of since the change was first asked for, and this one.
    pub live: BTreeSet<BrokerId>,
    /// Whether whoever lives would have been heard of since.
    pub settled: bool,
    /// Whom this broker's configuration names as voters.
    pub configured: Vec<BrokerId>,
}

/// What a request for a change of the voters leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoterStep {
    /// An entry with these records, which also changes the members, unless the broker is none.
    Propose(Option<MembershipChange>, Vec<Record>),
    /// Another voter must lead first, and is then asked the same.
    HandOver,
}

impl Controller {
    /// Records voters of which nothing is recorded, and the directories of those that had not told theirs.
    pub fn record_voters(&self, voters: &[(BrokerId, Option<DirectoryId>)]) -> Decision<()> {
        let is_news = |(id, directory): &&(BrokerId, Option<DirectoryId>)| {
            let known = self.image.voter(*id);
            known.is_none_or(|known| known.directory.is_none() && directory.is_some())
        };
        let news = voters.iter().filter(is_news);
        let records = news
            .map(|(id, directory)| self.voter_record(*id, *directory))
            .collect();
        Decision { records, reply: () }
    }

    /// Records the directory in which a voter that lost its log starts anew.
    pub fn replace_voter(&self, voter: BrokerId, directory: Option<DirectoryId>) -> Decision<()> {
        let same = |known: Voter| known.directory == directory;
        if self.image.voter(voter).is_some_and(same) {
            return Decision::reply(());
        }
        Decision {
            records: vec![self.voter_record(voter, directory)],
            reply: (),
        }
    }

    /// Records how far the metadata logs of voters have been, by the last index that each is known to have on its disk, once one of
    /// them has gone a good step further.
    pub fn record_voter_logs(&self, ends: &[(BrokerId, i64)]) -> Decision<()> {
        let known = |id| self.image.voter_log_end(id).unwrap_or(-1);
        let is_voter = |(id, _): &&(BrokerId, i64)| self.image.voter(*id).is_some();
        let mut news: Vec<_> = ends.iter().filter(is_voter).collect();
        if news.iter().all(|(id, end)| *end < known(*id) + LOG_STEP) {
            news.clear();
        }
        news.retain(|(id, end)| *end > known(*id));
        let record = |(broker, end): &(BrokerId, i64)| Record::VoterLog {
            broker: *broker,
            end: *end,
        };
        Decision {
            records: news.into_iter().map(record).collect(),
            reply: (),
        }
    }

    /// Has a broker come in as a learner, to vote once it has the log. `waiting` is the directory with which it waits for that,
    /// or gets the log already, if it does. While the broker is on its way the answer is REQUEST_TIMED_OUT, with what is missing:
    /// whoever asks has to ask again.
    pub fn add_voter(
        &self,
        key: &VoterKey,
        members: &QuorumMembers,
        waiting: Option<Option<DirectoryId>>,
    ) -> Result<VoterStep, ApiError> {
        self.check_cluster(key)?;
        let broker = key.broker;
        if members.voters.contains(&broker) {
            let voters = self.named_voters(members);
            return refuse(
                ErrorKind::DuplicateVoter,
                format!("Broker {broker} votes already; the voters are {voters}."),
            );
        }
        if !members.configured.contains(&broker) {
            return refuse(
                ErrorKind::InvalidRequest,
                format!(
                    "Broker {broker} is not in controller.quorum.voters: name it there, in the files of all brokers, and start \
                     it and the voters with that."
                ),
            );
        }
        let Some(directory) = waiting else {
            return not_yet(format!(
                "Broker {broker} does not ask to be taken in. It has to run, with itself in controller.quorum.voters and \
                 without a metadata log of an earlier time: move its folder __cluster_metadata away, if there is one."
            ));
        };
        if key.directory.is_some() && key.directory != directory {
            return refuse(
                ErrorKind::InvalidVoterKey,
                format!(
                    "Broker {broker} comes with {}, not with {}.",
                    named(directory),
                    named(key.directory)
                ),
            );
        }
        let is_learner = members.learners.contains(&broker);
        let intent = self.image.voter_intent(broker);
        let is_invited = match intent {
            Some(VoterIntent::Invited {
                directory: with, ..
            }) => with == directory,
            Some(VoterIntent::Removed { .. }) | None => false,
        };
        if is_learner && is_invited {
            return not_yet(format!(
                "Broker {broker} gets the metadata log, and does not vote yet."
            ));
        }
        let change = (!is_learner).then_some(MembershipChange::AddLearner(broker));
        let invitation = Record::InviteVoter {
            broker,
            directory,
            since: self.last_index + 1,
            removed: intent.map_or(-1, VoterIntent::removed),
        };
        Ok(VoterStep::Propose(change, vec![invitation]))
    }

    /// Has a voter go, or one that was to come in. Refused if those that stay would be no majority that lives.
    pub fn remove_voter(
        &self,
        key: &VoterKey,
        members: &QuorumMembers,
    ) -> Result<VoterStep, ApiError> {
        self.check_cluster(key)?;
        let broker = key.broker;
        let votes = members.voters.contains(&broker);
        let is_member = votes || members.learners.contains(&broker);
        let invited = match self.image.voter_intent(broker) {
            Some(VoterIntent::Invited { directory, .. }) => Some(directory),
            Some(VoterIntent::Removed { .. }) | None => None,
        };
        if !is_member && invited.is_none() {
            let voters = self.named_voters(members);
            return refuse(
                ErrorKind::VoterNotFound,
                format!("Broker {broker} does not vote; the voters are {voters}."),
            );
        }
        let recorded = self.image.voter(broker).map(|voter| voter.directory);
        if let Some(recorded) = recorded.or(invited)
            && recorded != key.directory
        {
            return refuse(
                ErrorKind::VoterNotFound,
                format!(
                    "Broker {broker} votes with {}, not with {}.",
                    named(recorded),
                    named(key.directory)
                ),
            );
        }
        if votes {
            check_majority_without(broker, members)?;
            if broker == members.leader {
                return Ok(VoterStep::HandOver);
            }
        }
        let removal = Record::RemoveVoter {
            broker,
            since: self.last_index + 1,
        };
        let change = is_member.then_some(MembershipChange::Remove(broker));
        Ok(VoterStep::Propose(change, vec![removal]))
    }

    fn check_cluster(&self, key: &VoterKey) -> Result<(), ApiError> {
        match (&key.cluster_id, self.image.cluster_id()) {
            (Some(meant), Some(own)) if meant != own => refuse(
                ErrorKind::InconsistentClusterId,
                format!("This is cluster {own}, not {meant}."),
            ),
            _ => Ok(()),
        }
    }

    fn named_voters(&self, members: &QuorumMembers) -> String {
        let voters = members.voters.iter().map(|id| {
            let directory = self.image.voter(*id).and_then(|voter| voter.directory);
            format!("{id} with {}", named(directory))
        });
        voters.collect::<Vec<_>>().join(", ")
    }

    fn voter_record(&self, broker: BrokerId, directory: Option<DirectoryId>) -> Record {
        Record::Voter {
            broker,
            directory,
            since: self.last_index + 1,
        }
    }
}

fn check_majority_without(broker: BrokerId, members: &QuorumMembers) -> Result<(), ApiError> {
    let staying: Vec<BrokerId> = members
        .voters
        .iter()
        .copied()
        .filter(|id| *id != broker)
        .collect();
    if staying.is_empty() {
        return refuse(
            ErrorKind::InvalidRequest,
            format!("Broker {broker} is the last voter: add another one first."),
        );
    }
    let is_silent = |id: &&BrokerId| !members.live.contains(id);
    let silent: Vec<String> = staying
        .iter()
        .filter(is_silent)
        .map(ToString::to_string)
        .collect();
    if staying.len() - silent.len() > staying.len() / 2 {
        return Ok(());
    }
    let message = format!(
        "Without broker {broker} no majority of the voters would live: nothing is heard of {}. Bring them back, or take them \
         out first.",
        silent.join(", ")
    );
    if members.settled {
        refuse(ErrorKind::InvalidRequest, message)
    } else {
        not_yet(message)
    }
}

fn refuse<T>(kind: ErrorKind, message: String) -> Result<T, ApiError> {
    Err(ApiError::new(kind, message))
}

/// As Kafka answers what may succeed later.
fn not_yet<T>(message: String) -> Result<T, ApiError> {
    refuse(ErrorKind::RequestTimedOut, message)
}

fn named(directory: Option<DirectoryId>) -> String {
    directory.map_or_else(
        || "no known directory".to_owned(),
        |directory| format!("directory {directory}"),
    )
}
