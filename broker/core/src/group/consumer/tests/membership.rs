//! Joining, staying, leaving, being put out.

use std::time::Duration;

use super::world::{Client, World, told};
use crate::error::ErrorKind;
use crate::group::consumer::{ConsumerGroupState, ConsumerHeartbeat, Partitions};

#[test]
fn who_joins_gets_everything_and_a_second_member_half_of_it() {
    let mut world = World::new(&[4]);
    let (mut one, mut two) = (Client::new("m1", &["a"]), Client::new("m2", &["a"]));
    world.beat(&mut one).expect("a member");
    assert_eq!(told(&one.owned), "1.0 1.1 1.2 1.3");
    assert_eq!(world.group.state(), ConsumerGroupState::Stable);

    let reply = world.beat(&mut two).expect("a member");
    assert_eq!((two.epoch, told(&two.owned)), (2, String::new()));
    assert_eq!(reply.assignment, Some(Partitions::new()));
    assert_eq!(world.group.state(), ConsumerGroupState::Reconciling);
    world.beat(&mut one).expect("a member");
    assert_eq!((one.epoch, told(&one.owned).as_str()), (1, "1.0 1.1"));
    // It has given up, and says so; then the other one gets it.
    world.beat(&mut two).expect("a member");
    assert_eq!(told(&two.owned), "");
    world.beat(&mut one).expect("a member");
    world.beat(&mut two).expect("a member");
    assert_eq!((one.epoch, told(&two.owned).as_str()), (2, "1.2 1.3"));
    assert_eq!(world.group.state(), ConsumerGroupState::Stable);
}

#[test]
fn a_heartbeat_that_changes_nothing_writes_nothing_and_tells_nothing() {
    let mut world = World::new(&[2]);
    let mut one = Client::new("m1", &["a"]);
    world.beat(&mut one).expect("a member");
    let written = world.log.len();
    let reply = world.beat(&mut one).expect("a member");
    assert_eq!((world.log.len(), reply.assignment), (written, None));
    one.unsure = true;
    let reply = world.beat(&mut one).expect("a member");
    assert_eq!(world.log.len(), written);
    assert!(reply.assignment.is_some(), "it was asked for");
}

#[test]
fn who_is_not_known_or_names_a_wrong_epoch_must_join_anew() {
    let mut world = World::new(&[2]);
    let mut one = Client::new("m1", &["a"]);
    let mut stranger = Client::new("m2", &["a"]);
    stranger.epoch = 1;
    let kind = |answer: Result<_, crate::error::ApiError>| answer.map_err(|error| error.kind);
    assert_eq!(
        kind(world.ask(&stranger.heartbeat())),
        Err(ErrorKind::UnknownMemberId)
    );
    world.beat(&mut one).expect("a member");
    one.epoch = 2;
    assert_eq!(
        kind(world.ask(&one.heartbeat())),
        Err(ErrorKind::FencedMemberEpoch)
    );
}

#[test]
fn the_epoch_before_is_taken_only_from_who_has_nothing_that_it_may_not_have() {
    let mut world = World::new(&[4]);
    let (mut one, mut two) = (Client::new("m1", &["a"]), Client::new("m2", &["a"]));
    world.beat(&mut one).expect("a member");
    world.beat(&mut two).expect("a member");
    world.beat(&mut one).expect("a member");
    let before = one.clone();
    // The answer with the next epoch is lost.
    world.ask(&one.heartbeat()).expect("a member");
    let mut more = before.heartbeat();
    let topic = *before.owned.keys().next().expect("a topic");
    more.owned
        .as_mut()
        .expect("said")
        .entry(topic)
        .or_default()
        .insert(3);
    let refused = world.ask(&more).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::FencedMemberEpoch));
    let taken = world.ask(&before.heartbeat()).expect("a member");
    assert_eq!(taken.member_epoch, 2);
}

#[test]
fn what_a_member_leaves_goes_to_the_others() {
    let mut world = World::new(&[4]);
    let mut clients = [Client::new("m1", &["a"]), Client::new("m2", &["a"])];
    world.settle(&mut clients);
    let leaving = ConsumerHeartbeat {
        member_epoch: -1,
        ..clients[0].heartbeat()
    };
    let reply = world.ask(&leaving).expect("gone");
    assert_eq!(reply.member_epoch, -1);
    let [_, two] = &mut clients;
    world.beat(two).expect("a member");
    assert_eq!(told(&two.owned), "1.0 1.1 1.2 1.3");
    let last = ConsumerHeartbeat {
        member_epoch: -1,
        ..two.heartbeat()
    };
    world.ask(&last).expect("gone");
    assert_eq!(world.group.state(), ConsumerGroupState::Empty);
    assert_eq!(world.group.next_deadline(), None);
}

#[test]
fn who_is_silent_for_a_session_is_put_out() {
    let mut world = World::new(&[4]);
    let mut clients = [Client::new("m1", &["a"]), Client::new("m2", &["a"])];
    world.settle(&mut clients);
    let [one, two] = &mut clients;
    world.pass(Duration::from_secs(44));
    world.beat(two).expect("a member");
    world.pass(Duration::from_secs(2));
    world.beat(two).expect("a member");
    assert_eq!(told(&two.owned), "1.0 1.1 1.2 1.3");
    let refused = world.beat(one).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::UnknownMemberId));
}

#[test]
fn who_does_not_give_up_in_time_is_put_out() {
    let mut world = World::new(&[4]);
    let (mut one, mut two) = (Client::new("m1", &["a"]), Client::new("m2", &["a"]));
    world.beat(&mut one).expect("a member");
    world.beat(&mut two).expect("a member");
    let keeps = one.heartbeat();
    world.ask(&keeps).expect("told to give up");
    for _ in 0..9 {
        world.pass(Duration::from_secs(1));
        world.ask(&keeps).expect("it may take a while");
    }
    world.pass(Duration::from_secs(1));
    let refused = world.ask(&keeps).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::UnknownMemberId));
    world.beat(&mut two).expect("a member");
    assert_eq!(told(&two.owned), "1.0 1.1 1.2 1.3");
}

#[test]
fn who_gave_up_in_time_and_must_give_up_more_has_its_whole_time_again() {
    let mut world = World::new(&[4]);
    let mut one = Client::new("m1", &["a"]);
    world.beat(&mut one).expect("a member");
    world
        .beat(&mut Client::new("m2", &["a"]))
        .expect("a member");
    // It hears what to give up, and takes its time.
    world.beat(&mut one).expect("a member");
    world.pass(Duration::from_secs(9));
    world
        .beat(&mut Client::new("m3", &["a"]))
        .expect("a member");
    // It has given up, and is told to give up another one.
    world.beat(&mut one).expect("a member");
    world.pass(Duration::from_secs(9));
    world.beat(&mut one).expect("still a member");
}

#[test]
fn a_loaded_group_gives_its_members_a_whole_session() {
    let mut world = World::new(&[4]);
    let mut clients = [Client::new("m1", &["a"])];
    world.settle(&mut clients);
    world.now += Duration::from_secs(600);
    let mut loaded = crate::group::consumer::ConsumerGroup::default();
    for record in &world.log {
        loaded.apply(record);
    }
    loaded.handle_loaded(world.now, &world.settings);
    world.group = loaded;
    world.pass(Duration::from_secs(44));
    world.beat(&mut clients[0]).expect("still a member");
    world.pass(Duration::from_secs(45));
    assert_eq!(world.group.state(), ConsumerGroupState::Empty);
}

#[test]
fn a_full_group_takes_nobody() {
    let mut world = World::new(&[4]);
    world.settings.group_size_max = 1;
    let mut one = Client::new("m1", &["a"]);
    world.beat(&mut one).expect("a member");
    let refused = world.ask(&Client::new("m2", &["a"]).heartbeat());
    let refused = refused.map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::GroupMaxSizeReached));
    world.beat(&mut one).expect("it is in already");
}

#[test]
fn most_members_decide_on_the_assignor() {
    let mut world = World::new(&[2, 2]);
    let mut clients = [
        Client::new("m1", &["a", "b"]),
        Client::new("m2", &["a", "b"]),
    ];
    world.settle(&mut clients);
    assert_eq!(world.group.describe().assignor, "uniform");
    let epoch = world.group.describe().epoch;
    for client in &clients {
        let request = ConsumerHeartbeat {
            server_assignor: Some("range".to_owned()),
            ..client.heartbeat()
        };
        world.ask(&request).expect("a member");
    }
    let now = world.group.describe();
    assert_eq!((now.assignor, now.epoch), ("range", epoch + 1));
    let targets = now.members.iter().map(|member| told(&member.target));
    assert_eq!(targets.collect::<Vec<_>>(), ["1.0 2.0", "1.1 2.1"]);
}

#[test]
fn topics_that_come_and_grow_are_given_at_the_next_heartbeat() {
    let mut world = World::new(&[2]);
    let mut one = Client::new("m1", &["a", "b"]);
    world.beat(&mut one).expect("a member");
    assert_eq!(told(&one.owned), "1.0 1.1");
    world.group.handle_topics_changed();
    let written = world.log.len();
    world.beat(&mut one).expect("a member");
    assert_eq!(world.log.len(), written, "others' topics are not its own");
    let topics = &mut world.topics;
    topics.insert("b".to_owned(), (crate::ids::TopicId([2; 16]), 1));
    topics.insert("a".to_owned(), (crate::ids::TopicId([1; 16]), 3));
    world.group.handle_topics_changed();
    world.beat(&mut one).expect("a member");
    assert_eq!(told(&one.owned), "1.0 1.1 1.2 2.0");
}

#[test]
fn requests_that_say_too_little_or_nonsense_are_refused() {
    let joining = Client::new("m1", &["a"]).heartbeat();
    joining.check().expect("all that is needed");
    let wrong = [
        ConsumerHeartbeat {
            member_id: String::new(),
            ..joining.clone()
        },
        ConsumerHeartbeat {
            rebalance_timeout_ms: None,
            ..joining.clone()
        },
        ConsumerHeartbeat {
            owned: None,
            ..joining.clone()
        },
        ConsumerHeartbeat {
            subscribed_topic_names: None,
            ..joining.clone()
        },
        ConsumerHeartbeat {
            instance_id: Some(String::new()),
            ..joining.clone()
        },
        ConsumerHeartbeat {
            rack_id: Some(String::new()),
            ..joining.clone()
        },
        ConsumerHeartbeat {
            member_epoch: -2,
            ..joining.clone()
        },
        ConsumerHeartbeat {
            member_epoch: -3,
            ..joining.clone()
        },
    ];
    for request in wrong {
        let kind = request.check().map_err(|error| error.kind);
        assert_eq!(kind, Err(ErrorKind::InvalidRequest), "{request:?}");
    }
    let unknown = ConsumerHeartbeat {
        server_assignor: Some("sticky".to_owned()),
        ..joining
    };
    let kind = unknown.check().map_err(|error| error.kind);
    assert_eq!(kind, Err(ErrorKind::UnsupportedAssignor));
}
