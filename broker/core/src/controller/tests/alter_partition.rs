//! AlterPartition: each row of its table.

use super::cluster::{Cluster, show};
use crate::controller::{AlterPartition, AlterPartitions};
use crate::error::ErrorKind;
use crate::ids::{BrokerEpoch, BrokerId, TopicId, TopicPartition};

/// A partition on 0, 1, 2 led by 0 in leader epoch 2 and partition epoch 5, with ISR 0, 1; broker 3 has no replica and broker 4 is fenced, with
/// a replica.
fn cluster() -> (Cluster, TopicPartition) {
    let mut cluster = Cluster::new(5);
    let partition = cluster.topic("a", &[0, 1, 2, 4]);
    cluster.fence(4);
    cluster.fence(0);
    cluster.unfence(0);
    cluster.propose_isr(partition, &[1, 2, 0]).unwrap();
    let decision = cluster.controller.elect_leaders(
        crate::controller::ElectionType::Preferred,
        Some(&[partition]),
    );
    cluster.commit(decision);
    cluster.propose_isr(partition, &[0, 1]).unwrap();
    let epochs = cluster.epochs(partition);
    assert_eq!((epochs.0.0, epochs.1.0), (2, 5));
    assert_eq!(cluster.show(partition), "0/0,1/");
    (cluster, partition)
}

#[test]
fn each_row_of_the_table() {
    let check = |sender: i32,
                 leader_epoch: i32,
                 partition_epoch: i32,
                 isr: &[i32],
                 expected: Result<&str, ErrorKind>| {
        let (mut cluster, partition) = cluster();
        let epoch = |id: &i32| {
            cluster
                .image()
                .broker(BrokerId(*id))
                .map_or(BrokerEpoch(-1), |broker| broker.epoch)
        };
        let proposal = AlterPartition {
            partition,
            leader_epoch: leader_epoch.into(),
            partition_epoch: partition_epoch.into(),
            new_isr: isr.iter().map(|id| (BrokerId(*id), epoch(id))).collect(),
        };
        let before = cluster.index();
        let result = cluster.alter(sender, proposal);
        let result = result.map(|state| show(&state.isr));
        assert_eq!(
            result,
            expected.map(str::to_owned),
            "{sender} {leader_epoch} {partition_epoch} {isr:?}"
        );
        let changes = expected.is_ok() && isr != [0, 1] && isr != [1, 0];
        assert_eq!(cluster.index() - before, i64::from(changes));
    };
    check(0, 2, 5, &[0, 1, 2], Ok("0,1,2"));
    check(0, 2, 5, &[0], Ok("0"));
    check(0, 3, 5, &[0, 1, 2], Err(ErrorKind::NotController));
    check(0, 2, 6, &[0, 1, 2], Err(ErrorKind::NotController));
    check(0, 1, 5, &[0, 1, 2], Err(ErrorKind::FencedLeaderEpoch));
    check(0, 1, 5, &[0, 1], Err(ErrorKind::FencedLeaderEpoch));
    check(1, 2, 5, &[0, 1, 2], Err(ErrorKind::InvalidRequest));
    // The answer to the change to 0, 1 was lost: the same again is no error.
    check(0, 2, 4, &[0, 1], Ok("0,1"));
    check(0, 2, 5, &[1, 0], Ok("0,1"));
    check(0, 2, 4, &[0, 1, 2], Err(ErrorKind::InvalidUpdateVersion));
    check(0, 2, 5, &[0, 3], Err(ErrorKind::InvalidRequest));
    check(0, 2, 5, &[1, 2], Err(ErrorKind::InvalidRequest));
    check(0, 2, 5, &[], Err(ErrorKind::InvalidRequest));
    check(0, 2, 5, &[0, 1, 1], Err(ErrorKind::InvalidRequest));
    check(0, 2, 5, &[0, 1, 4], Err(ErrorKind::IneligibleReplica));
    check(0, 2, 5, &[0, 1, 9], Err(ErrorKind::InvalidRequest));
}

#[test]
fn a_member_of_an_earlier_registration_is_not_eligible() {
    let check = |epoch: &dyn Fn(BrokerEpoch) -> BrokerEpoch, expected: Option<ErrorKind>| {
        let (mut cluster, partition) = cluster();
        let (leader_epoch, partition_epoch) = cluster.epochs(partition);
        let new_isr = [0, 1, 2].map(|id| (BrokerId(id), epoch(cluster.epoch(id))));
        let proposal = AlterPartition {
            partition,
            leader_epoch,
            partition_epoch,
            new_isr: new_isr.to_vec(),
        };
        assert_eq!(cluster.alter(0, proposal).err(), expected);
    };
    check(&|epoch| epoch, None);
    check(&|_| BrokerEpoch(-1), None);
    check(
        &|epoch| BrokerEpoch(epoch.0 - 1),
        Some(ErrorKind::IneligibleReplica),
    );
}

#[test]
fn unknown_partitions_and_stale_senders_are_refused() {
    let (mut cluster, partition) = cluster();
    let proposal = |partition| AlterPartition {
        partition,
        leader_epoch: 2.into(),
        partition_epoch: 5.into(),
        new_isr: vec![(BrokerId(0), BrokerEpoch(-1))],
    };
    let elsewhere = TopicPartition::new(TopicId([77; 16]), 0);
    assert_eq!(
        cluster.alter(0, proposal(elsewhere)),
        Err(ErrorKind::UnknownTopicId)
    );
    let beyond = TopicPartition::new(partition.topic_id, 1);
    assert_eq!(
        cluster.alter(0, proposal(beyond)),
        Err(ErrorKind::UnknownTopicOrPartition)
    );
    let stale = AlterPartitions {
        broker: BrokerId(0),
        broker_epoch: BrokerEpoch(1),
        partitions: vec![proposal(partition)],
    };
    let refused = cluster
        .controller
        .alter_partitions(&stale)
        .reply
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::StaleBrokerEpoch);
    let twice = AlterPartitions {
        broker: BrokerId(0),
        broker_epoch: cluster.epoch(0),
        partitions: vec![proposal(partition), proposal(partition)],
    };
    let reply = cluster.controller.alter_partitions(&twice).reply.unwrap();
    assert!(reply[0].result.is_ok());
    assert_eq!(reply[1].result, Err(ErrorKind::InvalidRequest));
}
