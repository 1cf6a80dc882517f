//! The objects of a Cluster and its pods: made, changed and taken away, one broker at a time where that matters.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::PropagationPolicy;
use serde_json::json;

use super::super::news;
use super::super::objects::{
    Blueprint, CLUSTER_LABEL, ClaimSize, Objects, claim_changes, claims_to_come, config_map_of,
    is_owned_by, keep_sizes, objects,
};
use super::write::Written;
use super::{Live, Pass};
use crate::object::ObjectKey;
use crate::plan::{Plan, PlannedStep, Step};
use crate::refusal::{Concern, Reason, Refusal};

impl Pass<'_> {
    /// Does what concerns brokers. Says whether pods come or go by it, so that topics wait for the next pass.
    pub(super) async fn brokers(
        &mut self,
        blueprint: &Blueprint<'_>,
        live: &Live,
        plan: &mut Plan,
    ) -> bool {
        let replicas = replicas_after(live.replicas(), &plan.steps);
        let wanted = objects(&Blueprint {
            replicas,
            ..*blueprint
        });
        let caches = std::sync::Arc::clone(&self.context.caches);
        let account = self.apply(&caches.service_accounts, wanted.service_account.clone());
        let account = account.await != Written::No;
        let config_map = self.apply(&caches.config_maps, wanted.config_map.clone());
        let startable = account & (config_map.await != Written::No);
        let mut complete = startable;
        for service in wanted.services.clone() {
            complete &= self.apply(&caches.services, service).await != Written::No;
        }
        let budget = self.apply(&caches.disruption_budgets, wanted.disruption_budget.clone());
        complete &= budget.await != Written::No;
        // Pods without their configuration would only fail, and so would first ones without their names in DNS. But one
        // Service that cannot be written stops nobody from looking after the pods that there are.
        let set = if complete || (startable && live.stateful_set.is_some()) {
            self.stateful_set(&wanted, live).await
        } else {
            Written::No
        };
        let scaled: Vec<PlannedStep> = plan
            .steps
            .iter()
            .filter(|planned| {
                matches!(
                    planned.step,
                    Step::CreateBroker { .. } | Step::RemoveBroker { .. }
                )
            })
            .cloned()
            .collect();
        if set == Written::Changed {
            for planned in &scaled {
                self.step_ended(planned, None);
            }
        }
        let restarted = complete && set == Written::Unchanged && self.restart(live, plan).await;
        if complete && set != Written::No {
            self.delete_unused(&wanted, live).await;
        }
        restarted || (set == Written::Changed && !scaled.is_empty())
    }

    async fn stateful_set(&mut self, wanted: &Objects, live: &Live) -> Written {
        let ours = live
            .stateful_set
            .as_ref()
            .filter(|set| is_owned_by(&set.metadata, &self.uid));
        let mut stateful_set = wanted.stateful_set.clone();
        let changes = claim_changes(&stateful_set, ours, &live.claims);
        if let Some(message) = changes.refused {
            self.refusals.push(Refusal::new(
                Concern::BrokersReady,
                Reason::VolumeInUse,
                message,
            ));
            return Written::No;
        }
        if !self.claims_are_free(wanted, ours, live).await {
            return Written::No;
        }
        let mut recreate = changes.recreate;
        if !self.grow_claims(&changes.grow).await {
            // The templates would say a size that not all disks have. Everything else goes on with the sizes that they had.
            keep_sizes(&mut stateful_set, ours);
            recreate = claim_changes(&stateful_set, ours, &[]).recreate;
        }
        if let (Some(reason), Some(set)) = (recreate, ours) {
            if set.metadata.deletion_timestamp.is_none() {
                tracing::info!(cluster = %self.key, reason, "makes the StatefulSet anew, its pods go on");
                self.delete(set, PropagationPolicy::Orphan).await;
            }
            self.refusals.push(Refusal::new(
                Concern::BrokersReady,
                Reason::Progressing,
                format!("the StatefulSet is made anew while its pods go on: {reason}"),
            ));
            return Written::No;
        }
        let caches = std::sync::Arc::clone(&self.context.caches);
        // The number of pods is taken over from the live one, so it must still be that one: with a smaller number its
        // controller would delete pods at once.
        let seen = live.stateful_set.as_ref().map(|set| &set.metadata);
        self.apply_over_seen(&caches.stateful_sets, stateful_set, seen)
            .await
    }

    /// Asks for larger disks. Says whether all were taken.
    async fn grow_claims(&mut self, sizes: &[ClaimSize]) -> bool {
        let mut refused: Vec<&str> = Vec::new();
        let mut why = String::new();
        for size in sizes {
            let key = ObjectKey::new(Some(&self.key.namespace), Some(&size.claim));
            let patch = json!({"spec": {"resources": {"requests": {"storage": size.size}}}});
            let writer = &self.context.writer;
            match writer.patch::<PersistentVolumeClaim>(&key, &patch).await {
                Ok(claim) => {
                    tracing::info!(cluster = %self.key, claim = size.claim, size = size.size, "grows");
                    self.context.caches.claims.put(claim);
                    self.wrote = true;
                }
                Err(error) => {
                    refused.push(&size.claim);
                    // The claims of one volume are refused for one reason.
                    why = error.to_string();
                }
            }
        }
        if !refused.is_empty() {
            let message = format!(
                "claims {} do not grow: that needs allowVolumeExpansion in their StorageClass, and claims that are bound; \
                 all else goes on with the sizes that they have: {why}",
                refused.join(", ")
            );
            self.failed(None, Concern::BrokersReady, message);
        }
        refused.is_empty()
    }

    /// Whether the claims that are to be made are not another's: a Cluster's and a volume's name together can spell that of
    /// another pair, and pods take whatever claim has the name.
    async fn claims_are_free(
        &mut self,
        wanted: &Objects,
        ours: Option<&StatefulSet>,
        live: &Live,
    ) -> bool {
        let mut names = claims_to_come(&wanted.stateful_set, ours);
        for claim in &live.claims {
            names.remove(&claim.name_any());
        }
        for name in names {
            let key = ObjectKey::new(Some(&self.key.namespace), Some(&name));
            let labels = match self.context.caches.claims.get(&key) {
                Some(claim) => Some(claim.labels().clone()),
                // One without our labels is in no cache.
                None => match self.context.writer.get::<PersistentVolumeClaim>(&key).await {
                    Ok(claim) => claim.map(|claim| claim.labels().clone()),
                    Err(error) => {
                        let message = format!("cannot look whether claim {name} is free: {error}");
                        self.failed(None, Concern::Ready, message);
                        return false;
                    }
                },
            };
            if labels.is_some_and(|labels| labels.get(CLUSTER_LABEL) != Some(&self.key.name)) {
                self.refusals.push(Refusal::new(
                    Concern::Ready,
                    Reason::NameTaken,
                    format!(
                        "PersistentVolumeClaim {name} exists and does not belong to this Cluster; delete it, or give the \
                         volume or the Cluster another name"
                    ),
                ));
                return false;
            }
        }
        true
    }

    /// Restarts the broker that the plan names, if new pods would be as wanted.
    async fn restart(&mut self, live: &Live, plan: &Plan) -> bool {
        let named = plan.steps.iter().find_map(|planned| match planned.step {
            Step::UpdateBroker { broker } => Some((broker, planned.clone())),
            _ => None,
        });
        let Some((broker, planned)) = named else {
            return false;
        };
        // One that goes already counts as the one that is down.
        let leaving = live
            .pods
            .iter()
            .any(|pod| pod.metadata.deletion_timestamp.is_some());
        let (Some(pod), false) = (live.pod(broker), leaving) else {
            return false;
        };
        if !live.stateful_set.as_ref().is_some_and(is_noticed) {
            return false;
        }
        let pod = pod.clone();
        if self.delete(&pod, PropagationPolicy::Background).await {
            self.step_ended(&planned, None);
            if let Some(told) = self.news.last_mut() {
                told.related = Some(news::pod(&pod));
            }
        }
        true
    }

    /// Deletes Services and ConfigMaps that are ours, not wanted, and not used by any pod.
    async fn delete_unused(&mut self, wanted: &Objects, live: &Live) {
        let services: BTreeSet<String> =
            wanted.services.iter().map(ResourceExt::name_any).collect();
        for (name, service) in &live.services {
            let ours = is_owned_by(&service.metadata, &self.uid)
                && service.metadata.deletion_timestamp.is_none();
            if ours && !services.contains(name) {
                self.delete(service, PropagationPolicy::Background).await;
            }
        }
        let mut used: BTreeSet<String> = live
            .pods
            .iter()
            .filter_map(|pod| config_map_of(pod.spec.as_ref()?).map(str::to_owned))
            .collect();
        used.insert(wanted.config_map.name_any());
        // A pod may be about to be made from the template before.
        let template = live
            .stateful_set
            .as_ref()
            .and_then(|set| config_map_of(set.spec.template.spec.as_ref()?));
        used.extend(template.map(str::to_owned));
        for (name, map) in &live.config_maps {
            let ours =
                is_owned_by(&map.metadata, &self.uid) && map.metadata.deletion_timestamp.is_none();
            if ours && !used.contains(name) {
                self.delete(map, PropagationPolicy::Background).await;
            }
        }
    }
}

/// Pods after the steps: new ones are added at once, of surplus ones the highest goes.
fn replicas_after(now: i32, steps: &[PlannedStep]) -> i32 {
    let mut replicas = now;
    for planned in steps {
        match planned.step {
            Step::CreateBroker { broker } => replicas = replicas.max(broker.saturating_add(1)),
            Step::RemoveBroker { broker } if broker.saturating_add(1) == replicas => {
                replicas = broker;
            }
            _ => {}
        }
    }
    replicas
}

/// Whether the controller has seen the template as it is: a pod that is made before that is made from the one before.
fn is_noticed(set: &StatefulSet) -> bool {
    let seen = set
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    set.metadata.deletion_timestamp.is_none() && seen >= set.metadata.generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_follow_the_steps() {
        let step = |step| PlannedStep {
            step,
            reason: String::new(),
        };
        let create = |broker| step(Step::CreateBroker { broker });
        let remove = |broker| step(Step::RemoveBroker { broker });
        let update = |broker| step(Step::UpdateBroker { broker });
        for (now, steps, expected) in [
            (0, vec![create(0), create(1), create(2)], 3),
            (3, vec![], 3),
            (3, vec![update(0)], 3),
            (5, vec![remove(4), remove(3)], 3),
            // Only the highest can go.
            (5, vec![remove(3)], 5),
        ] {
            assert_eq!(replicas_after(now, &steps), expected, "{steps:?}");
        }
    }
}
