//! How a broker that does not vote follows the committed metadata: it asks a voter for the entries it does not have,
//! waits there for news, and takes a snapshot when it is too far behind. It also serves the other side of that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::Image;
use taffrail_protocol::messages::fetch_metadata_response::{MetadataEntry, MetadataSnapshot};
use taffrail_protocol::messages::{FetchMetadataRequest, FetchMetadataResponse};
use taffrail_protocol::{ErrorCode, Request};

use super::history::Slice;
use super::peer::{self, PeerConnection};
use super::records;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// How long a voter keeps the request waiting for news. Also how late a change of controller may be noticed.
const WAIT: Duration = Duration::from_millis(1000);
/// How long past that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the next voter is tried.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of entries in one answer.
const BYTES_MAX: i32 = 4 << 20;

/// Follows the voters for ever.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let mut next = usize::try_from(broker.env.random() >> 32).unwrap_or(0);
    loop {
        let voters = voters(&broker);
        let voter = broker
            .cluster
            .controller_id()
            .unwrap_or(voters[next % voters.len()]);
        next = next.wrapping_add(1);
        let reason = match peer::open(&broker, voter).await {
            Ok(connection) => follow(&broker, &connection).await,
            Err(error) => error.to_string(),
        };
        tracing::debug!(%voter, %reason, "metadata is followed from another voter");
        broker.cluster.set_leader(None);
        broker.env.sleep_until(broker.env.now() + PAUSE).await;
    }
}

/// Whom to ask: who votes as far as this broker knows, and who should. At least one, since this broker is not configured as the
/// only voter.
fn voters<E: Env>(broker: &Arc<Broker<E>>) -> Vec<BrokerId> {
    let recorded = broker.cluster.voters().into_iter();
    let configured = broker.cluster.configured_voters().iter().copied();
    let all: BTreeSet<BrokerId> = recorded.chain(configured).collect();
    all.into_iter()
        .filter(|voter| *voter != broker.id)
        .collect()
}

/// Follows one voter until that does not work any more; gives the reason.
async fn follow<E: Env>(broker: &Arc<Broker<E>>, connection: &PeerConnection<E>) -> String {
    let mut image = broker.cluster.image();
    loop {
        let request = FetchMetadataRequest {
            broker_id: broker.id.0,
            broker_epoch: broker.cluster.broker_epoch().map_or(-1, |epoch| epoch.0),
            from_index: as_i64(broker.cluster.published.visible_index() + 1),
            wait_ms: i32::try_from(WAIT.as_millis()).unwrap_or(i32::MAX),
            max_bytes: BYTES_MAX,
        };
        let deadline = broker.env.now() + WAIT + ANSWER_TIMEOUT;
        let response = match connection
            .call(&request, FetchMetadataRequest::MAX_VERSION, deadline)
            .await
        {
            Ok(response) => response,
            Err(error) => return error.to_string(),
        };
        if response.error_code != ErrorCode::None.code() {
            return format!(
                "broker {} answered error {}",
                connection.broker(),
                response.error_code
            );
        }
        let leader = (response.leader_id >= 0).then_some(BrokerId(response.leader_id));
        broker.cluster.set_leader(leader);
        if let Err(reason) = take(broker, &mut image, response) {
            return reason;
        }
        if leader.is_none() {
            return format!("broker {} knows no leader", connection.broker());
        }
    }
}

/// Applies what a voter answered and publishes the result.
fn take<E: Env>(
    broker: &Arc<Broker<E>>,
    image: &mut Arc<Image>,
    response: FetchMetadataResponse,
) -> Result<(), String> {
    let mut index = broker.cluster.published.visible_index();
    let before = index;
    if let Some(snapshot) = response.snapshot {
        let records = records::decode(&snapshot.data)
            .map_err(|error| format!("metadata snapshot: {error}"))?;
        let snapshot_index =
            u64::try_from(snapshot.index).map_err(|_| "metadata snapshot: negative index")?;
        if snapshot_index > index {
            *image = Arc::new(Image::replay(&records));
            index = snapshot_index;
        }
    }
    for entry in response.entries {
        if entry.index != as_i64(index + 1) {
            return Err(format!("metadata entry {} follows {index}", entry.index));
        }
        let records = records::decode(&entry.records)
            .map_err(|error| format!("metadata entry {index}: {error}"))?;
        Arc::make_mut(image).apply_all(&records);
        index += 1;
    }
    if index > before {
        broker
            .cluster
            .published
            .publish(index, Arc::clone(image), broker.env.now());
    }
    Ok(())
}

/// Gives a broker the entries from an index on, waiting for the first.
pub(crate) async fn handle_fetch_metadata<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: FetchMetadataRequest,
) -> FetchMetadataResponse {
    let cluster = &broker.cluster;
    let Ok(from) = u64::try_from(request.from_index) else {
        return FetchMetadataResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..Default::default()
        };
    };
    if cluster.is_observer() {
        return FetchMetadataResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..Default::default()
        };
    }
    let wait = Duration::from_millis(u64::try_from(request.wait_ms).unwrap_or(0)).min(WAIT);
    let mut leader = cluster.leader.subscribe();
    let known = *leader.borrow_and_update();
    if from > cluster.published.visible_index() {
        tokio::select! {
            biased;
            _ = cluster.published.changed(from.saturating_sub(1)) => {}
            _ = leader.wait_for(|leader| *leader != known) => {}
            () = broker.env.sleep_until(broker.env.now() + wait) => {}
        }
    }
    let (committed, image) = cluster.published.indexed_image();
    let mut response = FetchMetadataResponse {
        leader_id: cluster.controller_id().map_or(-1, |id| id.0),
        commit_index: as_i64(committed),
        ..Default::default()
    };
    let bytes_max = usize::try_from(request.max_bytes.clamp(1, BYTES_MAX)).unwrap_or(1);
    match cluster.history.from(from, committed, bytes_max) {
        Slice::Entries(entries) => {
            let entry = |(index, records)| MetadataEntry {
                index: as_i64(index),
                records,
            };
            response.entries = entries.into_iter().map(entry).collect();
        }
        Slice::TooOld => match records::encode(&image.snapshot()) {
            Ok(data) => {
                response.snapshot = Some(MetadataSnapshot {
                    index: as_i64(committed),
                    data,
                })
            }
            Err(error) => {
                tracing::error!(%error, "the metadata image cannot be encoded");
                response.error_code = ErrorCode::UnknownServerError.code();
            }
        },
    }
    response
}

fn as_i64(index: u64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}
