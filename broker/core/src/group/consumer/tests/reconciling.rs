//! Whatever happens to a group, nobody has what another one has, everybody gets to the target, and the log says the same as the group.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::world::{Client, World};
use crate::group::consumer::{
    ConsumerGroup, ConsumerGroupState, ConsumerHeartbeat, ConsumerRecord,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Event {
    /// Whether its answer arrives.
    Heartbeat(usize, bool),
    Subscribe(usize, Vec<usize>),
    /// It ends without a word, and another one starts.
    Die(usize),
    Leave(usize),
    /// Only static members do.
    LeaveForAWhile(usize),
    Grow(usize),
    Pass(u64),
    /// Another broker takes over.
    Reload,
}

fn event() -> impl Strategy<Value = Event> {
    let client = || 0..5_usize;
    prop_oneof![
        12 => (client(), prop::bool::weighted(0.8)).prop_map(|(client, arrives)| Event::Heartbeat(client, arrives)),
        2 => (client(), prop::collection::vec(0..3_usize, 0..3)).prop_map(|(client, topics)| Event::Subscribe(client, topics)),
        1 => client().prop_map(Event::Die),
        1 => client().prop_map(Event::Leave),
        1 => client().prop_map(Event::LeaveForAWhile),
        1 => (0..3_usize).prop_map(Event::Grow),
        2 => (1..20_u64).prop_map(Event::Pass),
        1 => Just(Event::Reload),
    ]
}

struct Run {
    world: World,
    clients: Vec<Client>,
    born: usize,
}

impl Run {
    fn new() -> Self {
        let mut run = Self {
            world: World::new(&[2, 3, 1]),
            clients: Vec::new(),
            born: 0,
        };
        for place in 0..5 {
            let client = run.newborn(place);
            run.clients.push(client);
        }
        run
    }

    /// The first two places are static members'.
    fn newborn(&mut self, place: usize) -> Client {
        self.born += 1;
        Client {
            instance_id: (place < 2).then(|| format!("instance-{place}")),
            ..Client::new(&format!("member-{}", self.born), &NAMES)
        }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Heartbeat(client, arrives) => self.heartbeat(*client, *arrives),
            Event::Subscribe(client, topics) => {
                let client = &mut self.clients[*client];
                client.topics = topics.iter().map(|one| NAMES[*one].to_owned()).collect();
                client.unsure = true;
            }
            Event::Die(place) => self.clients[*place] = self.newborn(*place),
            Event::Leave(place) => self.leave(*place, -1),
            Event::LeaveForAWhile(place) if *place < 2 => self.leave(*place, -2),
            Event::LeaveForAWhile(_) => {}
            Event::Grow(topic) => {
                if let Some((_, size)) = self.world.topics.get_mut(NAMES[*topic]) {
                    *size += 1;
                }
                self.world.group.handle_topics_changed();
            }
            Event::Pass(seconds) => self.world.pass(Duration::from_secs(*seconds)),
            Event::Reload => {
                let mut loaded = replay(&self.world.log);
                loaded.handle_loaded(self.world.now, &self.world.settings);
                self.world.group = loaded;
            }
        }
    }

    fn heartbeat(&mut self, place: usize, arrives: bool) {
        let client = &mut self.clients[place];
        let answer = self.world.ask(&client.heartbeat());
        use crate::error::ErrorKind::{FencedInstanceId, UnreleasedInstanceId};
        match &answer {
            // The one before it died and is still a member.
            Err(error) if [UnreleasedInstanceId, FencedInstanceId].contains(&error.kind) => {}
            _ if arrives => client.take(&answer),
            _ => client.unsure = true,
        }
    }

    fn leave(&mut self, place: usize, epoch: i32) {
        let request = ConsumerHeartbeat {
            member_epoch: epoch,
            ..self.clients[place].heartbeat()
        };
        // It may not be a member.
        let _ = self.world.ask(&request);
        self.clients[place] = self.newborn(place);
    }

    fn check(&self) {
        let described = self.world.group.describe();
        let mut used = BTreeSet::new();
        for client in &self.clients {
            // Who was put out and has not heard of it uses what it had; its commits are refused.
            let mut members = described.members.iter();
            if !members.any(|member| member.member_id == client.id) {
                continue;
            }
            let current = &self.world.group.current[&client.id];
            for (topic, some) in &client.owned {
                for partition in some {
                    assert!(used.insert((*topic, *partition)), "used by two");
                    let held = [&current.assigned, &current.pending_revocation];
                    let mut held = held.into_iter().filter_map(|held| held.get(topic));
                    let allowed = held.any(|some| some.contains_key(partition));
                    assert!(allowed, "used by a member that may not");
                }
            }
        }
        let mut given = BTreeSet::new();
        for current in self.world.group.current.values() {
            for (topic, some) in current.assigned.iter().chain(&current.pending_revocation) {
                for partition in some.keys() {
                    assert!(given.insert((*topic, *partition)), "given to two");
                }
            }
        }
    }
}

fn replay(log: &[ConsumerRecord]) -> ConsumerGroup {
    let mut group = ConsumerGroup::default();
    for record in log {
        group.apply(record);
    }
    group
}

/// The last record of each key, in the order of the log.
fn compacted(log: &[ConsumerRecord]) -> Vec<ConsumerRecord> {
    let key = |record: &ConsumerRecord| match record {
        ConsumerRecord::Group(_) => (3, String::new()),
        ConsumerRecord::Member(id, _) => (5, id.clone()),
        ConsumerRecord::TargetEpoch(_) => (6, String::new()),
        ConsumerRecord::Target(id, _) => (7, id.clone()),
        ConsumerRecord::Current(id, _) => (8, id.clone()),
    };
    let mut seen = BTreeSet::new();
    let mut kept: Vec<ConsumerRecord> = log
        .iter()
        .rev()
        .filter(|record| seen.insert(key(record)))
        .cloned()
        .collect();
    kept.reverse();
    kept
}

proptest! {
    #[test]
    fn a_group_gets_to_its_target_and_nobody_ever_has_what_another_has(
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut run = Run::new();
        for event in &events {
            run.take(event);
            run.check();
            let live = World::replicated(&run.world.group);
            prop_assert_eq!(&World::replicated(&replay(&run.world.log)), &live);
            prop_assert_eq!(&World::replicated(&replay(&compacted(&run.world.log))), &live);
        }
        // The dead are put out; the living go on.
        for _ in 0..6 {
            run.world.pass(Duration::from_secs(10));
            for client in 0..run.clients.len() {
                run.heartbeat(client, true);
                run.check();
            }
        }
        run.world.settle(&mut run.clients);
        let described = run.world.group.describe();
        prop_assert_eq!(described.state, ConsumerGroupState::Stable);
        prop_assert_eq!(described.members.len(), run.clients.len());
        for client in &run.clients {
            let mut members = described.members.iter();
            let member = members.find(|member| member.member_id == client.id).expect("a member");
            prop_assert_eq!((&member.assigned, &member.target), (&client.owned, &client.owned));
        }
        let used: usize = run.clients.iter().flat_map(|client| client.owned.values()).map(BTreeSet::len).sum();
        let wanted = run.world.topics.iter().filter(|(name, _)| run.clients.iter().any(|client| client.topics.contains(name)));
        let wanted: i32 = wanted.map(|(_, (_, size))| size).sum();
        prop_assert_eq!(used, wanted as usize);
    }
}
