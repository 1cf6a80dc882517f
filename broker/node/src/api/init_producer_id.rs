//! InitProducerId for idempotent producers: an id that nobody had before, epoch 0. Transactions are not there yet.

use std::sync::Arc;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// Gives out an id from this broker's block.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |code: ErrorCode| InitProducerIdResponse {
        error_code: code.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    let access = access_of(context.api);
    if !broker.authorizer.allows(&context.principal, access, "") {
        return refused(ErrorCode::ClusterAuthorizationFailed);
    }
    if let Err(code) = check(&request) {
        return refused(code);
    }
    match broker.cluster.next_producer_id().await {
        Ok(producer_id) => InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..Default::default()
        },
        Err(error) => {
            tracing::debug!(%error, "no producer id");
            // Clients take it for a coordinator that is not ready, and ask again.
            refused(ErrorCode::CoordinatorLoadInProgress)
        }
    }
}

/// The rules of the request's own fields (`TransactionCoordinator.handleInitProducerId`).
fn check(request: &InitProducerIdRequest) -> Result<(), ErrorCode> {
    match request.transactional_id.as_deref() {
        Some("") => Err(ErrorCode::InvalidRequest),
        Some(_) => Err(ErrorCode::UnsupportedVersion),
        None if (request.producer_id < 0) != (request.producer_epoch < 0) => {
            Err(ErrorCode::InvalidRequest)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idempotent_producers_are_served() {
        let case =
            |transactional_id: Option<&str>, producer_id: i64, producer_epoch: i16, expected| {
                let request = InitProducerIdRequest {
                    transactional_id: transactional_id.map(str::to_owned),
                    producer_id,
                    producer_epoch,
                    ..InitProducerIdRequest::default()
                };
                assert_eq!(check(&request), expected);
            };
        case(None, -1, -1, Ok(()));
        case(None, 7, 3, Ok(()));
        case(None, 7, -1, Err(ErrorCode::InvalidRequest));
        case(Some(""), -1, -1, Err(ErrorCode::InvalidRequest));
        case(Some("orders"), -1, -1, Err(ErrorCode::UnsupportedVersion));
    }
}
