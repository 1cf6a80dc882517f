//! What has to be certain before committed offsets are told, and the wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::FetchedTopic;
use taffrail_core::ids::LeaderEpoch;
use taffrail_core::time::Instant;

use crate::broker::Broker;
use crate::env::Env;
use crate::groups::shard::{Reply, Shard};
use crate::groups::soon::begins_by;
use crate::replication::Waiter;

/// When a request came, and when it is answered at the latest: the same for all of its groups, so that what proves something for
/// one group proves it for the next, and a broker that is silent holds them up once.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub(super) at: Instant,
    pub(super) deadline: Instant,
    /// Until when it waits for coordinators that begin.
    pub(super) begins_by: Instant,
}

impl Question {
    pub(super) fn now<E: Env>(broker: &Broker<E>) -> Self {
        let at = broker.env.now();
        let deadline = at + broker.groups.commit_timeout;
        Self {
            at,
            deadline,
            begins_by: begins_by(broker).min(deadline),
        }
    }
}

/// What a coordinator has, which may be told once it is certain.
pub(super) struct Looked<E: Env> {
    pub(super) shard: Arc<Shard<E>>,
    pub(super) found: Reply<Vec<FetchedTopic>>,
}

/// A coordinator by its partition and epoch.
type Place = (i32, LeaderEpoch);

/// What has to be certain before a request is answered, of each coordinator once: up to where its decisions have to be committed,
/// for a reply may speak of a commit that is not replicated yet, and that nobody else coordinated before the question.
pub(super) struct Needed<E: Env>(BTreeMap<Place, (Arc<Shard<E>>, i64)>);

/// Whether it has become certain.
pub(super) struct Certain(BTreeMap<Place, Result<(), ErrorKind>>);

impl<E: Env> Looked<E> {
    fn place(&self) -> Place {
        (self.shard.partition().id.partition, self.shard.epoch())
    }
}

impl<E: Env> Needed<E> {
    pub(super) fn of<'a>(looked: impl Iterator<Item = &'a Looked<E>>) -> Self {
        let mut needed = BTreeMap::new();
        for looked in looked {
            let end_offset = looked.found.end_offset;
            let (_, until) = needed
                .entry(looked.place())
                .or_insert_with(|| (Arc::clone(&looked.shard), end_offset));
            *until = end_offset.max(*until);
        }
        Self(needed)
    }

    /// Has all proofs begin, which go on as long as what is returned is held.
    pub(super) fn begin(&self, asked: Question) -> Vec<Arc<Waiter>> {
        let shards = self.0.values();
        shards
            .map(|(shard, _)| shard.begin_proof(asked.at))
            .collect()
    }

    /// All proofs begin before the first one is waited for: if that one never comes, the others have come meanwhile.
    pub(super) async fn wait(self, broker: &Broker<E>, asked: Question) -> Certain {
        let begun = self.begin(asked);
        let mut certain = BTreeMap::new();
        for (place, (shard, end_offset)) in self.0 {
            let wait = async {
                shard
                    .committed_by(broker, end_offset, asked.deadline)
                    .await?;
                shard
                    .coordinated_until(broker, asked.at, asked.deadline)
                    .await
            };
            certain.insert(place, wait.await.map_err(as_retriable));
        }
        drop(begun);
        Certain(certain)
    }
}

impl Certain {
    pub(super) fn of<E: Env>(&self, looked: &Looked<E>) -> Result<(), ErrorKind> {
        let certain = self.0.get(&looked.place()).copied();
        certain.unwrap_or(Err(ErrorKind::NotCoordinator))
    }
}

/// An error that clients try again after. Java's do so for two errors of this API, and COORDINATOR_NOT_AVAILABLE is not one of
/// them: it ends the consumer.
pub(super) fn as_retriable(error: ErrorKind) -> ErrorKind {
    match error {
        ErrorKind::CoordinatorNotAvailable => ErrorKind::NotCoordinator,
        other => other,
    }
}
