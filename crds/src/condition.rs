//! Status conditions in the shape of Kubernetes' API conventions, and how a new observation joins the old ones.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether what a condition's type names holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold; the reason says why.
    False,
    /// It has not been observed yet.
    Unknown,
}

/// One observation about the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, for example Ready.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64))]
    pub type_: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Why, as one word for programs.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// Why and what to do about it, as a sentence for people.
    pub message: String,
    /// The metadata.generation that this was observed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When status last changed.
    pub last_transition_time: Time,
}

/// Puts an observation into the list of its object: replaced by type, with the transition time kept while the
/// status stays the same, so that an unchanged world writes an unchanged status.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: impl Into<String>,
    observed_generation: Option<i64>,
    now: Timestamp,
) {
    let message = message.into();
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == type_)
    {
        Some(condition) => {
            if condition.status != status {
                condition.status = status;
                condition.last_transition_time = Time(now);
            }
            condition.reason = reason.to_owned();
            condition.message = message;
            condition.observed_generation = observed_generation;
        }
        None => conditions.push(Condition {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            observed_generation,
            last_transition_time: Time(now),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("small number")
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        let mut set = |status, reason: &str, now| {
            set_condition(&mut conditions, "Ready", status, reason, "", Some(1), now);
            (
                conditions[0].last_transition_time.0,
                conditions[0].reason.clone(),
                conditions.len(),
            )
        };
        let starting = set(ConditionStatus::False, "Starting", at(1));
        assert_eq!(starting, (at(1), "Starting".to_owned(), 1));
        let waiting = set(ConditionStatus::False, "Waiting", at(2));
        assert_eq!(waiting, (at(1), "Waiting".to_owned(), 1));
        let ready = set(ConditionStatus::True, "Ready", at(3));
        assert_eq!(ready, (at(3), "Ready".to_owned(), 1));
    }
}
