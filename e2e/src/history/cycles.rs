//! Circles among transactions (G1c): each read something that the next one wrote, and the last one read from the first.
//!
//! Only such reads make edges. What order two writers of a key stand in is no edge: Kafka does not promise that writes of one transaction
//! stay together. Strongly connected components by Tarjan, without recursion; of each one the shortest circle is told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::check::Txn;

/// The shortest circle of each component, as lines of the history.
pub(super) fn cycles(txns: &[Txn]) -> Vec<Vec<u64>> {
    let edges = reads_from(txns);
    components(&edges)
        .into_iter()
        .filter(|component| component.len() > 1)
        .filter_map(|component| shortest(&edges, &component))
        .map(|cycle| cycle.into_iter().map(|txn| txns[txn].line).collect())
        .collect()
}

/// For each transaction, those that it read from.
fn reads_from(txns: &[Txn]) -> Vec<Vec<usize>> {
    let mut writer: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for (number, txn) in txns.iter().enumerate() {
        for (key, value) in &txn.sends {
            writer.insert((key, *value), number);
        }
    }
    let of = |(number, txn): (usize, &Txn)| {
        let from = txn
            .reads
            .iter()
            .filter_map(|(key, value)| writer.get(&(key.as_str(), *value)).copied())
            .filter(|from| *from != number);
        from.collect::<BTreeSet<_>>().into_iter().collect()
    };
    txns.iter().enumerate().map(of).collect()
}

/// What Tarjan's algorithm knows of one node.
#[derive(Clone, Copy, Default)]
struct Node {
    index: Option<usize>,
    low: usize,
    on_stack: bool,
}

fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut nodes = vec![Node::default(); edges.len()];
    let (mut next, mut stack, mut found) = (0, Vec::new(), Vec::new());
    for root in 0..edges.len() {
        if nodes[root].index.is_some() {
            continue;
        }
        // Each entry is a node and how many of its edges were followed.
        let mut calls = vec![(root, 0)];
        while let Some((node, followed)) = calls.pop() {
            if followed == 0 {
                nodes[node] = Node {
                    index: Some(next),
                    low: next,
                    on_stack: true,
                };
                next += 1;
                stack.push(node);
            }
            if let Some(&to) = edges[node].get(followed) {
                calls.push((node, followed + 1));
                match nodes[to].index {
                    None => calls.push((to, 0)),
                    Some(index) if nodes[to].on_stack => {
                        nodes[node].low = nodes[node].low.min(index);
                    }
                    Some(_) => {}
                }
                continue;
            }
            if let Some(&(caller, _)) = calls.last() {
                nodes[caller].low = nodes[caller].low.min(nodes[node].low);
            }
            if nodes[node].index == Some(nodes[node].low) {
                let mut component = Vec::new();
                while let Some(member) = stack.pop() {
                    nodes[member].on_stack = false;
                    component.push(member);
                    if member == node {
                        break;
                    }
                }
                found.push(component);
            }
        }
    }
    found
}

/// The shortest way from the first node of a component back to it.
fn shortest(edges: &[Vec<usize>], component: &[usize]) -> Option<Vec<usize>> {
    let inside: BTreeSet<usize> = component.iter().copied().collect();
    let start = *inside.first()?;
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &to in edges[node].iter().filter(|to| inside.contains(to)) {
            if to == start {
                let mut way = vec![node];
                while let Some(&before) = way.last().and_then(|last| came_from.get(last)) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if let std::collections::btree_map::Entry::Vacant(unseen) = came_from.entry(to) {
                unseen.insert(node);
                queue.push_back(to);
            }
        }
    }
    None
}
