//! How this broker asks the active controller: in its own process if that leads the quorum, else over a connection
//! that is kept, again and again until somebody who leads has answered or the deadline has passed.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::ids::BrokerId;
use taffrail_core::time::Instant;
use taffrail_protocol::{ErrorCode, Request};
use thiserror::Error;
use tokio::sync::Mutex;

use super::peer::{self, PeerConnection, PeerError};
use super::quorum::Undecided;
use crate::broker::Broker;
use crate::env::Env;

/// The pauses between attempts: the first, doubled each time, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Why the controller did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ClusterError {
    /// Nobody who leads the quorum answered before the deadline.
    #[error("no active controller answered in time: {0}")]
    NoController(String),
    /// It answered with an error for the whole request.
    #[error("the controller answered {0:?}")]
    Refused(ErrorCode),
    /// It decided nothing.
    #[error("{0}")]
    Undecided(Undecided),
    /// Its answer cannot be read, or the request not be written.
    #[error("{0}")]
    Malformed(String),
    /// The cluster was not started, or is stopping.
    #[error("this broker is not part of the cluster at the moment")]
    NotRunning,
}

impl ClusterError {
    /// What a client is told.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::NoController(_) => ErrorCode::RequestTimedOut,
            Self::Refused(code) => *code,
            Self::Undecided(why) => why.code(),
            Self::Malformed(_) => ErrorCode::UnknownServerError,
            Self::NotRunning => ErrorCode::NotController,
        }
    }
}

/// A request that only the active controller answers.
pub(super) trait ControllerRequest: Request + Send + Sync + 'static
where
    Self::Response: Send,
{
    /// The error for the whole request in a response.
    fn error_code(response: &Self::Response) -> i16;

    /// Who leads, as far as the one who answered knows.
    fn leader_id(response: &Self::Response) -> i32;

    /// Answers as the controller, with NOT_CONTROLLER if this broker is not.
    fn decide<E: Env>(
        broker: &Arc<Broker<E>>,
        request: &Self,
    ) -> impl Future<Output = Self::Response> + Send;
}

/// A kept connection to the active controller, for requests of one kind, which are answered in order.
pub(super) struct ControllerChannel<E: Env> {
    open: Mutex<Option<Arc<PeerConnection<E>>>>,
}

impl<E: Env> Default for ControllerChannel<E> {
    fn default() -> Self {
        Self {
            open: Mutex::new(None),
        }
    }
}

impl<E: Env> ControllerChannel<E> {
    /// Asks until there is an answer of the active controller, or `deadline` has passed.
    pub(super) async fn ask<R>(
        &self,
        broker: &Arc<Broker<E>>,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, ClusterError>
    where
        R: ControllerRequest,
        R::Response: Send,
    {
        let mut pause = PAUSE_FIRST;
        loop {
            let mut leader = broker.cluster.leader.subscribe();
            let known = *leader.borrow_and_update();
            let attempted = tokio::select! {
                biased;
                done = self.attempt(broker, known, request, deadline) => done,
                // A controller that died silently is not waited for once another one is known. Asking this very
                // broker ends by itself when it loses the lead.
                _ = leader.changed(), if known != Some(broker.id) => Err("the lead moved".to_owned()),
            };
            let failure = match attempted {
                Ok(response) if R::error_code(&response) != ErrorCode::NotController.code() => {
                    return Ok(response);
                }
                Ok(response) => {
                    let hint = BrokerId(R::leader_id(&response));
                    if broker.cluster.is_observer() && hint.0 >= 0 && Some(hint) != known {
                        // Ends the pause below at once.
                        broker.cluster.set_leader(Some(hint));
                    }
                    known.map_or_else(
                        || "none is known".to_string(),
                        |id| format!("broker {id} does not lead"),
                    )
                }
                Err(failure) => failure,
            };
            if broker.env.now() >= deadline {
                return Err(ClusterError::NoController(failure));
            }
            let until = (broker.env.now() + pause).min(deadline);
            pause = (pause * 2).min(PAUSE_MAX);
            tokio::select! {
                biased;
                _ = leader.changed() => {}
                () = broker.env.sleep_until(until) => {}
            }
        }
    }

    async fn attempt<R>(
        &self,
        broker: &Arc<Broker<E>>,
        leader: Option<BrokerId>,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, String>
    where
        R: ControllerRequest,
        R::Response: Send,
    {
        let Some(leader) = leader else {
            return Err("none is known".to_string());
        };
        if leader == broker.id {
            return tokio::select! {
                biased;
                response = R::decide(broker, request) => Ok(response),
                () = broker.env.sleep_until(deadline) => Err("the quorum did not commit it".to_string()),
            };
        }
        self.call(broker, leader, request, deadline)
            .await
            .map_err(|error| error.to_string())
    }

    async fn call<R: Request>(
        &self,
        broker: &Arc<Broker<E>>,
        leader: BrokerId,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, PeerError> {
        let connection = self.connection(broker, leader).await?;
        let answer = connection.call(request, R::MAX_VERSION, deadline).await;
        if answer.is_err() {
            let mut open = self.open.lock().await;
            if open
                .as_ref()
                .is_some_and(|kept| Arc::ptr_eq(kept, &connection))
            {
                *open = None;
            }
        }
        answer
    }

    async fn connection(
        &self,
        broker: &Arc<Broker<E>>,
        leader: BrokerId,
    ) -> Result<Arc<PeerConnection<E>>, PeerError> {
        let mut open = self.open.lock().await;
        match open.as_ref() {
            Some(connection) if connection.broker() == leader => Ok(Arc::clone(connection)),
            Some(_) | None => {
                *open = None;
                let connection = Arc::new(peer::open(broker, leader).await?);
                *open = Some(Arc::clone(&connection));
                Ok(connection)
            }
        }
    }
}
