//! In words for logs, refusals and pages: how brokers stand, and why nobody leads a partition.

use super::image::Image;
use super::record::Partition;
use crate::ids::BrokerId;

/// How a broker stands, as people call it.
pub fn standing(image: &Image, id: BrokerId) -> &'static str {
    match image.broker(id) {
        None => "not registered",
        Some(broker) if broker.fenced => "fenced",
        Some(broker) if broker.in_controlled_shutdown => "shutting down",
        Some(_) => "active",
    }
}

/// Brokers with their standing: `1 (fenced), 2 (active)`.
pub fn named_with_standing(image: &Image, brokers: &[BrokerId]) -> String {
    let named = brokers
        .iter()
        .map(|id| format!("{id} ({})", standing(image, *id)));
    named.collect::<Vec<_>>().join(", ")
}

/// Why nobody leads the partition and who would have to come back; `None` if somebody leads.
pub fn why_leaderless(image: &Image, state: &Partition) -> Option<String> {
    if state.leader.is_some() {
        return None;
    }
    let eligible: Vec<BrokerId> = state.isr.iter().chain(&state.elr).copied().collect();
    let last = state
        .last_known_leader
        .filter(|id| state.replicas.contains(id));
    Some(if !eligible.is_empty() {
        format!(
            "only these replicas have every acknowledged record: {}; the first that is active will lead",
            named_with_standing(image, &eligible)
        )
    } else if let Some(last) = last {
        format!(
            "no replica can prove that it has every acknowledged record; the last leader will lead when it is active: {}",
            named_with_standing(image, &[last])
        )
    } else {
        format!(
            "no replica can prove that it has every acknowledged record; an unclean election can choose among {}",
            named_with_standing(image, &state.replicas)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BrokerEpoch, Incarnation};
    use crate::metadata::Record;

    fn image() -> Image {
        let register = |id: i32, fenced: bool| Record::RegisterBroker {
            broker: BrokerId(id),
            epoch: BrokerEpoch(1),
            incarnation: Incarnation([id as u8; 16]),
            directories: Vec::new(),
            listeners: Vec::new(),
            rack: None,
            fenced,
        };
        Image::replay(&[register(1, true), register(2, false)]).unwrap()
    }

    #[test]
    fn a_partition_without_a_leader_says_who_is_missing() {
        let image = image();
        let check = |change: &dyn Fn(&mut Partition), expected: Option<&str>| {
            let mut state = Partition {
                replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
                ..Partition::default()
            };
            change(&mut state);
            assert_eq!(why_leaderless(&image, &state).as_deref(), expected);
        };
        check(&|state| state.leader = Some(BrokerId(2)), None);
        check(
            &|state| state.elr = vec![BrokerId(1), BrokerId(3)],
            Some(
                "only these replicas have every acknowledged record: 1 (fenced), 3 (not registered); \
                 the first that is active will lead",
            ),
        );
        check(
            &|state| state.last_known_leader = Some(BrokerId(1)),
            Some(
                "no replica can prove that it has every acknowledged record; the last leader will lead when it is \
                 active: 1 (fenced)",
            ),
        );
        check(
            &|_| {},
            Some(
                "no replica can prove that it has every acknowledged record; an unclean election can choose among \
                 1 (fenced), 2 (active), 3 (not registered)",
            ),
        );
    }
}
