//! Brokers whose connections have closed: they are looked for at once, instead of waiting for their sessions to expire.
//!
//! A process that dies closes its connections, but a connection may also close while both its ends live. So a closed one
//! proves nothing: it makes the controller open a new connection, and only what that meets counts.
//!
//! | state | connection lost | look: this incarnation answers, or unclear | look: refused, or another answers | look: silent | other voters: one is refused too, sees silence or another, and none sees this incarnation | other voters: anything else |
//! |---|---|---|---|---|---|---|
//! | not suspected | *due*, not sooner than a pause after the last look | | | | | |
//! | due: a look is owed | stays | | | | | |
//! | looking | looks again afterwards | not suspected | gone | confirming | | |
//! | confirming: other voters look | looks again afterwards | | | | gone | not suspected |
//! | gone | stays; the next decision fences it | | | | | |
//!
//! Whoever is fenced or registers anew is not suspected any more; results of looks for an earlier registration are
//! passed over. A new controller owes every active broker a look: its connections are none, whoever died before.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Controller;
use crate::ids::{BrokerEpoch, BrokerId, Incarnation};
use crate::metadata::Image;
use crate::time::Instant;

/// The shortest time between two looks for one broker: connections that are reset all the time cost ten looks a second.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A broker that may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its id.
    pub broker: BrokerId,
    /// The registration that is in doubt.
    pub epoch: BrokerEpoch,
    /// The process that registered.
    pub incarnation: Incarnation,
}

/// What a new connection to a broker's internal listener met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A process of that broker, with its incarnation.
    Answered(Incarnation),
    /// Nobody listens there.
    Refused,
    /// No answer in time.
    Silent,
    /// Neither: its name cannot be resolved, say, or somebody else answers.
    Unclear,
}

/// What is to be done about a suspect; the result goes to the handler of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Connect to it, and give what was met to [`Controller::handle_look`].
    Look(Suspect),
    /// Have all other voters connect to it, and give what they met to [`Controller::handle_confirmation`].
    Confirm(Suspect),
}

#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Of registered brokers only.
    by_broker: BTreeMap<BrokerId, Suspicion>,
}

#[derive(Clone, Copy, Debug)]
struct Suspicion {
    state: State,
    /// When the last look began.
    looked_at: Option<Instant>,
    /// A connection was lost after the last look began.
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unsuspected,
    Due(Instant),
    Looking,
    ConfirmDue(Instant),
    Confirming,
    Gone(Instant),
}

impl Suspicion {
    fn owe_look(&mut self, now: Instant) {
        let earliest = self.looked_at.map_or(now, |at| at + LOOK_PAUSE);
        self.state = State::Due(now.max(earliest));
        self.again = false;
    }

    fn acquit(&mut self, now: Instant) {
        self.state = State::Unsuspected;
        if self.again {
            self.owe_look(now);
        }
    }
}

impl Suspects {
    pub(super) fn suspect(&mut self, now: Instant, broker: BrokerId) {
        let suspicion = self.by_broker.entry(broker).or_insert(Suspicion {
            state: State::Unsuspected,
            looked_at: None,
            again: false,
        });
        match suspicion.state {
            State::Unsuspected => suspicion.owe_look(now),
            State::Looking | State::ConfirmDue(_) | State::Confirming => suspicion.again = true,
            State::Due(_) | State::Gone(_) => {}
        }
    }

    pub(super) fn forget(&mut self, broker: BrokerId) {
        self.by_broker.remove(&broker);
    }

    pub(super) fn is_gone(&self, broker: BrokerId) -> bool {
        let suspicion = self.by_broker.get(&broker);
        suspicion.is_some_and(|suspicion| matches!(suspicion.state, State::Gone(_)))
    }

    /// When there is something to look for, or somebody to fence.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.by_broker.values();
        let due = |suspicion: &Suspicion| match suspicion.state {
            State::Due(at) | State::ConfirmDue(at) | State::Gone(at) => Some(at),
            State::Unsuspected | State::Looking | State::Confirming => None,
        };
        deadlines.filter_map(due).min()
    }

    fn take(&mut self, now: Instant, image: &Image) -> Vec<Search> {
        let mut searches = Vec::new();
        for (broker, suspicion) in &mut self.by_broker {
            let Some(registered) = image.broker(*broker) else {
                continue;
            };
            let suspect = Suspect {
                broker: *broker,
                epoch: registered.epoch,
                incarnation: registered.incarnation,
            };
            match suspicion.state {
                State::Due(at) if at <= now => {
                    suspicion.state = State::Looking;
                    suspicion.looked_at = Some(now);
                    searches.push(Search::Look(suspect));
                }
                State::ConfirmDue(_) => {
                    suspicion.state = State::Confirming;
                    searches.push(Search::Confirm(suspect));
                }
                State::Due(_)
                | State::Unsuspected
                | State::Looking
                | State::Confirming
                | State::Gone(_) => {}
            }
        }
        searches
    }
}

impl Controller {
    /// A connection of a broker's process to this one closed.
    pub fn handle_connection_lost(
        &mut self,
        now: Instant,
        broker: BrokerId,
        incarnation: Incarnation,
    ) {
        let registered = self.image.broker(broker);
        // Of an earlier process nothing needs to be known, and who is fenced leads nothing.
        if registered.is_some_and(|known| !known.fenced && known.incarnation == incarnation) {
            self.suspects.suspect(now, broker);
        }
    }

    /// What is to be done about suspects by now, each once. Called at `next_deadline`.
    pub fn take_searches(&mut self, now: Instant) -> Vec<Search> {
        self.suspects.take(now, &self.image)
    }

    /// What this broker met when it looked for a suspect.
    pub fn handle_look(&mut self, now: Instant, suspect: &Suspect, sighting: Sighting) {
        let Some(suspicion) = self.suspicion_in(suspect, State::Looking) else {
            return;
        };
        match sighting {
            Sighting::Answered(incarnation) if incarnation == suspect.incarnation => {
                suspicion.acquit(now);
            }
            Sighting::Answered(_) | Sighting::Refused => suspicion.state = State::Gone(now),
            Sighting::Silent => suspicion.state = State::ConfirmDue(now),
            Sighting::Unclear => suspicion.acquit(now),
        }
    }

    /// What the other voters met when they looked for a suspect that is silent to this one; without those that did not say.
    pub fn handle_confirmation(&mut self, now: Instant, suspect: &Suspect, sightings: &[Sighting]) {
        let Some(suspicion) = self.suspicion_in(suspect, State::Confirming) else {
            return;
        };
        let alive = Sighting::Answered(suspect.incarnation);
        let confirms = |sighting: &Sighting| match sighting {
            Sighting::Answered(_) | Sighting::Refused | Sighting::Silent => *sighting != alive,
            Sighting::Unclear => false,
        };
        if !sightings.contains(&alive) && sightings.iter().any(confirms) {
            suspicion.state = State::Gone(now);
        } else {
            suspicion.acquit(now);
        }
    }

    fn suspicion_in(&mut self, suspect: &Suspect, state: State) -> Option<&mut Suspicion> {
        let registered = self.image.broker(suspect.broker)?;
        if registered.epoch != suspect.epoch {
            return None;
        }
        let suspicion = self.suspects.by_broker.get_mut(&suspect.broker)?;
        (suspicion.state == state).then_some(suspicion)
    }
}
