//! The objects of one kind as the watches last told, by namespace and name, and which watches have told all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;

use crate::object::ObjectKey;

/// A namespace that is watched; none stands for all of them.
pub(super) type Scope = Option<String>;

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Cache<K> {
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    waiting: BTreeSet<Scope>,
    /// Why the objects cannot be watched, if they cannot.
    unavailable: Option<String>,
}

impl<K: Resource> Cache<K> {
    /// An empty cache that is complete once each of the scopes was listed.
    pub(super) fn new(scopes: &[Scope]) -> Self {
        Self {
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                waiting: scopes.iter().cloned().collect(),
                unavailable: None,
            }),
        }
    }

    /// One object.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.state().objects.get(key).cloned()
    }

    /// The objects of a namespace, by name.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = ObjectKey::new(Some(namespace), Some(""));
        self.state()
            .objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// All objects.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.state().objects.values().cloned().collect()
    }

    /// Takes an object as it is now and returns it as it was.
    pub(super) fn put(&self, object: K) -> Option<Arc<K>> {
        self.state()
            .objects
            .insert(key_of(&object), Arc::new(object))
    }

    /// Takes away an object.
    pub(super) fn remove(&self, object: &K) -> Option<Arc<K>> {
        self.state().objects.remove(&key_of(object))
    }

    /// Takes all objects of a scope; others of that scope are gone. Returns those that came, changed or went.
    pub(super) fn replace(&self, scope: &Scope, objects: Vec<K>) -> Vec<Arc<K>> {
        let mut state = self.state();
        state.waiting.remove(scope);
        state.unavailable = None;
        let objects: BTreeMap<ObjectKey, Arc<K>> = objects
            .into_iter()
            .map(|object| (key_of(&object), Arc::new(object)))
            .collect();
        let in_scope = |key: &ObjectKey| scope.as_ref().is_none_or(|scope| key.namespace == *scope);
        let mut changed = Vec::new();
        state.objects.retain(|key, object| {
            let stays = !in_scope(key) || objects.contains_key(key);
            if !stays {
                changed.push(Arc::clone(object));
            }
            stays
        });
        for (key, object) in objects {
            changed.push(Arc::clone(&object));
            state.objects.insert(key, object);
        }
        changed
    }

    /// The objects of a scope cannot be watched and are not waited for.
    pub(super) fn set_unavailable(&self, scope: &Scope, why: String) {
        let mut state = self.state();
        state.waiting.remove(scope);
        state.unavailable = Some(why);
    }

    /// Why the objects cannot be watched, if they cannot.
    pub(super) fn unavailable(&self) -> Option<String> {
        self.state().unavailable.clone()
    }

    /// Whether every scope was listed.
    pub(super) fn is_complete(&self) -> bool {
        self.state().waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Every change of the state is complete before something that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Namespace and name of an object.
pub(super) fn key_of<K: Resource>(object: &K) -> ObjectKey {
    let meta = object.meta();
    ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::ObjectMeta;

    fn pod(namespace: &str, name: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| key_of(pod.as_ref()).name).collect()
    }

    #[test]
    fn listing_a_scope_leaves_the_others() {
        let scopes = [Some("a".to_owned()), Some("b".to_owned())];
        let cache = Cache::new(&scopes);
        cache.replace(&scopes[0], vec![pod("a", "x"), pod("a", "y")]);
        assert!(!cache.is_complete());
        cache.replace(&scopes[1], vec![pod("b", "z")]);
        assert!(cache.is_complete());
        let changed = cache.replace(&scopes[0], vec![pod("a", "y")]);
        assert_eq!(names(&changed), ["x", "y"]);
        assert_eq!(names(&cache.all()), ["y", "z"]);
        assert_eq!(names(&cache.in_namespace("b")), ["z"]);
        assert!(cache.in_namespace("").is_empty());
    }
}
