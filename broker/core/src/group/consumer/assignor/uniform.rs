//! `uniform`: everybody keeps what it has, what is free goes to who has least, and then who has most gives to who has least.
//!
//! In the end nobody has a partition of a topic that another of its subscribers, with at least two fewer, could have instead. Where all
//! subscribe to the same that means: nobody has two more than another; and then no assignment that is as even moves fewer partitions.

use std::collections::{BTreeMap, BTreeSet};

use super::{Partitions, Subscriber, subscribers};
use crate::ids::TopicId;

/// What each member is to have, in the order of `members`.
pub(super) fn assign(members: &[Subscriber], topics: &BTreeMap<TopicId, i32>) -> Vec<Partitions> {
    let mut sharing = Sharing::keep(members, topics);
    sharing.give_free();
    // Each move makes the sum of the squares of the loads smaller, so this ends.
    while sharing.even_out() {}
    sharing.assigned
}

/// Topics with the same subscribers.
struct Class {
    topics: Vec<TopicId>,
    /// The subscribers, by how many partitions they have of all topics.
    by_load: BTreeSet<(usize, usize)>,
}

struct Sharing {
    assigned: Vec<Partitions>,
    /// How many partitions each member has.
    loads: Vec<usize>,
    /// What nobody has.
    free: Partitions,
    /// Those with the fewest subscribers first.
    classes: Vec<Class>,
    /// Each member's classes, by index.
    classes_of: Vec<Vec<usize>>,
}

impl Sharing {
    /// All keep what they have, as far as they subscribe to it and it exists.
    fn keep(members: &[Subscriber], topics: &BTreeMap<TopicId, i32>) -> Self {
        let mut free: Partitions = topics
            .iter()
            .map(|(topic, partitions)| (*topic, (0..*partitions).collect()))
            .collect();
        let mut assigned = vec![Partitions::new(); members.len()];
        let mut loads = vec![0; members.len()];
        for (index, member) in members.iter().enumerate() {
            for (topic, had) in &member.assigned {
                let Some(free) = free.get_mut(topic) else {
                    continue;
                };
                if !member.topics.contains(topic) {
                    continue;
                }
                let had = had.iter().copied();
                let kept: BTreeSet<i32> = had.filter(|partition| free.remove(partition)).collect();
                if !kept.is_empty() {
                    loads[index] += kept.len();
                    assigned[index].insert(*topic, kept);
                }
            }
        }
        let mut sharing = Self {
            assigned,
            loads,
            free,
            classes: Vec::new(),
            classes_of: vec![Vec::new(); members.len()],
        };
        sharing.classify(members);
        sharing
    }

    fn classify(&mut self, members: &[Subscriber]) {
        let mut topics_of: BTreeMap<Vec<usize>, Vec<TopicId>> = BTreeMap::new();
        for (topic, subscribers) in subscribers(members) {
            topics_of.entry(subscribers).or_default().push(topic);
        }
        let mut classes: Vec<(Vec<usize>, Vec<TopicId>)> = topics_of.into_iter().collect();
        // What few can have is given first; the others fill up what that leaves uneven.
        classes.sort_by_key(|(subscribers, _)| subscribers.len());
        for (index, (subscribers, topics)) in classes.into_iter().enumerate() {
            for member in &subscribers {
                self.classes_of[*member].push(index);
            }
            let by_load = subscribers.into_iter();
            self.classes.push(Class {
                topics,
                by_load: by_load.map(|member| (self.loads[member], member)).collect(),
            });
        }
    }

    fn give_free(&mut self) {
        for class in 0..self.classes.len() {
            for topic in self.classes[class].topics.clone() {
                for partition in self.free.remove(&topic).unwrap_or_default() {
                    if let Some(&(_, least)) = self.classes[class].by_load.first() {
                        self.give(topic, partition, least);
                    }
                }
            }
        }
    }

    /// Lets everybody give, who has most first, and says whether anybody did.
    fn even_out(&mut self) -> bool {
        let loads = self.loads.iter().copied().enumerate();
        let mut giving: BTreeSet<(usize, usize)> =
            loads.map(|(member, load)| (load, member)).collect();
        let mut moved = false;
        while let Some((load, giver)) = giving.pop_last() {
            let Some((topic, taker)) = self.taker(giver) else {
                continue;
            };
            moved = true;
            giving.remove(&(self.loads[taker], taker));
            self.move_one(topic, giver, taker);
            giving.insert((load - 1, giver));
            giving.insert((self.loads[taker], taker));
        }
        moved
    }

    /// Who has least of all that could have something of this member's, if that is at least two fewer, and of which topic.
    fn taker(&self, giver: usize) -> Option<(TopicId, usize)> {
        let mut found: Option<(usize, usize, TopicId)> = None;
        for class in &self.classes_of[giver] {
            let class = &self.classes[*class];
            let mut topics = class.topics.iter();
            let has = topics.find(|topic| self.assigned[giver].contains_key(topic));
            if let (Some(topic), Some(&(load, least))) = (has, class.by_load.first())
                && found.is_none_or(|(fewest, ..)| load < fewest)
            {
                found = Some((load, least, *topic));
            }
        }
        let (load, taker, topic) = found?;
        (self.loads[giver] >= load + 2).then_some((topic, taker))
    }

    fn give(&mut self, topic: TopicId, partition: i32, member: usize) {
        let has = self.assigned[member].entry(topic).or_default();
        has.insert(partition);
        self.set_load(member, self.loads[member] + 1);
    }

    /// Moves the last partition of a topic that a member has.
    fn move_one(&mut self, topic: TopicId, from: usize, to: usize) {
        let Some(has) = self.assigned[from].get_mut(&topic) else {
            return;
        };
        let last = has.pop_last();
        if has.is_empty() {
            self.assigned[from].remove(&topic);
        }
        if let Some(partition) = last {
            self.set_load(from, self.loads[from] - 1);
            self.give(topic, partition, to);
        }
    }

    fn set_load(&mut self, member: usize, load: usize) {
        for class in &self.classes_of[member] {
            let by_load = &mut self.classes[*class].by_load;
            by_load.remove(&(self.loads[member], member));
            by_load.insert((load, member));
        }
        self.loads[member] = load;
    }
}
