//! This broker's seat in the metadata quorum: one task that owns the Raft voter and, while that leads, the controller.
//! The rest of the broker talks to it by events and never touches either.

mod link;
mod pending;
mod task;
pub(super) mod wire;

use std::sync::OnceLock;

use taffrail_core::controller::{Controller, Decision, Sighting, Suspect, VoterKey};
use taffrail_core::error::ApiError;
use taffrail_core::ids::{BrokerId, DirectoryId, Incarnation};
use taffrail_core::metadata::{Record, Voter};
use taffrail_core::raft::{Message, Snapshot, VoterProgress, VoterStanding};
use taffrail_core::time::Instant;
use taffrail_protocol::ErrorCode;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::records;

pub(super) use task::{Parts, Task};

/// Events that wait for the task: messages of two peers (one request of 32 each at a time), heartbeats and requests of
/// all brokers. A full queue makes Raft send again and commands wait.
const EVENTS_MAX: usize = 1024;

/// Most bytes of records that a request of a client may have committed: some 100,000 partitions. An entry of the log travels in one
/// frame, which must reach the other voters within the time of a Raft message; nothing behind it commits before.
const CLIENT_DECISION_BYTES_MAX: usize = 8 << 20;

/// This broker does not lead the quorum, or lost the lead before the decision was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this broker is not the active controller")]
pub(crate) struct NotController;

/// Why nothing was decided for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Undecided {
    #[error(transparent)]
    NotController(#[from] NotController),
    /// It would change more of the metadata at once than one entry of the log may hold.
    #[error(
        "the request would change more than {CLIENT_DECISION_BYTES_MAX} bytes of metadata at once; send it in parts"
    )]
    TooLarge,
}

impl Undecided {
    pub(crate) fn code(self) -> ErrorCode {
        match self {
            Self::NotController(NotController) => ErrorCode::NotController,
            Self::TooLarge => ErrorCode::PolicyViolation,
        }
    }
}

/// What the task is told.
pub(super) enum Event {
    /// Raft messages of another voter, in order, and the directory that it votes with.
    Messages(Vec<Message>, Option<DirectoryId>),
    /// Another voter knows a later record of this one, with another directory.
    Replaced(Voter),
    /// Another voter knows that the metadata log of this one has been further than it is.
    OldCopy { had: i64 },
    /// Another voter knows that this broker was taken out of the voters, at that index.
    Removed { since: i64 },
    /// A voter that cannot be reached.
    Unreachable(BrokerId),
    /// A request for the controller.
    Decide(Decide),
    /// Somebody wants to know how far the voters are.
    Describe(oneshot::Sender<QuorumProgress>),
    /// A broker without a metadata log asks how this voter stands, and for a snapshot if it is to start on that.
    VoterState {
        asker: BrokerId,
        wants: bool,
        reply: oneshot::Sender<(VoterStanding, Option<Snapshot>)>,
    },
    /// A broker is to get the log, without a vote at first.
    AddLearner {
        learner: BrokerId,
        reply: oneshot::Sender<()>,
    },
    /// Somebody wishes for another voter, or for one less. The answer is REQUEST_TIMED_OUT as long as that is under way.
    ChangeVoters(VoterWish, oneshot::Sender<Result<(), ApiError>>),
    /// This broker stops: another voter should lead.
    HandOver,
    /// A connection of another broker to this one has ended.
    ConnectionLost {
        peer: BrokerId,
        incarnation: Incarnation,
    },
    /// What this broker met when it looked for a suspect.
    Looked(Suspect, Sighting),
    /// What the other voters met when they looked for it.
    Confirmed(Suspect, Vec<Sighting>),
    /// Whether the process that led in a term was found gone.
    LookedForLeader {
        leader: BrokerId,
        term: u64,
        gone: bool,
    },
}

/// What somebody wishes for a voter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VoterWish {
    pub(crate) key: VoterKey,
    pub(crate) wish: Wish,
}

/// That it comes, or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Add {
        /// Whether the answer waits until it votes, and not only until it is invited to.
        ack_when_committed: bool,
    },
    Remove,
}

/// Has the controller decide something. Dropped undone if this broker does not lead.
pub(super) type Decide = Box<dyn FnOnce(&mut Controller, Instant) -> Decided + Send>;

/// Lets a reply go, once its decision is committed. Dropped if that will never be.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// A decision whose reply is ready to go.
pub(super) struct Decided {
    pub(super) records: Vec<Record>,
    pub(super) release: Release,
}

/// How far the voters are, as their leader knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuorumProgress {
    pub(crate) term: u64,
    pub(crate) commit_index: u64,
    pub(crate) voters: Vec<VoterProgress>,
}

/// The way to the task. Closed for brokers that do not vote, and before the start.
#[derive(Default)]
pub(super) struct Quorum {
    events: OnceLock<mpsc::Sender<Event>>,
}

impl Quorum {
    /// Opens the way; gives both of its ends, or nothing if it is open already.
    pub(super) fn open(&self) -> Option<(mpsc::Sender<Event>, mpsc::Receiver<Event>)> {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        self.events
            .set(sender.clone())
            .ok()
            .map(|()| (sender, receiver))
    }

    /// Hands over an event without waiting; a full queue drops it.
    pub(super) fn tell(&self, event: Event) -> bool {
        self.events
            .get()
            .is_some_and(|events| events.try_send(event).is_ok())
    }

    /// The way to the task, for whoever tells it of something later; none while it is closed.
    pub(super) fn sender(&self) -> Option<mpsc::Sender<Event>> {
        self.events.get().cloned()
    }

    /// Hands over an event, waiting for room. Nobody is left to be told once the task has ended.
    pub(super) async fn report(&self, event: Event) {
        if let Some(events) = self.events.get() {
            let _ = events.send(event).await;
        }
    }

    /// Has the controller decide, and waits until the decision is committed.
    pub(super) async fn decide<R: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Controller, Instant) -> Decision<R> + Send + 'static,
    ) -> Result<R, NotController> {
        let (reply, answer) = oneshot::channel();
        let decide: Decide = Box::new(move |controller, now| {
            let decision = decide(controller, now);
            let release = Box::new(move || {
                // Whoever asked may have given up.
                let _ = reply.send(decision.reply);
            });
            Decided {
                records: decision.records,
                release,
            }
        });
        let events = self.events.get().ok_or(NotController)?;
        events
            .send(Event::Decide(decide))
            .await
            .map_err(|_| NotController)?;
        answer.await.map_err(|_| NotController)
    }

    /// The same for a client, whose request may be refused for its size.
    pub(super) async fn decide_for_client<R: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Controller, Instant) -> Decision<R> + Send + 'static,
    ) -> Result<R, Undecided> {
        self.decide(move |controller, now| bounded(decide(controller, now)))
            .await?
    }

    /// How this voter stands to `asker`; if it leads, with the snapshot on which that may start, if it `wants` one.
    pub(super) async fn voter_state(
        &self,
        asker: BrokerId,
        wants: bool,
    ) -> Result<(VoterStanding, Option<Snapshot>), NotController> {
        let (reply, answer) = oneshot::channel();
        let events = self.events.get().ok_or(NotController)?;
        events
            .send(Event::VoterState {
                asker,
                wants,
                reply,
            })
            .await
            .map_err(|_| NotController)?;
        answer.await.map_err(|_| NotController)
    }

    /// Takes a broker in as a learner, unless it is one, and waits until that is committed.
    pub(super) async fn add_learner(&self, learner: BrokerId) -> Result<(), NotController> {
        let (reply, answer) = oneshot::channel();
        let events = self.events.get().ok_or(NotController)?;
        events
            .send(Event::AddLearner { learner, reply })
            .await
            .map_err(|_| NotController)?;
        answer.await.map_err(|_| NotController)
    }

    /// Does the next step towards what somebody wishes for the voters, if this broker leads them.
    pub(super) async fn change_voters(
        &self,
        wish: VoterWish,
    ) -> Result<Result<(), ApiError>, NotController> {
        let (answer, answered) = oneshot::channel();
        let events = self.events.get().ok_or(NotController)?;
        events
            .send(Event::ChangeVoters(wish, answer))
            .await
            .map_err(|_| NotController)?;
        answered.await.map_err(|_| NotController)
    }

    /// How far the voters are, if this broker leads them.
    pub(super) async fn describe(&self) -> Result<QuorumProgress, NotController> {
        let (reply, answer) = oneshot::channel();
        let events = self.events.get().ok_or(NotController)?;
        events
            .send(Event::Describe(reply))
            .await
            .map_err(|_| NotController)?;
        answer.await.map_err(|_| NotController)
    }
}

/// A decision that is too large for one entry is none.
fn bounded<R>(decision: Decision<R>) -> Decision<Result<R, Undecided>> {
    // What cannot be encoded is refused where it is proposed.
    let bytes = records::encode(&decision.records).map_or(0, |entry| entry.len());
    if bytes > CLIENT_DECISION_BYTES_MAX {
        return Decision {
            records: Vec::new(),
            reply: Err(Undecided::TooLarge),
        };
    }
    Decision {
        records: decision.records,
        reply: Ok(decision.reply),
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::metadata::ConfigResource;

    use super::*;

    #[test]
    fn a_client_gets_no_entry_that_the_other_voters_could_not_be_sent() {
        let decided = |values: usize| {
            let value = "v".repeat(1 << 20);
            let record = |index: usize| Record::Config {
                resource: ConfigResource::Topic(format!("topic-{index}")),
                name: "follower.replication.throttled.replicas".to_owned(),
                value: Some(value.clone()),
            };
            bounded(Decision {
                records: (0..values).map(record).collect(),
                reply: (),
            })
        };
        let small = decided(7);
        assert_eq!((small.records.len(), small.reply), (7, Ok(())));
        let large = decided(8);
        assert_eq!(
            (large.records.len(), large.reply),
            (0, Err(Undecided::TooLarge))
        );
    }
}
