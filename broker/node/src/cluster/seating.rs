//! How a voter with an empty metadata log comes to vote: it asks all other voters how they stand, until the core says to
//! found the quorum, to restore the log from its leader, or to join it. And how a voter answers one that asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use taffrail_core::controller::Controller;
use taffrail_core::ids::{BrokerId, DirectoryId};
use taffrail_core::metadata::VoterIntent;
use taffrail_core::raft::{
    HardState, Persist, Persisted, Seating, Snapshot, VoterStanding, judge_seating,
};
use taffrail_core::time::Instant;
use taffrail_protocol::messages::voter_state_response::VoterSnapshot;
use taffrail_protocol::messages::{VoterStateRequest, VoterStateResponse};
use taffrail_protocol::{ErrorCode, Request};

use super::metadata_log::MetadataLog;
use super::quorum::NotController;
use super::seat::Vacancy;
use super::{observer, peer, records};
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// The pause before the others are asked again.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause before a leader is asked again whether it would take this broker in.
const INVITATION_PAUSE: Duration = Duration::from_millis(500);
/// How long ago a broker that waits to be taken in may have asked: three times the pause.
const ASKED_LATELY: Duration = Duration::from_millis(1500);
/// How long an answer may take; the snapshot of a large cluster has some MiB.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What this voter knows before it votes.
#[derive(Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `Empty` or `Lost` while it does not vote; none before its log was opened, and once it votes.
    own: Option<VoterStanding>,
    heard_empty: BTreeSet<BrokerId>,
    /// The brokers that asked this voter to be taken in, when they last did, and the log directory of their metadata log. As
    /// many as are configured as voters.
    asked: BTreeMap<BrokerId, (Instant, Option<DirectoryId>)>,
}

impl Waiting {
    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The log directory with which a broker waits to be taken in, if it does: it asks again and again.
    pub(super) fn asked_with(&self, broker: BrokerId, now: Instant) -> Option<Option<DirectoryId>> {
        let asked = self.with(|state| state.asked.get(&broker).copied());
        let (at, directory) = asked?;
        (now < at + ASKED_LATELY).then_some(directory)
    }

    /// This voter does not vote, and will not before it is started anew.
    pub(super) fn refuse(&self) {
        self.with(|state| state.own = Some(VoterStanding::Lost));
    }
}

/// Asks until this voter may vote; then votes. An error is one that the broker must stop for.
pub(super) async fn run<E: Env>(
    broker: Arc<Broker<E>>,
    mut log: MetadataLog<E::Disk>,
    has_served: bool,
) {
    let own = if has_served {
        VoterStanding::Lost
    } else {
        VoterStanding::Empty
    };
    let waiting = &broker.cluster.waiting;
    waiting.with(|state| state.own = Some(own));
    let mut told = None;
    let persisted = loop {
        let others = ask_all(&broker, has_served).await;
        let heard = waiting.with(|state| state.heard_empty.clone());
        let reason = match judge_seating(own, &others, &heard) {
            Seating::Found => {
                tracing::info!(broker = %broker.id, "founds the metadata quorum with the other voters");
                break Persisted::default();
            }
            Seating::Restore { leader, term } => {
                match restore(&broker, &mut log, leader, Some(term)).await {
                    Ok(Some(persisted)) => break persisted,
                    Ok(None) => "the leader gave no snapshot".to_owned(),
                    Err(reason) => return broker.fail(reason),
                }
            }
            Seating::Join { leader } => {
                if told.take().is_some() {
                    broker.cluster.seat.set_vacant(None);
                }
                // It knows of a cluster from now on, and does not found another.
                waiting.refuse();
                let leader = follow_until_invited(&broker, leader).await;
                match restore(&broker, &mut log, leader, None).await {
                    Ok(Some(persisted)) => break persisted,
                    Ok(None) => {
                        pause(&broker, PAUSE).await;
                        continue;
                    }
                    Err(reason) => return broker.fail(reason),
                }
            }
            Seating::Wait(reason) => reason,
            Seating::Refuse => {
                return broker.fail(format!(
                    "broker {} votes on the cluster's metadata and has data, but no voter has a metadata log: bring the \
                     folder {} of one of them back, or correct log.dirs and metadata.log.dir",
                    broker.id,
                    super::metadata_log::FOLDER
                ));
            }
        };
        if told.as_ref() != Some(&reason) {
            tracing::info!(broker = %broker.id, %reason, "has an empty metadata log and does not vote yet");
            broker.cluster.seat.set_vacant(Some(Vacancy {
                reason: format!(
                    "the metadata log is empty and this voter does not vote yet: {reason}"
                ),
                is_wanted: false,
            }));
            told = Some(reason);
        }
        pause(&broker, PAUSE).await;
    };
    waiting.with(|state| state.own = None);
    broker.cluster.seat.set_vacant(None);
    if let Err(error) = broker.cluster.seat(&broker, log, persisted).await {
        broker.fail(error.to_string());
    }
}

async fn pause<E: Env>(broker: &Arc<Broker<E>>, time: Duration) {
    broker.env.sleep_until(broker.env.now() + time).await;
}

/// Follows the metadata without a vote, whoever comes and goes, until a leader would take this broker in; gives that one. What
/// was followed until then is older than the snapshot that it gives.
async fn follow_until_invited<E: Env>(broker: &Arc<Broker<E>>, leader: BrokerId) -> BrokerId {
    tracing::info!(broker = %broker.id, %leader, "follows the metadata, and waits to be taken in as a voter");
    let invited = async {
        loop {
            tell_removal(broker);
            let leader = broker.cluster.controller_id().unwrap_or(leader);
            let answer = ask(broker, leader, true, false).await;
            match answer
                .as_ref()
                .map(|answer| (answer.invites, standing(answer)))
            {
                Ok((
                    invites,
                    Some(VoterStanding::Seated {
                        leader: Some(led_by),
                        counts_asker,
                        ..
                    }),
                )) if led_by == leader && (invites || counts_asker) => return leader,
                Ok(_) => {}
                Err(reason) => {
                    tracing::debug!(%leader, reason, "does not invite this broker to vote")
                }
            }
            pause(broker, INVITATION_PAUSE).await;
        }
    };
    broker.cluster.seat.set_joining(true);
    let leader = tokio::select! {
        biased;
        leader = invited => leader,
        () = observer::run(Arc::clone(broker)) => leader,
    };
    broker.cluster.seat.set_joining(false);
    leader
}

/// A broker that was taken out of the voters is told so, and is ready without.
fn tell_removal<E: Env>(broker: &Arc<Broker<E>>) {
    let cluster = &broker.cluster;
    let intent = cluster.image().voter_intent(broker.id);
    let removed = matches!(intent, Some(VoterIntent::Removed { .. }));
    cluster.seat.set_vacant(removed.then(|| Vacancy {
        reason: format!(
            "broker {} was taken out of the voters and follows the metadata. Add it as a voter to have it vote again",
            broker.id
        ),
        is_wanted: true,
    }));
}

/// How each of the other voters stands; none of those that do not answer or do not know it yet.
async fn ask_all<E: Env>(
    broker: &Arc<Broker<E>>,
    has_served: bool,
) -> Vec<(BrokerId, Option<VoterStanding>)> {
    let mut others = Vec::new();
    for voter in broker.cluster.configured_voters() {
        if *voter == broker.id {
            continue;
        }
        let answer = ask(broker, *voter, has_served, false).await;
        if let Err(reason) = &answer {
            tracing::debug!(%voter, reason, "a voter does not say how it stands");
        }
        others.push((*voter, answer.ok().and_then(|answer| standing(&answer))));
    }
    others
}

async fn ask<E: Env>(
    broker: &Arc<Broker<E>>,
    voter: BrokerId,
    has_served: bool,
    want_snapshot: bool,
) -> Result<VoterStateResponse, String> {
    let request = VoterStateRequest {
        from: broker.id.0,
        to: voter.0,
        has_served,
        want_snapshot,
        directory: records::directory_to_wire(broker.cluster.seat.directory()),
    };
    // A connection of its own opens with PeerHello, by which the other one knows of this process.
    let connection = peer::open(broker, voter).await.map_err(|e| e.to_string())?;
    let deadline = broker.env.now() + ANSWER_TIMEOUT;
    let response = connection
        .call(&request, VoterStateRequest::MAX_VERSION, deadline)
        .await
        .map_err(|error| error.to_string())?;
    match response.error_code {
        0 => Ok(response),
        code => Err(format!("broker {voter} answered error {code}")),
    }
}

/// Takes the leader's snapshot as this voter's log; nothing if the leader does not lead any more, in that term if one is given.
async fn restore<E: Env>(
    broker: &Arc<Broker<E>>,
    log: &mut MetadataLog<E::Disk>,
    leader: BrokerId,
    agreed: Option<u64>,
) -> Result<Option<Persisted>, String> {
    let Ok(response) = ask(broker, leader, true, true).await else {
        return Ok(None);
    };
    let term = match standing(&response) {
        Some(VoterStanding::Seated {
            term,
            leader: Some(led_by),
            ..
        }) if led_by == leader && agreed.is_none_or(|agreed| agreed == term) => term,
        Some(_) | None => return Ok(None),
    };
    let Some(snapshot) = response.snapshot.and_then(from_wire) else {
        return Ok(None);
    };
    // It has not voted for another in this term: the others are in it and follow this leader, or it is no voter yet.
    let hard_state = HardState {
        term,
        vote: Some(leader),
        commit: snapshot.index,
    };
    let persist = Persist {
        snapshot: Some(snapshot.clone()),
        entries: Vec::new(),
        hard_state: Some(hard_state),
        must_sync: true,
    };
    log.persist(&persist).map_err(|error| error.to_string())?;
    tracing::warn!(
        broker = %broker.id,
        from = %leader,
        term,
        index = snapshot.index,
        "the metadata log was empty, and is restored from the leader of the quorum"
    );
    Ok(Some(Persisted {
        hard_state,
        snapshot: Some(snapshot),
        entries: Vec::new(),
    }))
}

/// Tells another voter, whose metadata log is empty, how this one stands.
pub(crate) async fn handle_voter_state<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: VoterStateRequest,
) -> VoterStateResponse {
    let refused = |code: ErrorCode| VoterStateResponse {
        error_code: code.code(),
        ..Default::default()
    };
    let asker = BrokerId(request.from);
    if context.peer != Some(asker) || request.to != broker.id.0 {
        return refused(ErrorCode::ClusterAuthorizationFailed);
    }
    let cluster = &broker.cluster;
    let is_configured = cluster.configured_voters().contains(&asker);
    let own = cluster.waiting.with(|state| {
        if state.own == Some(VoterStanding::Empty) && !request.has_served && is_configured {
            state.heard_empty.insert(asker);
        }
        state.own
    });
    match own {
        Some(own) if is_configured => return to_wire(own, false, None),
        // Configured differently they would found two quorums.
        Some(_) => return refused(ErrorCode::ClusterAuthorizationFailed),
        None => {}
    }
    let is_voter = match cluster.quorum.voter_state(asker, false).await {
        Ok((VoterStanding::Seated { counts_asker, .. }, _)) => counts_asker,
        Ok(_) => true,
        // It has not opened its own log yet.
        Err(NotController) => return refused(ErrorCode::NotController),
    };
    let directory = records::directory_from_wire(request.directory);
    let invites = is_configured
        && match cluster.image().voter_intent(asker) {
            Some(VoterIntent::Removed { .. }) => false,
            Some(VoterIntent::Invited {
                directory: invited, ..
            }) => invited == directory,
            None => true,
        };
    if is_configured && !is_voter {
        let asked = (broker.env.now(), directory);
        cluster
            .waiting
            .with(|state| state.asked.insert(asker, asked));
    }
    let wants = request.want_snapshot && (is_voter || invites);
    if wants {
        let prepared = if is_voter {
            let replace =
                move |controller: &mut Controller, _| controller.replace_voter(asker, directory);
            cluster.decide(replace).await
        } else {
            cluster.quorum.add_learner(asker).await
        };
        // Only what a majority took makes the snapshot safe to start on, and the directory known to all.
        if prepared.is_err() {
            return refused(ErrorCode::NotController);
        }
        tracing::warn!(voter = %asker, ?directory, is_voter, "gives the metadata log to a broker that has none");
    }
    match cluster.quorum.voter_state(asker, wants).await {
        Ok((standing, snapshot)) => to_wire(standing, invites, snapshot),
        Err(NotController) => refused(ErrorCode::NotController),
    }
}

fn to_wire(
    standing: VoterStanding,
    invites: bool,
    snapshot: Option<Snapshot>,
) -> VoterStateResponse {
    let (code, term, leader, counts_asker) = match standing {
        VoterStanding::Empty => (0, 0, None, true),
        VoterStanding::Lost => (1, 0, None, true),
        VoterStanding::Seated {
            term,
            leader,
            counts_asker,
        } => (2, term, leader, counts_asker),
        VoterStanding::Fresh => (3, 0, None, true),
    };
    let ids = |ids: Vec<BrokerId>| ids.into_iter().map(|id| id.0).collect();
    VoterStateResponse {
        error_code: ErrorCode::None.code(),
        standing: code,
        term: i64::try_from(term).unwrap_or(i64::MAX),
        leader_id: leader.map_or(-1, |leader| leader.0),
        counts_asker,
        invites,
        snapshot: snapshot.map(|snapshot| VoterSnapshot {
            index: i64::try_from(snapshot.index).unwrap_or(i64::MAX),
            term: i64::try_from(snapshot.term).unwrap_or(i64::MAX),
            voters: ids(snapshot.voters),
            learners: ids(snapshot.learners),
            data: snapshot.data,
        }),
    }
}

fn standing(response: &VoterStateResponse) -> Option<VoterStanding> {
    match response.standing {
        0 => Some(VoterStanding::Empty),
        1 => Some(VoterStanding::Lost),
        2 => Some(VoterStanding::Seated {
            term: u64::try_from(response.term).ok()?,
            leader: (response.leader_id >= 0).then_some(BrokerId(response.leader_id)),
            counts_asker: response.counts_asker,
        }),
        3 => Some(VoterStanding::Fresh),
        _ => None,
    }
}

fn from_wire(snapshot: VoterSnapshot) -> Option<Snapshot> {
    let ids = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
    Some(Snapshot {
        index: u64::try_from(snapshot.index).ok()?,
        term: u64::try_from(snapshot.term).ok()?,
        voters: ids(snapshot.voters),
        learners: ids(snapshot.learners),
        data: snapshot.data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standings_and_snapshots_survive_the_wire() {
        let seated = VoterStanding::Seated {
            term: 7,
            leader: Some(BrokerId(2)),
            counts_asker: true,
        };
        for own in [
            VoterStanding::Empty,
            VoterStanding::Lost,
            VoterStanding::Fresh,
            seated,
        ] {
            assert_eq!(standing(&to_wire(own, false, None)), Some(own));
        }
        let snapshot = Snapshot {
            index: 9,
            term: 7,
            voters: vec![BrokerId(0), BrokerId(1)],
            learners: vec![BrokerId(4)],
            data: vec![1, 2, 3],
        };
        let told = to_wire(seated, false, Some(snapshot.clone())).snapshot;
        assert_eq!(told.and_then(from_wire), Some(snapshot));
    }
}
