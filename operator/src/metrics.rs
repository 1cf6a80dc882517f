//! The operator's own Prometheus metrics, all in one place. Label sets are closed: kinds, results, reasons and names
//! of objects that exist.

use std::time::Duration;

use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::http::Page;

/// How one reconcile went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassResult {
    /// Nothing had to be done.
    Steady,
    /// Steps were carried out.
    Changed,
    /// Something could not be observed or applied.
    Failed,
}

impl PassResult {
    fn label(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Changed => "changed",
            Self::Failed => "failed",
        }
    }
}

/// All metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    reconcile: IntCounterVec,
    duration: HistogramVec,
    in_progress_start: GaugeVec,
    last_success: GaugeVec,
    steady: IntCounterVec,
    steps: IntCounterVec,
    managed: IntGaugeVec,
    paused: IntGaugeVec,
    blocked: IntGaugeVec,
    broker_restarts: IntCounterVec,
    api_requests: IntCounterVec,
    leader: IntGauge,
}

impl Metrics {
    /// Metrics at zero.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            reconcile: IntCounterVec::new(
                Opts::new(
                    "taffrail_operator_reconcile_total",
                    "Reconciles by kind and result (steady, changed, failed).",
                ),
                &["kind", "result"],
            )?,
            duration: HistogramVec::new(
                HistogramOpts::new(
                    "taffrail_operator_reconcile_duration_seconds",
                    "Time that a reconcile took.",
                )
                .buckets(vec![0.005, 0.02, 0.1, 0.5, 2.0, 10.0]),
                &["kind"],
            )?,
            in_progress_start: GaugeVec::new(
                Opts::new(
                    "taffrail_operator_reconcile_in_progress_start_seconds",
                    "Unix time at which the reconcile under way began; 0 if none is.",
                ),
                &["kind", "namespace", "name"],
            )?,
            last_success: GaugeVec::new(
                Opts::new(
                    "taffrail_operator_reconcile_last_success_timestamp_seconds",
                    "Unix time of the last reconcile without a failure.",
                ),
                &["kind", "namespace", "name"],
            )?,
            steady: IntCounterVec::new(
                Opts::new(
                    "taffrail_operator_reconcile_steady_state_total",
                    "Reconciles that found nothing to do.",
                ),
                &["kind"],
            )?,
            steps: IntCounterVec::new(
                Opts::new(
                    "taffrail_operator_steps_total",
                    "Steps of plans by result (done, failed).",
                ),
                &["result"],
            )?,
            managed: IntGaugeVec::new(
                Opts::new(
                    "taffrail_operator_managed_resources",
                    "Objects by kind and whether they are Ready.",
                ),
                &["kind", "ready"],
            )?,
            paused: IntGaugeVec::new(
                Opts::new(
                    "taffrail_operator_paused_resources",
                    "Objects whose spec.paused is true.",
                ),
                &["kind"],
            )?,
            blocked: IntGaugeVec::new(
                Opts::new(
                    "taffrail_operator_rollout_blocked",
                    "Things not done at this moment, by reason.",
                ),
                &["reason"],
            )?,
            broker_restarts: IntCounterVec::new(
                Opts::new(
                    "taffrail_operator_broker_restarts_total",
                    "Brokers that died and were started again (local runs).",
                ),
                &["broker"],
            )?,
            api_requests: IntCounterVec::new(
                Opts::new(
                    "taffrail_operator_api_requests_total",
                    "Requests to the Kubernetes API server by verb and kind; a watch counts once when it begins.",
                ),
                &["verb", "kind"],
            )?,
            leader: IntGauge::new(
                "taffrail_operator_leader",
                "1 while this operator leads, 0 while it stands by.",
            )?,
            registry,
        };
        let collectors: [Box<dyn prometheus::core::Collector>; 12] = [
            Box::new(metrics.reconcile.clone()),
            Box::new(metrics.duration.clone()),
            Box::new(metrics.in_progress_start.clone()),
            Box::new(metrics.last_success.clone()),
            Box::new(metrics.steady.clone()),
            Box::new(metrics.steps.clone()),
            Box::new(metrics.managed.clone()),
            Box::new(metrics.paused.clone()),
            Box::new(metrics.blocked.clone()),
            Box::new(metrics.broker_restarts.clone()),
            Box::new(metrics.api_requests.clone()),
            Box::new(metrics.leader.clone()),
        ];
        for collector in collectors {
            metrics.registry.register(collector)?;
        }
        // Zero is a value; a series that appears only with its first event hides that event from rate().
        for kind in ["Cluster", "Topic"] {
            for ready in ["true", "false"] {
                metrics.managed.with_label_values(&[kind, ready]).set(0);
            }
        }
        metrics.paused.with_label_values(&["Cluster"]).set(0);
        for result in [PassResult::Steady, PassResult::Changed, PassResult::Failed] {
            metrics
                .reconcile
                .with_label_values(&["Cluster", result.label()])
                .inc_by(0);
        }
        metrics.steady.with_label_values(&["Cluster"]).inc_by(0);
        for result in ["done", "failed"] {
            metrics.steps.with_label_values(&[result]).inc_by(0);
        }
        Ok(metrics)
    }

    /// A reconcile of a Cluster and its Topics began at this Unix time, in seconds.
    pub fn pass_began(&self, namespace: &str, name: &str, unix_seconds: f64) {
        self.in_progress_start
            .with_label_values(&["Cluster", namespace, name])
            .set(unix_seconds);
    }

    /// It ended at this Unix time.
    pub fn pass_ended(
        &self,
        namespace: &str,
        name: &str,
        result: PassResult,
        took: Duration,
        unix_seconds: f64,
    ) {
        let labels = ["Cluster", namespace, name];
        self.in_progress_start.with_label_values(&labels).set(0.0);
        self.reconcile
            .with_label_values(&["Cluster", result.label()])
            .inc();
        self.duration
            .with_label_values(&["Cluster"])
            .observe(took.as_secs_f64());
        if result != PassResult::Failed {
            self.last_success
                .with_label_values(&labels)
                .set(unix_seconds);
        }
        if result == PassResult::Steady {
            self.steady.with_label_values(&["Cluster"]).inc();
        }
    }

    /// A step of a plan ended.
    pub fn step_ended(&self, done: bool) {
        self.steps
            .with_label_values(&[if done { "done" } else { "failed" }])
            .inc();
    }

    /// How many objects of a kind are Ready and how many are not.
    pub fn set_managed(&self, kind: &str, ready: usize, not_ready: usize) {
        for (label, number) in [("true", ready), ("false", not_ready)] {
            self.managed
                .with_label_values(&[kind, label])
                .set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }

    /// How many Clusters are paused.
    pub fn set_paused(&self, paused: usize) {
        self.paused
            .with_label_values(&["Cluster"])
            .set(i64::try_from(paused).unwrap_or(i64::MAX));
    }

    /// A Cluster is gone: its series end.
    pub fn forget(&self, namespace: &str, name: &str) {
        let labels = ["Cluster", namespace, name];
        // An error says that there was no such series.
        let _ = self.in_progress_start.remove_label_values(&labels);
        let _ = self.last_success.remove_label_values(&labels);
    }

    /// A request goes to the API server.
    pub fn api_request(&self, verb: &str, kind: &str) {
        self.api_requests.with_label_values(&[verb, kind]).inc();
    }

    /// Whether this operator leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// What is not done, by reason.
    pub fn set_blocked(&self, reasons: impl Iterator<Item = &'static str>) {
        self.blocked.reset();
        for reason in reasons {
            self.blocked.with_label_values(&[reason]).inc();
        }
    }

    /// A broker died and was started again.
    pub fn broker_restarted(&self, broker: i32) {
        self.broker_restarts
            .with_label_values(&[broker.to_string().as_str()])
            .inc();
    }

    /// What a path of the metrics port shows.
    pub fn page(&self, path: &str) -> Option<Page> {
        match path {
            "/metrics" => {
                let mut body = Vec::new();
                let encoder = TextEncoder::new();
                if let Err(error) = encoder.encode(&self.registry.gather(), &mut body) {
                    tracing::warn!(%error, "metrics cannot be written");
                }
                Some(Page {
                    content_type: "text/plain; version=0.0.4; charset=utf-8",
                    ..Page::ok(String::from_utf8_lossy(&body).into_owned())
                })
            }
            "/livez" | "/readyz" => Some(Page::ok("ok\n".to_owned())),
            _ => None,
        }
    }
}
