//! All sessions of a broker: found, made, closed and evicted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::time::Instant;

use super::context::{FetchContext, FetchKind};
use super::session::{PartitionKey, Position, Session};

/// Epoch of a fetch that wants a new session, closing the one it names.
const EPOCH_INITIAL: i32 = 0;
/// Epoch of a fetch that wants no session, closing the one it names.
const EPOCH_FINAL: i32 = -1;

/// So many followers find room, however few sessions the cache may hold; beyond that they are subject to its limit.
const FOLLOWER_SESSIONS_MIN: usize = 64;

/// How much the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `max.incremental.fetch.session.cache.slots`: whoever finds so many taken must displace one of them. The first
    /// followers (64) need not, so there may be that many more.
    pub sessions_max: usize,
    /// Over all sessions.
    pub partitions_max: usize,
    /// Sessions unused for longer go first; sessions older than this may be displaced by larger ones.
    pub evict_after: Duration,
}

impl Default for Limits {
    /// Kafka's 1,000 sessions and 2 minutes; 500,000 partitions at about 200 bytes are 100 MB at worst.
    fn default() -> Limits {
        Limits {
            sessions_max: 1_000,
            partitions_max: 500_000,
            evict_after: Duration::from_secs(120),
        }
    }
}

/// What a fetch request says of sessions and partitions.
#[derive(Clone, Debug)]
pub struct SessionFetch {
    /// 0 = none.
    pub session_id: i32,
    /// −1 = no session, 0 = a new one, else the next one of the session.
    pub session_epoch: i32,
    /// Whether a broker fetches; its sessions displace those of consumers, never the other way.
    pub follower: bool,
    /// Whether topics are named by id (Fetch v13 and later), also when none is named.
    pub topic_ids: bool,
    /// Partitions added, or wanted from elsewhere than the session knows.
    pub partitions: Vec<(PartitionKey, Position)>,
    /// Partitions no longer wanted.
    pub forgotten: Vec<PartitionKey>,
}

#[derive(Clone, Debug)]
struct Entry<H> {
    /// `None` while a fetch has it.
    context: Option<Box<FetchContext<H>>>,
    /// Tells sessions apart that had the same id one after the other.
    serial: u64,
    follower: bool,
    partitions: usize,
    created: Instant,
    last_used: Instant,
}

/// The sessions of a broker.
///
/// | session id, epoch | session exists | answer |
/// |---|---|---|
/// | any, −1 | closed | sessionless |
/// | any, 0 | closed | full; a new session if there is room, else id 0 |
/// | id, n > 0 | no, or in use by another fetch | FETCH_SESSION_ID_NOT_FOUND |
/// | id, n > 0 | expects another epoch | INVALID_FETCH_SESSION_EPOCH |
/// | id, n > 0 | names topics the other way | FETCH_SESSION_TOPIC_ID_ERROR |
/// | id, n > 0 | yes, empty after the request's changes | closed; sessionless, nothing to read |
/// | id, n > 0 | yes | incremental; epoch n + 1 next, 1 after `i32::MAX` |
#[derive(Clone, Debug)]
pub struct Sessions<H> {
    limits: Limits,
    entries: BTreeMap<i32, Entry<H>>,
    partitions: usize,
    evicted: u64,
    serial_last: u64,
}

impl<H> Sessions<H> {
    /// No sessions.
    pub fn new(limits: Limits) -> Sessions<H> {
        Sessions {
            limits,
            entries: BTreeMap::new(),
            partitions: 0,
            evicted: 0,
            serial_last: 0,
        }
    }

    /// A fetch came in: what to read for it.
    ///
    /// # Errors
    /// The session errors of the table. The whole answer is then that error, with session id 0.
    pub fn handle_fetch(
        &mut self,
        now: Instant,
        fetch: SessionFetch,
    ) -> Result<FetchContext<H>, ErrorKind> {
        match fetch.session_epoch {
            EPOCH_FINAL | EPOCH_INITIAL => {
                self.close(fetch.session_id);
                let kind = if fetch.session_epoch == EPOCH_INITIAL {
                    FetchKind::Full
                } else {
                    FetchKind::Sessionless
                };
                let mut context = FetchContext::new(kind, fetch.follower, fetch.topic_ids);
                update(&mut context.session, fetch.partitions, &fetch.forgotten);
                Ok(context)
            }
            _ => self.resume(now, fetch),
        }
    }

    /// The answer is made: keeps the session for the next fetch and returns the session id to answer with (0 = none).
    /// A new session takes its id from `random`, which is asked for nothing else: it may be a system call. A session that was closed meanwhile is gone.
    pub fn handle_answered(
        &mut self,
        now: Instant,
        random: impl FnOnce() -> u64,
        mut context: FetchContext<H>,
    ) -> i32 {
        context.rotate();
        context.note_answered(now);
        match context.kind {
            FetchKind::Sessionless => 0,
            FetchKind::Full => {
                let partitions = context.len();
                if partitions == 0 || !self.make_room(now, context.follower, partitions) {
                    return 0;
                }
                context.id = self.free_id(random());
                context.kind = FetchKind::Incremental;
                self.serial_last += 1;
                let serial = self.serial_last;
                context.serial = serial;
                self.partitions += partitions;
                let id = context.id;
                let follower = context.follower;
                let context = Some(Box::new(context));
                self.entries.insert(
                    id,
                    Entry {
                        context,
                        serial,
                        follower,
                        partitions,
                        created: now,
                        last_used: now,
                    },
                );
                id
            }
            FetchKind::Incremental => {
                let id = context.id;
                // A new session may have got the id of one that was evicted while this fetch waited.
                let Some(entry) = self
                    .entries
                    .get_mut(&id)
                    .filter(|entry| entry.serial == context.serial)
                else {
                    return id;
                };
                entry.last_used = now;
                entry.context = Some(Box::new(context));
                id
            }
        }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many partitions all sessions have.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// How many sessions were evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn resume(&mut self, now: Instant, fetch: SessionFetch) -> Result<FetchContext<H>, ErrorKind> {
        let entry = self
            .entries
            .get_mut(&fetch.session_id)
            .ok_or(ErrorKind::FetchSessionIdNotFound)?;
        let context = entry
            .context
            .as_ref()
            .ok_or(ErrorKind::FetchSessionIdNotFound)?;
        if context.next_epoch != fetch.session_epoch {
            return Err(ErrorKind::InvalidFetchSessionEpoch);
        }
        if context.topic_ids != fetch.topic_ids {
            return Err(ErrorKind::FetchSessionTopicIdError);
        }
        let mut context = entry
            .context
            .take()
            .ok_or(ErrorKind::FetchSessionIdNotFound)?;
        entry.last_used = now;
        context.next_epoch = fetch.session_epoch.checked_add(1).unwrap_or(1);
        update(&mut context.session, fetch.partitions, &fetch.forgotten);
        let partitions = context.len();
        self.partitions = self.partitions - entry.partitions + partitions;
        entry.partitions = partitions;
        if partitions == 0 {
            self.close(fetch.session_id);
            return Ok(FetchContext::new(
                FetchKind::Sessionless,
                fetch.follower,
                fetch.topic_ids,
            ));
        }
        if self.partitions > self.limits.partitions_max {
            self.close(fetch.session_id);
            return Err(ErrorKind::FetchSessionIdNotFound);
        }
        Ok(*context)
    }

    fn close(&mut self, id: i32) {
        if let Some(entry) = self.entries.remove(&id) {
            self.partitions -= entry.partitions;
        }
    }

    /// Makes room by Kafka's rules: the session unused for longest, if that is long; else the least worthy that may
    /// be displaced, if it is not worth more than the new one. Followers are worth more, then larger sessions. Unlike with
    /// Kafka some followers find room however few sessions there may be, and send nobody away for it: without sessions a
    /// leader could prove nothing by their fetches.
    fn make_room(&mut self, now: Instant, follower: bool, partitions: usize) -> bool {
        if partitions > self.limits.partitions_max {
            return false;
        }
        let fits = self.partitions + partitions <= self.limits.partitions_max;
        if follower && fits && self.followers() < FOLLOWER_SESSIONS_MIN {
            return true;
        }
        while self.entries.len() >= self.limits.sessions_max
            || self.partitions + partitions > self.limits.partitions_max
        {
            let Some(id) = self.victim(now, follower, partitions) else {
                return false;
            };
            self.close(id);
            self.evicted += 1;
        }
        true
    }

    fn followers(&self) -> usize {
        self.entries.values().filter(|entry| entry.follower).count()
    }

    fn victim(&self, now: Instant, follower: bool, partitions: usize) -> Option<i32> {
        let long_since = |at: Instant| now.saturating_since(at) > self.limits.evict_after;
        let (id, oldest) = self
            .entries
            .iter()
            .min_by_key(|(id, entry)| (entry.last_used, **id))?;
        if long_since(oldest.last_used) {
            return Some(*id);
        }
        self.entries
            .iter()
            .filter(|(_, entry)| long_since(entry.created) || (follower && !entry.follower))
            .map(|(id, entry)| (entry.follower, entry.partitions, *id))
            .min()
            .filter(|worth| (worth.0, worth.1) <= (follower, partitions))
            .map(|(_, _, id)| id)
    }

    fn free_id(&self, random: u64) -> i32 {
        // 31 bits of it; few ids are taken (see `Limits::sessions_max`), so the search is short.
        let mut id = (random & 0x7fff_ffff) as i32;
        while id == 0 || self.entries.contains_key(&id) {
            id = id.checked_add(1).unwrap_or(1);
        }
        id
    }
}

fn update<H>(
    session: &mut Session<H>,
    partitions: Vec<(PartitionKey, Position)>,
    forgotten: &[PartitionKey],
) {
    for (key, position) in partitions {
        session.put(key, position);
    }
    for key in forgotten {
        session.forget(key);
    }
}
