//! How a broker that does not vote follows the committed metadata: it asks a voter for the entries it does not have,
//! waits there for news, and takes a snapshot when it is too far behind. It also serves the other side of that.
//! What cannot be applied is never published: another voter is asked, unless the metadata that is there is contradicted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::{Contradiction, Image};
use taffrail_protocol::messages::fetch_metadata_response::{MetadataEntry, MetadataSnapshot};
use taffrail_protocol::messages::{FetchMetadataRequest, FetchMetadataResponse};
use taffrail_protocol::{ErrorCode, Request};
use thiserror::Error;

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
/// The pause after an answer that could not be taken.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of entries in one answer.
const BYTES_MAX: i32 = 4 << 20;

/// Why a voter is not followed any more.
#[derive(Debug, PartialEq, Eq, Error)]
enum Unfollowed {
    /// It is out of reach, or does not know who leads.
    #[error("{0}")]
    Useless(String),
    /// It answered what cannot be taken.
    #[error("{0}")]
    Refused(String),
    /// The log contradicts what this broker has of it already, and no voter can help.
    #[error(
        "metadata entry {index} contradicts the entries before it as this broker knows them: {contradiction}. Start this broker \
         again: it then takes all metadata anew. If it stops for this again, `taffrail-broker dump-log` prints the entry from the \
         folder __cluster_metadata of a voter"
    )]
    Contradicted {
        index: u64,
        contradiction: Contradiction,
    },
}

/// Follows the voters, until the metadata contradicts itself: the broker must stop for that.
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
            Err(error) => Unfollowed::Useless(error.to_string()),
        };
        broker.cluster.set_leader(None);
        let pause = match &reason {
            Unfollowed::Useless(reason) => {
                tracing::debug!(%voter, %reason, "metadata is followed from another voter");
                PAUSE
            }
            Unfollowed::Refused(reason) => {
                tracing::warn!(%voter, %reason, "refused the metadata of a voter, and asks another one");
                REFUSED_PAUSE
            }
            Unfollowed::Contradicted { .. } => return broker.fail(reason.to_string()),
        };
        broker.env.sleep_until(broker.env.now() + pause).await;
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
async fn follow<E: Env>(broker: &Arc<Broker<E>>, connection: &PeerConnection<E>) -> Unfollowed {
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
            Err(error) => return Unfollowed::Useless(error.to_string()),
        };
        if response.error_code != ErrorCode::None.code() {
            return Unfollowed::Useless(format!(
                "broker {} answered error {}",
                connection.broker(),
                response.error_code
            ));
        }
        let leader = (response.leader_id >= 0).then_some(BrokerId(response.leader_id));
        broker.cluster.set_leader(leader);
        let before = broker.cluster.published.visible_index();
        let index = match take(&mut image, before, response) {
            Ok(index) => index,
            Err(reason) => return reason,
        };
        if index > before {
            let now = broker.env.now();
            let published = &broker.cluster.published;
            published.publish(index, Arc::clone(&image), now);
        }
        if leader.is_none() {
            return Unfollowed::Useless(format!("broker {} knows no leader", connection.broker()));
        }
    }
}

/// Applies what a voter answered to the image, which is that at `index`; gives the index that it is at then. After an error the
/// image is of no use.
fn take(
    image: &mut Arc<Image>,
    mut index: u64,
    response: FetchMetadataResponse,
) -> Result<u64, Unfollowed> {
    if let Some(snapshot) = response.snapshot {
        let at = snapshot.index;
        let refused = |error: &dyn std::fmt::Display| {
            Unfollowed::Refused(format!("metadata snapshot {at} cannot be used: {error}"))
        };
        let given = records::replay(&snapshot.data).map_err(|error| refused(&error))?;
        let given_index = u64::try_from(at).map_err(|error| refused(&error))?;
        if given_index > index {
            *image = Arc::new(given);
            index = given_index;
        }
    }
    for entry in response.entries {
        if entry.index != as_i64(index + 1) {
            let reason = format!("metadata entry {} follows {index}", entry.index);
            return Err(Unfollowed::Refused(reason));
        }
        index += 1;
        let records = records::decode(&entry.records).map_err(|error| {
            Unfollowed::Refused(format!("metadata entry {index} cannot be read: {error}"))
        })?;
        let applied = Arc::make_mut(image).try_apply_all(&records);
        applied.map_err(|contradiction| Unfollowed::Contradicted {
            index,
            contradiction,
        })?;
    }
    Ok(index)
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

#[cfg(test)]
mod tests {
    use taffrail_core::ids::TopicId;
    use taffrail_core::metadata::Record;

    use super::*;

    fn topic(id: u8, name: &str) -> Vec<u8> {
        let record = Record::Topic {
            topic_id: TopicId([id; 16]),
            name: name.to_owned(),
        };
        records::encode(&[record]).unwrap()
    }

    #[test]
    fn what_cannot_be_applied_is_not_taken() {
        let known = Image::replay(&records::decode(&topic(1, "a")).unwrap()).unwrap();
        // How far the image is after the answer, with how many topics; or the start of what is said.
        let check = |snapshot: Option<(i64, Vec<u8>)>,
                     entries: &[(i64, Vec<u8>)],
                     expected: Result<(u64, usize), &str>| {
            let mut image = Arc::new(known.clone());
            let response = FetchMetadataResponse {
                snapshot: snapshot.map(|(index, data)| MetadataSnapshot { index, data }),
                entries: entries
                    .iter()
                    .map(|(index, records)| MetadataEntry {
                        index: *index,
                        records: records.clone(),
                    })
                    .collect(),
                ..Default::default()
            };
            let is_final = |reason: &Unfollowed| matches!(reason, Unfollowed::Contradicted { .. });
            match (take(&mut image, 4, response), expected) {
                (Ok(index), expected) => assert_eq!(Ok((index, image.topics().count())), expected),
                (Err(reason), Err(start)) => {
                    let said = reason.to_string();
                    assert!(said.starts_with(start), "{said}");
                    // Only what is at odds with what this broker has itself is beyond another voter's help.
                    assert_eq!(
                        is_final(&reason),
                        said.contains("contradicts the entries"),
                        "{said}"
                    );
                }
                (Err(reason), Ok(_)) => panic!("{reason}"),
            }
        };
        let b = || topic(2, "b");
        check(None, &[], Ok((4, 1)));
        check(None, &[(5, b()), (6, topic(3, "c"))], Ok((6, 3)));
        check(None, &[(6, b())], Err("metadata entry 6 follows 4"));
        check(
            None,
            &[(5, vec![0xff; 9])],
            Err("metadata entry 5 cannot be read: "),
        );
        check(
            None,
            &[(5, b()), (6, topic(3, "a"))],
            Err(
                "metadata entry 6 contradicts the entries before it as this broker knows them: topic ",
            ),
        );
        check(Some((9, b())), &[(10, topic(1, "a"))], Ok((10, 2)));
        check(Some((3, b())), &[], Ok((4, 1)));
        check(
            Some((9, [b(), topic(3, "b")].concat())),
            &[],
            Err("metadata snapshot 9 cannot be used: a record contradicts those before it: topic "),
        );
        check(
            Some((-1, b())),
            &[],
            Err("metadata snapshot -1 cannot be used: "),
        );
    }
}
