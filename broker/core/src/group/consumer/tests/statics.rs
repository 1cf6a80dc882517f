//! Static members: those that come back under another member id.

use std::time::Duration;

use super::world::{Client, World, told};
use crate::error::ErrorKind;
use crate::group::consumer::ConsumerHeartbeat;

fn of_instance(id: &str, instance: &str) -> Client {
    Client {
        instance_id: Some(instance.to_owned()),
        ..Client::new(id, &["a"])
    }
}

fn away(client: &Client) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        member_epoch: -2,
        ..client.heartbeat()
    }
}

#[test]
fn who_comes_back_has_what_it_had_and_nobody_else_notices() {
    let mut world = World::new(&[4]);
    let mut clients = [of_instance("m1", "one"), Client::new("m2", &["a"])];
    world.settle(&mut clients);
    let had = clients[0].owned.clone();
    let epoch = world.group.describe().epoch;
    let reply = world.ask(&away(&clients[0])).expect("away");
    assert_eq!(reply.member_epoch, -2);
    let written = world.log.len();
    world.beat(&mut clients[1]).expect("a member");
    assert_eq!(world.log.len(), written);

    let mut back = of_instance("m3", "one");
    world.beat(&mut back).expect("the same member");
    assert_eq!((back.owned.clone(), back.epoch), (had, epoch));
    assert_eq!(world.group.describe().epoch, epoch);
    let refused = world.ask(&clients[0].heartbeat());
    let refused = refused.map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::FencedInstanceId));
}

#[test]
fn an_instance_that_has_not_left_is_nobody_elses() {
    let mut world = World::new(&[4]);
    let mut one = of_instance("m1", "one");
    world.beat(&mut one).expect("a member");
    let refused = world.ask(&of_instance("m2", "one").heartbeat());
    let refused = refused.map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::UnreleasedInstanceId));
    let refused = world.ask(&away(&of_instance("m2", "one")));
    let refused = refused.map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::FencedInstanceId));
    let refused = world.ask(&away(&of_instance("m2", "two")));
    let refused = refused.map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::UnknownMemberId));
}

#[test]
fn the_same_member_may_come_back_too() {
    let mut world = World::new(&[4]);
    let mut one = of_instance("m1", "one");
    world.beat(&mut one).expect("a member");
    world.ask(&away(&one)).expect("away");
    let mut back = of_instance("m1", "one");
    world.beat(&mut back).expect("the same member");
    assert_eq!(told(&back.owned), "1.0 1.1 1.2 1.3");
}

#[test]
fn who_stays_away_for_a_session_is_put_out() {
    let mut world = World::new(&[4]);
    let mut clients = [of_instance("m1", "one"), Client::new("m2", &["a"])];
    world.settle(&mut clients);
    world.ask(&away(&clients[0])).expect("away");
    world.pass(Duration::from_secs(40));
    world.beat(&mut clients[1]).expect("a member");
    world.pass(Duration::from_secs(10));
    world.beat(&mut clients[1]).expect("a member");
    assert_eq!(told(&clients[1].owned), "1.0 1.1 1.2 1.3");
}

#[test]
fn who_comes_back_has_one_vote_for_the_assignor() {
    let mut world = World::new(&[2, 2]);
    let mut clients = [of_instance("m1", "one"), Client::new("m2", &["a"])];
    world.settle(&mut clients);
    let votes = |client: &Client, assignor: &str| ConsumerHeartbeat {
        server_assignor: Some(assignor.to_owned()),
        ..client.heartbeat()
    };
    world.ask(&votes(&clients[0], "range")).expect("a member");
    world.ask(&votes(&clients[1], "uniform")).expect("a member");
    world.settle(&mut clients);
    let before = world.group.describe();
    assert_eq!(before.assignor, "uniform", "the first of as many votes");
    world.ask(&away(&clients[0])).expect("away");
    let back = votes(&of_instance("m3", "one"), "range");
    world.ask(&back).expect("the same member");
    let now = world.group.describe();
    assert_eq!((now.assignor, now.epoch), ("uniform", before.epoch));
}

#[test]
fn an_instance_id_comes_with_the_join_only() {
    let mut world = World::new(&[4]);
    let mut one = Client::new("m1", &["a"]);
    world.beat(&mut one).expect("a member");
    one.instance_id = Some("one".to_owned());
    let refused = world.ask(&one.heartbeat()).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::UnknownMemberId));
}
