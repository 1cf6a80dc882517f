//! What keeps a broker's pod from running, in the words of the scheduler, the kubelet or the broker itself. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::refusal::{Concern, Reason, Refusal};

/// Of a container's last words the end is kept.
const WORDS_MAX: usize = 600;

/// Reasons of a waiting container that are part of every start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// What is wrong with a pod, if anything is.
pub(super) fn trouble(pod: &Pod) -> Option<Refusal> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let scheduled = conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled");
    if let Some(condition) = scheduled.filter(|condition| condition.status == "False") {
        return Some(Refusal::new(
            Concern::BrokersReady,
            Reason::PodUnschedulable,
            format!(
                "pod {name} finds no node{}: {}",
                since(condition.last_transition_time.as_ref()),
                condition.message.as_deref().unwrap_or("no reason is given")
            ),
        ));
    }
    let containers = status.container_statuses.iter().flatten();
    let words = containers.into_iter().find_map(failing)?;
    Some(Refusal::new(
        Concern::BrokersReady,
        Reason::PodFailing,
        format!("pod {name}: {words}"),
    ))
}

fn failing(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref();
    let ended = container
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    if let Some(now) = state.and_then(|state| state.terminated.as_ref()) {
        return Some(format!(
            "container {} ended with code {}{}{}",
            container.name,
            now.exit_code,
            since(now.finished_at.as_ref()),
            last_words(now.message.as_deref().or(now.reason.as_deref())),
        ));
    }
    let waiting = state.and_then(|state| state.waiting.as_ref())?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    match ended {
        Some(ended) => Some(format!(
            "container {} ends again and again ({} starts), last with code {}{}{}",
            container.name,
            container.restart_count.saturating_add(1),
            ended.exit_code,
            since(ended.finished_at.as_ref()),
            last_words(ended.message.as_deref().or(ended.reason.as_deref())),
        )),
        None if reason.is_empty() || STARTING.contains(&reason) => None,
        None => Some(format!(
            "container {} cannot start, {reason}{}",
            container.name,
            last_words(waiting.message.as_deref())
        )),
    }
}

fn since(time: Option<&Time>) -> String {
    time.map_or_else(String::new, |time| format!(" since {}", time.0))
}

/// The end of what a container said: errors come last.
fn last_words(words: Option<&str>) -> String {
    let words = words.unwrap_or_default().trim();
    if words.is_empty() {
        return String::new();
    }
    let mut start = words.len().saturating_sub(WORDS_MAX);
    while !words.is_char_boundary(start) {
        start += 1;
    }
    format!(": {}", &words[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(status: Value, expected: Option<(Reason, &str)>) {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "demo-broker-0"}, "status": status}),
        )
        .expect("a pod");
        let found = trouble(&pod);
        let found = found
            .as_ref()
            .map(|found| (found.reason, found.message.as_str()));
        assert_eq!(found, expected);
    }

    fn container(state: Value, last: Value) -> Value {
        json!({"containerStatuses": [{
            "name": "broker", "image": "", "imageID": "", "ready": false, "restartCount": 2, "state": state,
            "lastState": last,
        }]})
    }

    #[test]
    fn says_who_waits_for_what() {
        check(json!({}), None);
        check(container(json!({"running": {}}), json!({})), None);
        check(
            container(
                json!({"waiting": {"reason": "ContainerCreating"}}),
                json!({}),
            ),
            None,
        );
        check(
            json!({"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }]}),
            Some((
                Reason::PodUnschedulable,
                "pod demo-broker-0 finds no node since 2026-01-02T03:04:05Z: 0/1 nodes are available",
            )),
        );
        check(
            container(
                json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
                json!({}),
            ),
            Some((
                Reason::PodFailing,
                "pod demo-broker-0: container broker cannot start, ErrImagePull: not found",
            )),
        );
        check(
            container(
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}),
                json!({"terminated": {"exitCode": 1, "message": "cluster.id is wrong\n"}}),
            ),
            Some((
                Reason::PodFailing,
                "pod demo-broker-0: container broker ends again and again (3 starts), last with code 1: cluster.id is wrong",
            )),
        );
    }
}
