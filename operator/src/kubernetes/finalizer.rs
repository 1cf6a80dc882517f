//! When an object carries one of our finalizers, which is never longer than there is something to do before it goes.
//! Pure.

use taffrail_crds::DeletionPolicy;

/// Keeps a Topic until its topic is deleted.
pub(super) const TOPIC: &str = "taffrail.io/topic";

/// Keeps a Cluster until its claims are deleted.
pub(super) const STORAGE: &str = "taffrail.io/storage";

/// What to do about a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is as it should be.
    None,
    /// Put it on.
    Add,
    /// Take it off.
    Remove,
}

/// What a Topic's finalizer depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopicState {
    /// Whether the finalizer is on it.
    pub(super) has: bool,
    /// Whether the object is being deleted.
    pub(super) deleting: bool,
    /// What it says should become of the topic.
    pub(super) policy: DeletionPolicy,
    /// Whether its Cluster is there and stays.
    pub(super) cluster_stays: bool,
    /// Whether it has the topic: refused Topics have none.
    pub(super) owns_topic: bool,
    /// Whether the brokers said that its topic is not there, or not its own any more.
    pub(super) topic_gone: bool,
}

/// What to do about a Topic's finalizer.
pub(super) fn of_topic(state: TopicState) -> Change {
    let wanted = state.cluster_stays
        && state.policy == DeletionPolicy::Delete
        && if state.deleting {
            // Nothing may be put on an object that goes, and nothing is left to do once the topic is gone.
            state.has && !state.topic_gone
        } else {
            state.owns_topic
        };
    change(state.has, wanted)
}

/// What to do about a Cluster's finalizer. `claims_gone` is whether nothing is left of its pods and claims.
pub(super) fn of_cluster(
    has: bool,
    deleting: bool,
    policy: DeletionPolicy,
    claims_gone: bool,
) -> Change {
    let wanted = policy == DeletionPolicy::Delete && (!deleting || (has && !claims_gone));
    change(has, wanted)
}

fn change(has: bool, wanted: bool) -> Change {
    match (has, wanted) {
        (false, true) => Change::Add,
        (true, false) => Change::Remove,
        (true, true) | (false, false) => Change::None,
    }
}

/// The list of finalizers after a change.
pub(super) fn changed(finalizers: &[String], name: &str, change: Change) -> Vec<String> {
    let mut list: Vec<String> = finalizers.to_vec();
    match change {
        Change::None => {}
        Change::Add => list.push(name.to_owned()),
        Change::Remove => list.retain(|finalizer| finalizer != name),
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeletionPolicy::{Delete, Retain};

    #[test]
    fn topic_keeps_it_only_while_there_is_something_to_delete() {
        let check = |has, deleting, policy, cluster_stays, owns_topic, topic_gone, expected| {
            let state = TopicState {
                has,
                deleting,
                policy,
                cluster_stays,
                owns_topic,
                topic_gone,
            };
            assert_eq!(of_topic(state), expected, "{state:?}");
        };
        for (has, expected) in [(false, Change::None), (true, Change::Remove)] {
            // Retain has nothing to delete; neither has a Topic without a Cluster, or one that was refused.
            check(has, false, Retain, true, true, false, expected);
            check(has, true, Retain, true, true, false, expected);
            check(has, false, Delete, false, true, false, expected);
            check(has, true, Delete, false, true, false, expected);
            check(has, false, Delete, true, false, false, expected);
            check(has, true, Delete, true, true, true, expected);
        }
        check(false, false, Delete, true, true, false, Change::Add);
        check(true, false, Delete, true, true, false, Change::None);
        // A topic that does not exist yet is no reason to take it off again.
        check(true, false, Delete, true, true, true, Change::None);
        check(true, true, Delete, true, false, false, Change::None);
        check(false, true, Delete, true, true, false, Change::None);
    }

    #[test]
    fn cluster_keeps_it_until_its_claims_are_gone() {
        for (has, deleting, policy, claims_gone, expected) in [
            (false, false, Retain, false, Change::None),
            (true, false, Retain, false, Change::Remove),
            (true, true, Retain, false, Change::Remove),
            (false, false, Delete, false, Change::Add),
            (true, false, Delete, true, Change::None),
            (true, true, Delete, false, Change::None),
            (true, true, Delete, true, Change::Remove),
            (false, true, Delete, false, Change::None),
        ] {
            assert_eq!(of_cluster(has, deleting, policy, claims_gone), expected);
        }
    }

    #[test]
    fn finalizers_of_others_stay() {
        let list = ["a".to_owned(), TOPIC.to_owned()];
        assert_eq!(changed(&list, TOPIC, Change::Remove), ["a"]);
        assert_eq!(changed(&list[..1], TOPIC, Change::Add), list);
    }
}
