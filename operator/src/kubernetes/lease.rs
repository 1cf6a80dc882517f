//! Leader election over one Lease: of several operators one writes, the others stand by. Whose turn it is is decided
//! here, purely; `hold` asks the API server.
//!
//! Clocks of machines differ, so the age of a Lease is measured by when it was seen to change, never by the times
//! written in it.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, timeout, timeout_at};

use crate::metrics::Metrics;

/// How long a Lease stands without being renewed.
const DURATION: Duration = Duration::from_secs(15);

/// How often the holder renews it: two attempts may fail.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// When a holder that cannot renew stops: well before another may begin.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// How often the others look.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long one request may take, so that a try ends before `GIVE_UP_AFTER`.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(4);

/// Which Lease, and for whom.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Namespace of the Lease.
    pub(super) namespace: String,
    /// Its name.
    pub(super) lease: String,
    /// Who asks. A container that is started again in the same pod is the same candidate.
    pub(super) identity: String,
}

/// What was last seen of the Lease.
#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    /// When this version of it was first seen.
    since: Instant,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// There is none: make it.
    Create,
    /// It is ours: say so again.
    Renew,
    /// Its holder has released it or is silent: take it.
    Take,
    /// Another holds it.
    StandBy,
}

fn decide(me: &str, seen: Option<&Seen>, now: Instant) -> Decision {
    let Some(seen) = seen else {
        return Decision::Create;
    };
    let spec = seen.lease.spec.as_ref();
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    let seconds = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok());
    let stands = seconds.map_or(DURATION, Duration::from_secs);
    if holder == me {
        Decision::Renew
    } else if holder.is_empty() || now.saturating_duration_since(seen.since) > stands {
        Decision::Take
    } else {
        Decision::StandBy
    }
}

/// The spec to write for a decision.
fn spec(me: &str, old: Option<&LeaseSpec>, decision: Decision, now: Timestamp) -> LeaseSpec {
    let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
    let (acquired, transitions) = match decision {
        Decision::Renew => (
            old.and_then(|old| old.acquire_time.clone())
                .unwrap_or(MicroTime(now)),
            transitions,
        ),
        Decision::Take => (MicroTime(now), transitions.saturating_add(1)),
        Decision::Create | Decision::StandBy => (MicroTime(now), transitions),
    };
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: Some(acquired),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// Tries to hold the Lease for as long as it runs, and says in `leads` whether it does.
pub(super) async fn hold(
    client: Client,
    candidate: Candidate,
    metrics: Metrics,
    leads: watch::Sender<bool>,
) {
    let mut holder = Holder {
        api: Api::namespaced(client, &candidate.namespace),
        candidate,
        metrics,
        seen: None,
        renewed: None,
    };
    loop {
        // No answer and no pause is waited for any longer than the lead lasts.
        let answered = within(leads_until(holder.renewed), holder.turn()).await;
        let leading = holder.announce(&leads);
        let pause = match (leading, answered == Some(true)) {
            (true, true) => RENEW_EVERY,
            // Tried again soon, while there is time left.
            (true, false) => Duration::from_secs(1),
            (false, _) => LOOK_EVERY,
        };
        within(leads_until(holder.renewed), sleep(pause)).await;
        holder.announce(&leads);
    }
}

/// Until when a holder leads that has written the Lease at this time; none if that is over. Others wait `DURATION` from
/// when they saw it written, which was later.
fn leads_until(renewed: Option<Instant>) -> Option<Instant> {
    let end = renewed? + GIVE_UP_AFTER;
    (end > Instant::now()).then_some(end)
}

/// What a future ends in, or none if it does not by this time.
async fn within<T>(end: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end.into(), future).await.ok(),
        None => Some(future.await),
    }
}

/// Whether the Lease is known to be in another's hands, so that what there is to write is for that one to write.
pub(super) async fn is_anothers(client: Client, candidate: &Candidate, metrics: &Metrics) -> bool {
    let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
    metrics.api_request("get", "Lease");
    let found = timeout(REQUEST_WAIT_MAX, api.get_opt(&candidate.lease)).await;
    let lease = found.ok().and_then(Result::ok).flatten();
    lease.is_some_and(|lease| {
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        holder.is_some_and(|holder| !holder.is_empty() && holder != candidate.identity)
    })
}

/// Gives the Lease up, so that another need not wait for it to age. Best effort: it ages anyway.
pub(super) async fn release(client: Client, candidate: &Candidate, metrics: &Metrics) {
    let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
    let released = async {
        metrics.api_request("get", "Lease");
        let mut lease = api.get(&candidate.lease).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&candidate.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        metrics.api_request("update", "Lease");
        api.replace(&candidate.lease, &PostParams::default(), &lease)
            .await
            .map(drop)
    };
    match timeout(REQUEST_WAIT_MAX, released).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the Lease was not released"),
        Err(_) => tracing::debug!("the Lease was not released in time"),
    }
}

struct Holder {
    api: Api<Lease>,
    candidate: Candidate,
    metrics: Metrics,
    seen: Option<Seen>,
    /// When the Lease was last written by us, measured before the request was sent.
    renewed: Option<Instant>,
}

impl Holder {
    /// Says in `leads` whether it leads at this moment, if that has changed.
    fn announce(&self, leads: &watch::Sender<bool>) -> bool {
        let leading = leads_until(self.renewed).is_some();
        leads.send_if_modified(|before| {
            if *before != leading {
                let identity = &self.candidate.identity;
                if leading {
                    tracing::info!(%identity, "this operator leads");
                } else {
                    tracing::warn!(%identity, "this operator leads no more");
                }
            }
            std::mem::replace(before, leading) != leading
        });
        leading
    }

    /// Looks and writes once; says whether that went well.
    async fn turn(&mut self) -> bool {
        let began = Instant::now();
        match timeout(REQUEST_WAIT_MAX, self.look_and_write(began)).await {
            Ok(Ok(())) => return true,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                // Someone else wrote it; the next turn sees what.
                self.seen = None;
                tracing::debug!("the Lease was written by another");
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = self.candidate.lease, "the Lease cannot be read or written");
            }
            Err(_) => tracing::warn!(
                lease = self.candidate.lease,
                "the API server does not answer in time"
            ),
        }
        false
    }

    async fn look_and_write(&mut self, began: Instant) -> Result<(), kube::Error> {
        self.metrics.api_request("get", "Lease");
        let found = self.api.get_opt(&self.candidate.lease).await?;
        self.see(found, began);
        let me = self.candidate.identity.clone();
        let decision = decide(&me, self.seen.as_ref(), began);
        let old = self.seen.as_ref().map(|seen| &seen.lease);
        let spec = spec(
            &me,
            old.and_then(|lease| lease.spec.as_ref()),
            decision,
            Timestamp::now(),
        );
        let written = match (decision, old) {
            (Decision::StandBy, _) => {
                self.renewed = None;
                return Ok(());
            }
            (Decision::Renew | Decision::Take, Some(old)) => {
                let lease = Lease {
                    // With the version that was seen: of two that take it, one is refused.
                    metadata: old.metadata.clone(),
                    spec: Some(spec),
                };
                self.metrics.api_request("update", "Lease");
                self.api
                    .replace(&self.candidate.lease, &PostParams::default(), &lease)
                    .await?
            }
            (Decision::Create | Decision::Renew | Decision::Take, _) => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.candidate.lease.clone()),
                        namespace: Some(self.candidate.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(spec),
                };
                self.metrics.api_request("create", "Lease");
                self.api.create(&PostParams::default(), &lease).await?
            }
        };
        self.see(Some(written), began);
        self.renewed = Some(began);
        Ok(())
    }

    fn see(&mut self, found: Option<Lease>, now: Instant) {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        self.seen = match (found, self.seen.take()) {
            (None, _) => None,
            (Some(lease), Some(seen)) if version(&lease) == version(&seen.lease) => Some(seen),
            (Some(lease), _) => Some(Seen { lease, since: now }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: Option<&str>, seconds: Option<i32>, since: Instant) -> Seen {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        };
        Seen {
            lease: Lease {
                spec: Some(spec),
                ..Lease::default()
            },
            since,
        }
    }

    #[test]
    fn lease_is_taken_when_free_or_silent() {
        let t = Instant::now();
        let after = |seconds| t + Duration::from_secs(seconds);
        for (seen, now, expected) in [
            (None, t, Decision::Create),
            (
                Some(held_by(Some("me"), Some(15), t)),
                after(60),
                Decision::Renew,
            ),
            (
                Some(held_by(Some("other"), Some(15), t)),
                after(14),
                Decision::StandBy,
            ),
            (
                Some(held_by(Some("other"), Some(15), t)),
                after(16),
                Decision::Take,
            ),
            (
                Some(held_by(Some("other"), Some(60), t)),
                after(16),
                Decision::StandBy,
            ),
            (
                Some(held_by(Some("other"), None, t)),
                after(16),
                Decision::Take,
            ),
            (Some(held_by(None, Some(1), t)), t, Decision::Take),
            (Some(held_by(Some(""), Some(15), t)), t, Decision::Take),
        ] {
            assert_eq!(decide("me", seen.as_ref(), now), expected, "{seen:?}");
        }
    }

    #[test]
    fn lead_ends_by_itself_before_another_begins() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        assert_eq!(leads_until(None), None);
        assert!(leads_until(ago(0)).is_some() && leads_until(ago(8)).is_some());
        assert_eq!(leads_until(ago(11)), None);
        assert!(GIVE_UP_AFTER + REQUEST_WAIT_MAX < DURATION);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let soon = Instant::now() + Duration::from_millis(20);
            let silent = std::future::pending::<bool>();
            assert_eq!(within(Some(soon), silent).await, None);
            assert_eq!(within(Some(soon), async { true }).await, Some(true));
            assert_eq!(within(None, async { true }).await, Some(true));
        });
    }

    #[test]
    fn written_spec_counts_changes_of_the_holder() {
        let now = Timestamp::from_second(100).expect("small");
        let old = LeaseSpec {
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        };
        for (decision, acquired, transitions) in [
            (Decision::Renew, Timestamp::UNIX_EPOCH, 3),
            (Decision::Take, now, 4),
        ] {
            let written = spec("me", Some(&old), decision, now);
            assert_eq!(written.acquire_time, Some(MicroTime(acquired)));
            assert_eq!(written.lease_transitions, Some(transitions));
            assert_eq!(written.renew_time, Some(MicroTime(now)));
        }
    }
}
