//! The PodDisruptionBudget: evictions (a node being drained) take one broker at a time, and one that does not serve
//! anyway keeps nobody from draining.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Blueprint;
use super::labels::{label_selector, metadata};

pub(super) fn disruption_budget(blueprint: &Blueprint<'_>) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(blueprint, blueprint.names().brokers()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(label_selector(&blueprint.cluster.key.name)),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
