//! Producer ids: unique in the cluster, given out from blocks that the controller commits.

use std::sync::Arc;
use std::time::Duration;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::AllocateProducerIdsRequest;
use tokio::sync::Mutex;

use super::controller_channel::ClusterError;
use crate::broker::Broker;
use crate::env::Env;

/// How long a new block may take; producers ask again after a timeout.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is left of the block in use: the next id, and where the block ends (exclusive).
#[derive(Default)]
pub(super) struct ProducerIds {
    block: Mutex<(i64, i64)>,
}

impl ProducerIds {
    /// The next id, from a new block if the old one is used up.
    pub(super) async fn next<E: Env>(&self, broker: &Arc<Broker<E>>) -> Result<i64, ClusterError> {
        let mut block = self.block.lock().await;
        if block.0 >= block.1 {
            let request = AllocateProducerIdsRequest {
                broker_id: broker.id.0,
                broker_epoch: broker.cluster.broker_epoch().map_or(-1, |epoch| epoch.0),
            };
            let deadline = broker.env.now() + ALLOCATE_TIMEOUT;
            let response = broker
                .cluster
                .forward_channel
                .ask(broker, &request, deadline)
                .await?;
            if response.error_code != ErrorCode::None.code() {
                let code = ErrorCode::try_from(response.error_code)
                    .unwrap_or(ErrorCode::UnknownServerError);
                return Err(ClusterError::Refused(code));
            }
            if response.first < 0 || response.count <= 0 {
                return Err(ClusterError::Malformed(format!(
                    "an empty block of producer ids at {}",
                    response.first
                )));
            }
            *block = (
                response.first,
                response.first.saturating_add(response.count.into()),
            );
        }
        let id = block.0;
        block.0 += 1;
        Ok(id)
    }
}
