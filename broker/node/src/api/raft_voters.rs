//! AddRaftVoter and RemoveRaftVoter: who votes on the metadata (KIP-853). Only the leader of the quorum changes that.
//!
//! The leader answers at once, with REQUEST_TIMED_OUT while a change is under way, so that nobody waits behind it on the way to
//! the controller. The broker that was asked asks it again until there is something else to say, or the time is over.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::VoterKey;
use taffrail_core::ids::{BrokerId, DirectoryId};
use taffrail_core::time::Instant;
use taffrail_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
};
use taffrail_protocol::{ErrorCode, Request, Uuid};

use super::topics;
use crate::broker::Broker;
use crate::cluster::{Undecided, VoterWish, Wish};
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// The pause before the leader is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// A broker that was started with another disk a moment ago may not have told of it yet.
const OTHER_DIRECTORY_PATIENCE: Duration = Duration::from_secs(2);
/// RemoveRaftVoter names no timeout. A commit takes milliseconds, an election about a second.
const REMOVE_TIMEOUT_MS: i32 = 8_000;

/// What was answered last: an error code, and a text for people.
type Outcome = (i16, Option<String>);

/// Has the active controller take a voter in, and waits until it votes.
pub(crate) async fn handle_add<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: AddRaftVoterRequest,
) -> AddRaftVoterResponse {
    let began = broker.env.now();
    let deadline = topics::deadline(&broker, request.timeout_ms);
    let mut waited = false;
    let (error_code, error_message) = loop {
        let outcome = ask(&broker, &context, &request, deadline, |response| {
            (response.error_code, response.error_message)
        })
        .await;
        match ErrorCode::try_from(outcome.0) {
            Ok(ErrorCode::RequestTimedOut) => {}
            Ok(ErrorCode::DuplicateVoter) if waited => match votes_with(&broker, &request) {
                Some(true) => break (ErrorCode::None.code(), None),
                Some(false) => break outcome,
                // The leader knows it before this broker does.
                None => {}
            },
            Ok(ErrorCode::InvalidVoterKey)
                if broker.env.now() < began + OTHER_DIRECTORY_PATIENCE => {}
            _ => break outcome,
        }
        waited = true;
        if !pause(&broker, deadline).await {
            break outcome;
        }
    };
    AddRaftVoterResponse {
        error_code,
        error_message,
        ..AddRaftVoterResponse::default()
    }
}

/// Has the active controller take a voter out.
pub(crate) async fn handle_remove<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse {
    let deadline = topics::deadline(&broker, REMOVE_TIMEOUT_MS);
    let (error_code, error_message) = loop {
        let outcome = ask(&broker, &context, &request, deadline, |response| {
            (response.error_code, response.error_message)
        })
        .await;
        let is_under_way = outcome.0 == ErrorCode::RequestTimedOut.code();
        if !is_under_way || !pause(&broker, deadline).await {
            break outcome;
        }
    };
    RemoveRaftVoterResponse {
        error_code,
        error_message,
        ..RemoveRaftVoterResponse::default()
    }
}

async fn ask<E: Env, R: Request>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: &R,
    deadline: Instant,
    outcome: impl FnOnce(R::Response) -> Outcome,
) -> Outcome {
    match broker
        .cluster
        .call_controller(context, request, deadline)
        .await
    {
        Ok(response) => outcome(response),
        Err(error) => (error.code().code(), Some(error.to_string())),
    }
}

/// Waits a little; false if there is no time left for another attempt.
async fn pause<E: Env>(broker: &Arc<Broker<E>>, deadline: Instant) -> bool {
    let again = broker.env.now() + PAUSE;
    if again >= deadline {
        return false;
    }
    broker.env.sleep_until(again).await;
    true
}

/// Whether a voter has the directory that was asked for, as far as this broker knows; none if it does not know of the voter.
fn votes_with<E: Env>(broker: &Broker<E>, request: &AddRaftVoterRequest) -> Option<bool> {
    let voter = broker.cluster.image().voter(BrokerId(request.voter_id))?;
    let wanted = directory(request.voter_directory_id);
    Some(wanted.is_none() || voter.directory == wanted)
}

/// What the leader of the quorum does for a new voter: the next step.
pub(crate) async fn decide_add<E: Env>(
    broker: Arc<Broker<E>>,
    request: AddRaftVoterRequest,
) -> Result<AddRaftVoterResponse, Undecided> {
    let wish = Wish::Add {
        ack_when_committed: request.ack_when_committed,
    };
    let key = (
        request.cluster_id,
        request.voter_id,
        request.voter_directory_id,
    );
    let (error_code, error_message) = decide(&broker, key, wish).await?;
    Ok(AddRaftVoterResponse {
        error_code,
        error_message,
        ..AddRaftVoterResponse::default()
    })
}

/// What it does for one that goes.
pub(crate) async fn decide_remove<E: Env>(
    broker: Arc<Broker<E>>,
    request: RemoveRaftVoterRequest,
) -> Result<RemoveRaftVoterResponse, Undecided> {
    let key = (
        request.cluster_id,
        request.voter_id,
        request.voter_directory_id,
    );
    let (error_code, error_message) = decide(&broker, key, Wish::Remove).await?;
    Ok(RemoveRaftVoterResponse {
        error_code,
        error_message,
        ..RemoveRaftVoterResponse::default()
    })
}

async fn decide<E: Env>(
    broker: &Arc<Broker<E>>,
    (cluster_id, voter_id, voter_directory_id): (Option<String>, i32, Uuid),
    wish: Wish,
) -> Result<Outcome, Undecided> {
    let key = VoterKey {
        cluster_id,
        broker: BrokerId(voter_id),
        directory: directory(voter_directory_id),
    };
    let decided = broker
        .cluster
        .change_voters(VoterWish { key, wish })
        .await?;
    Ok(decided.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None)))
}

/// A zero id stands for none.
fn directory(id: Uuid) -> Option<DirectoryId> {
    (!id.is_zero()).then_some(DirectoryId(id.0))
}
