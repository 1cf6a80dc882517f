//! What becomes of the recorded directories of voters.

use super::cluster::Cluster;
use crate::ids::{BrokerId, DirectoryId};

const A: Option<DirectoryId> = Some(DirectoryId([1; 16]));
const B: Option<DirectoryId> = Some(DirectoryId([2; 16]));

fn directories(cluster: &Cluster) -> Vec<(i32, Option<DirectoryId>)> {
    let voters = cluster.image().voters();
    voters.map(|(id, voter)| (id.0, voter.directory)).collect()
}

#[test]
fn a_directory_is_recorded_once_and_replaced_only_on_purpose() {
    let mut cluster = Cluster::new(1);
    let founders = [(BrokerId(0), A), (BrokerId(1), None)];
    let decision = cluster.controller.record_voters(&founders);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, A), (1, None)]);
    let since = cluster.image().voter(BrokerId(0)).unwrap().since;
    assert_eq!(since, cluster.index());

    let heard = [(BrokerId(0), B), (BrokerId(1), B)];
    let decision = cluster.controller.record_voters(&heard);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, A), (1, B)]);

    let decision = cluster.controller.replace_voter(BrokerId(0), B);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, B), (1, B)]);
    let replaced = cluster.image().voter(BrokerId(0)).unwrap().since;
    assert!(replaced > since);
    let again = cluster.controller.replace_voter(BrokerId(0), B);
    assert!(again.records.is_empty());
}
