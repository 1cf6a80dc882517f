//! Which Clusters have to be looked at, and when: one pass for a Cluster at a time, those waiting longest first. Pure:
//! the time is an argument.
//!
//! | state | marked | due | ended |
//! |---|---|---|---|
//! | unknown | waits, due after `DEBOUNCE` | - | - |
//! | waits | due after `DEBOUNCE` at the latest (`ERROR_PAUSE_MIN` after an error) | runs | - |
//! | runs | runs, and remembers it | - | waits: at once if marked meanwhile, else as the outcome says; forgotten if gone |

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::object::ObjectKey;

/// Changes come in bursts: objects applied together, a pod's several status writes. One pass takes them all.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(100);

/// While something is under way that no event tells of (a broker that catches up, partitions that move).
const UNDER_WAY_PAUSE: Duration = Duration::from_millis(500);

/// The same when it has been under way for `UNDER_WAY_LOOKS` passes: half a minute, so it takes as long as it takes.
const LONG_UNDER_WAY_PAUSE: Duration = Duration::from_secs(2);
const UNDER_WAY_LOOKS: u32 = 60;

/// While it waits for someone to change something, which an event tells of.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// While all is as the spec says: brokers are looked at, since leaders and replicas change without an event.
const CONVERGED_PAUSE: Duration = Duration::from_secs(20);

/// Shortest and longest pause after an error; doubled from one to the other.
const ERROR_PAUSE_MIN: Duration = Duration::from_millis(500);
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All is as the spec says.
    Converged,
    /// Something is under way.
    UnderWay,
    /// Something is refused until someone changes it.
    Refused,
    /// Something could not be observed or applied.
    Failed,
    /// There is neither a Cluster nor a Topic that names it.
    Gone,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Begin a pass.
    Start(ObjectKey),
    /// Nothing before this time; none: not before something is marked or ends.
    Wait(Option<Instant>),
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Waits { due: Instant, past: Past },
    Runs { marked: bool, past: Past },
}

/// Passes in a row that ended in the same way.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    failures: u32,
    under_way: u32,
}

/// The Clusters that are known.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<ObjectKey, Entry>,
}

impl Queue {
    /// Something of the Cluster changed.
    pub(super) fn mark(&mut self, key: ObjectKey, now: Instant) {
        let entry = self.entries.entry(key).or_insert(Entry::Waits {
            due: now + DEBOUNCE,
            past: Past::default(),
        });
        match entry {
            Entry::Waits { due, past } => {
                let pause = if past.failures == 0 {
                    DEBOUNCE
                } else {
                    ERROR_PAUSE_MIN
                };
                *due = (*due).min(now + pause);
            }
            Entry::Runs { marked, .. } => *marked = true,
        }
    }

    /// The next pass, if `running` leaves room for one.
    pub(super) fn next(&mut self, now: Instant, running_max: usize) -> Next {
        let running = self
            .entries
            .values()
            .filter(|entry| matches!(entry, Entry::Runs { .. }))
            .count();
        if running >= running_max {
            return Next::Wait(None);
        }
        let waiting = self
            .entries
            .iter_mut()
            .filter_map(|(key, entry)| match *entry {
                Entry::Waits { due, past } => Some((due, past, key, entry)),
                Entry::Runs { .. } => None,
            });
        let Some((due, past, key, entry)) = waiting.min_by_key(|(due, ..)| *due) else {
            return Next::Wait(None);
        };
        if due > now {
            return Next::Wait(Some(due));
        }
        *entry = Entry::Runs {
            marked: false,
            past,
        };
        Next::Start(key.clone())
    }

    /// A pass ended. `jitter` is between 0 and 1 and keeps Clusters that failed together from coming back together.
    pub(super) fn ended(&mut self, key: &ObjectKey, outcome: Outcome, now: Instant, jitter: f64) {
        let Some(Entry::Runs { marked, past }) = self.entries.get(key).copied() else {
            return;
        };
        if outcome == Outcome::Gone && !marked {
            self.entries.remove(key);
            return;
        }
        let again = |is: bool, before: u32| if is { before.saturating_add(1) } else { 0 };
        let past = Past {
            failures: again(outcome == Outcome::Failed, past.failures),
            under_way: again(outcome == Outcome::UnderWay, past.under_way),
        };
        let mut pause = match outcome {
            Outcome::Converged => CONVERGED_PAUSE,
            Outcome::UnderWay if past.under_way > UNDER_WAY_LOOKS => LONG_UNDER_WAY_PAUSE,
            Outcome::UnderWay => UNDER_WAY_PAUSE,
            Outcome::Refused => REFUSED_PAUSE,
            Outcome::Gone => DEBOUNCE,
            Outcome::Failed => {
                let doubled =
                    ERROR_PAUSE_MIN.saturating_mul(1 << past.failures.min(16).saturating_sub(1));
                doubled
                    .min(ERROR_PAUSE_MAX)
                    .mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
            }
        };
        if marked && past.failures == 0 {
            pause = pause.min(DEBOUNCE);
        } else if marked {
            pause = pause.min(ERROR_PAUSE_MIN);
        }
        let due = now + pause;
        self.entries.insert(key.clone(), Entry::Waits { due, past });
    }

    /// Forgets which passes run, for passes that were given up.
    pub(super) fn abandon(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            *entry = Entry::Waits {
                due: now,
                past: Past::default(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Some("ns"), Some(name))
    }

    fn started(queue: &mut Queue, now: Instant) -> Option<String> {
        match queue.next(now, 2) {
            Next::Start(key) => Some(key.name),
            Next::Wait(_) => None,
        }
    }

    #[test]
    fn bursts_make_one_pass() {
        let t = Instant::now();
        let mut queue = Queue::default();
        for ms in [0, 30, 60] {
            queue.mark(key("a"), t + Duration::from_millis(ms));
        }
        assert_eq!(queue.next(t, 2), Next::Wait(Some(t + DEBOUNCE)));
        assert_eq!(started(&mut queue, t + DEBOUNCE), Some("a".to_owned()));
        assert_eq!(queue.next(t + DEBOUNCE, 2), Next::Wait(None));
    }

    #[test]
    fn one_pass_for_a_cluster_and_few_at_a_time() {
        let t = Instant::now();
        let mut queue = Queue::default();
        for (ms, name) in [(0, "c"), (1, "a"), (2, "b")] {
            queue.mark(key(name), t + Duration::from_millis(ms));
        }
        let later = t + Duration::from_secs(1);
        assert_eq!(started(&mut queue, later), Some("c".to_owned()));
        queue.mark(key("c"), later);
        assert_eq!(started(&mut queue, later), Some("a".to_owned()));
        assert_eq!(started(&mut queue, later), None);
        queue.ended(&key("c"), Outcome::Converged, later, 0.0);
        assert_eq!(started(&mut queue, later), Some("b".to_owned()));
    }

    #[test]
    fn pause_follows_from_the_outcome() {
        let ms = Duration::from_millis;
        for (outcome, marked, expected) in [
            (Outcome::Converged, false, Some(CONVERGED_PAUSE)),
            (Outcome::Converged, true, Some(DEBOUNCE)),
            (Outcome::UnderWay, false, Some(ms(500))),
            (Outcome::Refused, false, Some(ms(5000))),
            (Outcome::Failed, false, Some(ms(250))),
            (Outcome::Gone, false, None),
            (Outcome::Gone, true, Some(DEBOUNCE)),
        ] {
            let t = Instant::now();
            let mut queue = Queue::default();
            queue.mark(key("a"), t - DEBOUNCE);
            assert!(started(&mut queue, t).is_some());
            if marked {
                queue.mark(key("a"), t);
            }
            queue.ended(&key("a"), outcome, t, 0.0);
            let expected = Next::Wait(expected.map(|pause| t + pause));
            assert_eq!(queue.next(t, 2), expected, "{outcome:?} {marked}");
        }
    }

    #[test]
    fn errors_back_off_up_to_a_limit_and_events_do_not_undo_it() {
        let mut t = Instant::now();
        let mut queue = Queue::default();
        queue.mark(key("a"), t);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            t += Duration::from_secs(60);
            assert!(started(&mut queue, t).is_some());
            queue.ended(&key("a"), Outcome::Failed, t, 1.0);
            let Next::Wait(Some(due)) = queue.next(t, 2) else {
                panic!("waits");
            };
            pauses.push(due.duration_since(t).as_millis());
        }
        assert_eq!(pauses[..4], [500, 1000, 2000, 4000]);
        assert_eq!(pauses[11], 30_000);
        queue.mark(key("a"), t);
        assert_eq!(queue.next(t, 2), Next::Wait(Some(t + ERROR_PAUSE_MIN)));
    }
}
