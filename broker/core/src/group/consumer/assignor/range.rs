//! `range`: each topic in ranges of consecutive partitions, one for each of its subscribers.

use std::collections::BTreeMap;

use super::{Partitions, Subscriber, subscribers};
use crate::ids::TopicId;

/// What each member is to have, in the order of `members`.
///
/// Static members come first, by their instance ids, so that they keep their ranges when they come back with other member ids; then all
/// others by member id. The first of them get one partition more where it does not come out even.
pub(super) fn assign(members: &[Subscriber], topics: &BTreeMap<TopicId, i32>) -> Vec<Partitions> {
    let mut assigned = vec![Partitions::new(); members.len()];
    for (topic, mut sharing) in subscribers(members) {
        sharing.sort_by_key(|index| rank(&members[*index]));
        let partitions = topics.get(&topic).copied().unwrap_or(0).max(0) as usize;
        let (share, extra) = (partitions / sharing.len(), partitions % sharing.len());
        let mut next = 0;
        for (position, index) in sharing.into_iter().enumerate() {
            let end = next + share + usize::from(position < extra);
            if next < end {
                let range = (next as i32)..(end as i32);
                assigned[index].insert(topic, range.collect());
            }
            next = end;
        }
    }
    assigned
}

fn rank(member: &Subscriber) -> (bool, Option<&str>, &str) {
    let instance = member.instance_id.as_deref();
    (instance.is_none(), instance, &member.id)
}
