//! Partitions move to other replicas.

use super::cluster::{Cluster, ids, kind, show};
use crate::controller::{OngoingReassignment, Reassignment};
use crate::error::ErrorKind;
use crate::ids::TopicPartition;

fn reassign(
    cluster: &mut Cluster,
    partition: TopicPartition,
    replicas: Option<&[i32]>,
) -> Option<ErrorKind> {
    let request = Reassignment {
        partition,
        replicas: replicas.map(ids),
    };
    let decision = cluster.controller.reassign_partitions(&[request]);
    kind(cluster.commit(decision).pop().unwrap())
}

/// Replicas, then what is added and removed.
fn show_replicas(cluster: &Cluster, partition: TopicPartition) -> String {
    let state = cluster.state(partition);
    format!(
        "{} +{} -{}",
        show(&state.replicas),
        show(&state.adding),
        show(&state.removing)
    )
}

#[test]
fn a_move_completes_when_every_target_is_in_sync() {
    let mut cluster = Cluster::new(5);
    let partition = cluster.topic("a", &[0, 1, 2]);
    assert_eq!(reassign(&mut cluster, partition, Some(&[3, 4, 2])), None);
    assert_eq!(show_replicas(&cluster, partition), "3,4,2,0,1 +3,4 -0,1");
    let list = OngoingReassignment::list(cluster.image(), None);
    assert_eq!(list.len(), 1);
    assert_eq!(
        list,
        OngoingReassignment::list(cluster.image(), Some(&[partition]))
    );
    cluster.propose_isr(partition, &[0, 1, 2, 3]).unwrap();
    assert_eq!(show_replicas(&cluster, partition), "3,4,2,0,1 +3,4 -0,1");
    // The last one completes it; the leader is not among the targets.
    assert_eq!(
        cluster.propose_isr(partition, &[0, 1, 2, 3, 4]),
        Err(ErrorKind::NewLeaderElected)
    );
    assert_eq!(show_replicas(&cluster, partition), "3,4,2 + -");
    assert_eq!(cluster.show(partition), "3/2,3,4/");
    assert_eq!(cluster.epochs(partition).0.0, 1);
    assert!(OngoingReassignment::list(cluster.image(), None).is_empty());
}

#[test]
fn a_leader_that_stays_gets_a_new_epoch_when_replicas_go() {
    let mut cluster = Cluster::new(4);
    let partition = cluster.topic("a", &[0, 1, 2]);
    assert_eq!(reassign(&mut cluster, partition, Some(&[0, 1, 3])), None);
    let state = cluster.propose_isr(partition, &[0, 1, 2, 3]).unwrap();
    assert_eq!(
        (show(&state.replicas), state.leader_epoch.0),
        ("0,1,3".to_owned(), 1)
    );
}

#[test]
fn requests_and_their_replicas() {
    let check =
        |before: &[i32], target: Option<&[i32]>, refused: Option<ErrorKind>, expected: &str| {
            let mut cluster = Cluster::new(5);
            let partition = cluster.topic("a", before);
            assert_eq!(
                reassign(&mut cluster, partition, target),
                refused,
                "{target:?}"
            );
            assert_eq!(show_replicas(&cluster, partition), expected);
        };
    let refused = Some(ErrorKind::InvalidReplicaAssignment);
    check(&[0, 1], Some(&[1, 0]), None, "1,0 + -");
    check(&[0, 1], Some(&[0, 1]), None, "0,1 + -");
    check(&[0, 1, 2], Some(&[2]), None, "2 + -");
    check(&[0], Some(&[0, 1, 2]), None, "0,1,2 +1,2 -");
    check(&[0], Some(&[]), refused, "0 + -");
    check(&[0], Some(&[1, 1]), refused, "0 + -");
    check(&[0], Some(&[7]), refused, "0 + -");
    check(
        &[0],
        None,
        Some(ErrorKind::NoReassignmentInProgress),
        "0 + -",
    );
}

#[test]
fn a_replica_out_of_sync_holds_up_completion() {
    let mut cluster = Cluster::new(4);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.fence(2);
    assert_eq!(reassign(&mut cluster, partition, Some(&[0, 2, 3])), None);
    cluster.propose_isr(partition, &[0, 1, 3]).unwrap();
    assert_eq!(show_replicas(&cluster, partition), "0,2,3,1 +3 -1");
    cluster.unfence(2);
    cluster.propose_isr(partition, &[0, 1, 2, 3]).unwrap();
    assert_eq!(show_replicas(&cluster, partition), "0,2,3 + -");
}

#[test]
fn a_new_target_replaces_one_in_progress() {
    let mut cluster = Cluster::new(5);
    let partition = cluster.topic("a", &[0, 1]);
    assert_eq!(reassign(&mut cluster, partition, Some(&[2, 3])), None);
    assert_eq!(reassign(&mut cluster, partition, Some(&[1, 4])), None);
    assert_eq!(show_replicas(&cluster, partition), "1,4,2,3,0 +4 -2,3,0");
    assert_eq!(reassign(&mut cluster, partition, Some(&[0, 1])), None);
    assert_eq!(show_replicas(&cluster, partition), "0,1 + -");
}

#[test]
fn cancelling_goes_back() {
    let mut cluster = Cluster::new(5);
    let partition = cluster.topic("a", &[0, 1]);
    assert_eq!(reassign(&mut cluster, partition, Some(&[2, 3])), None);
    cluster.propose_isr(partition, &[0, 1, 2]).unwrap();
    assert_eq!(reassign(&mut cluster, partition, None), None);
    assert_eq!(show_replicas(&cluster, partition), "0,1 + -");
    assert_eq!(cluster.show(partition), "0/0,1/");
}

#[test]
fn cancelling_is_refused_if_only_new_replicas_are_in_sync() {
    let mut cluster = Cluster::new(4);
    let partition = cluster.topic("a", &[0, 1]);
    assert_eq!(reassign(&mut cluster, partition, Some(&[2, 3])), None);
    cluster.propose_isr(partition, &[0, 2]).unwrap();
    cluster.fence(0);
    assert_eq!(cluster.show(partition), "2/2/0");
    assert_eq!(
        reassign(&mut cluster, partition, None),
        Some(ErrorKind::InvalidReplicaAssignment)
    );
}

#[test]
fn unknown_and_repeated_partitions_are_refused() {
    let mut cluster = Cluster::new(2);
    let partition = cluster.topic("a", &[0]);
    let unknown = TopicPartition::new(partition.topic_id, 3);
    assert_eq!(
        reassign(&mut cluster, unknown, Some(&[1])),
        Some(ErrorKind::UnknownTopicOrPartition)
    );
    let request = Reassignment {
        partition,
        replicas: Some(ids(&[1])),
    };
    let decision = cluster
        .controller
        .reassign_partitions(&[request.clone(), request]);
    let reply: Vec<_> = decision.reply.into_iter().map(kind).collect();
    assert_eq!(reply, [None, Some(ErrorKind::InvalidRequest)]);
}

#[test]
fn a_partition_that_is_named_twice_is_moved_once() {
    let mut cluster = Cluster::new(4);
    let partition = cluster.topic("a", &[0, 1, 2]);
    let to = |replicas: &[i32]| Reassignment {
        partition,
        replicas: Some(ids(replicas)),
    };
    let requests = [to(&[1, 2, 3]), to(&[0, 2, 3])];
    let decision = cluster.controller.reassign_partitions(&requests);
    let refused: Vec<_> = cluster.commit(decision).into_iter().map(kind).collect();
    assert_eq!(refused, [None, Some(ErrorKind::InvalidRequest)]);
    assert_eq!(show_replicas(&cluster, partition), "1,2,3,0 +3 -0");
}
