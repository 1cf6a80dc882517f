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

    /// Takes what a watch told of an object and returns the object as it was. What an answer told already, in a newer
    /// version, stays: the watch comes to it.
    pub(super) fn told(&self, object: K) -> Option<Arc<K>> {
        let mut state = self.state();
        let key = key_of(&object);
        let before = state.objects.get(&key).cloned();
        if !before.as_deref().is_some_and(|old| is_newer(old, &object)) {
            state.objects.insert(key, Arc::new(object));
        }
        before
    }

    /// Takes the answer of a write, which may be older than what the watch told since: only over an older version of
    /// the same object. One that is not here is new or gone again, and which of both the watch will tell.
    pub(super) fn put(&self, object: K) {
        let mut state = self.state();
        let key = key_of(&object);
        if let Some(old) = state.objects.get_mut(&key)
            && is_newer(&object, old.as_ref())
        {
            *old = Arc::new(object);
        }
    }

    /// Takes away an object, but not another of its name.
    pub(super) fn remove(&self, object: &K) -> Option<Arc<K>> {
        let mut state = self.state();
        let key = key_of(object);
        if state.objects.get(&key)?.meta().uid != object.meta().uid {
            return None;
        }
        state.objects.remove(&key)
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

    /// Whether the scope that a namespace belongs to was listed.
    pub(super) fn is_complete_for(&self, namespace: &str) -> bool {
        let state = self.state();
        let mut waiting = state.waiting.iter();
        !waiting.any(|scope| scope.as_ref().is_none_or(|scope| scope == namespace))
    }

    /// Scopes that were not listed yet.
    pub(super) fn waiting(&self) -> BTreeSet<Scope> {
        self.state().waiting.clone()
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Every change of the state is complete before something that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one is a later version of the very same object as the other. Versions that are no numbers cannot be compared.
fn is_newer<K: Resource>(one: &K, other: &K) -> bool {
    let version = |object: &K| -> Option<u64> {
        let version = object.meta().resource_version.as_ref()?;
        version.parse().ok()
    };
    one.meta().uid == other.meta().uid
        && matches!((version(one), version(other)), (Some(one), Some(other)) if one > other)
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
        assert!(cache.is_complete_for("a") && !cache.is_complete_for("b"));
        assert_eq!(cache.waiting(), BTreeSet::from([scopes[1].clone()]));
        cache.replace(&scopes[1], vec![pod("b", "z")]);
        assert!(cache.is_complete_for("b") && cache.waiting().is_empty());
        let changed = cache.replace(&scopes[0], vec![pod("a", "y")]);
        assert_eq!(names(&changed), ["x", "y"]);
        assert_eq!(names(&cache.all()), ["y", "z"]);
        assert_eq!(names(&cache.in_namespace("b")), ["z"]);
        assert!(cache.in_namespace("").is_empty());
    }

    /// What a watch told of a pod, as uid and version, then what came, and what is in the cache in the end.
    #[test]
    fn answers_change_only_older_versions_of_the_same_object() {
        let version = |told: (&str, &str)| {
            let mut pod = pod("a", "x");
            pod.metadata.uid = Some(told.0.to_owned());
            pod.metadata.resource_version = Some(told.1.to_owned());
            pod
        };
        type Take = fn(&Cache<Pod>, Pod);
        let put: Take = |cache, pod| cache.put(pod);
        let told: Take = |cache, pod| drop(cache.told(pod));
        let gone: Take = |cache, pod| drop(cache.remove(&pod));
        for (before, take, came, expected) in [
            (Some(("u", "9")), put, ("u", "10"), Some(("u", "10"))),
            (Some(("u", "10")), put, ("u", "9"), Some(("u", "10"))),
            // Deleted in the meantime, or deleted and made again.
            (None, put, ("u", "10"), None),
            (Some(("v", "9")), put, ("u", "10"), Some(("v", "9"))),
            (Some(("u", "a")), put, ("u", "b"), Some(("u", "a"))),
            (None, told, ("u", "9"), Some(("u", "9"))),
            (Some(("u", "9")), told, ("u", "10"), Some(("u", "10"))),
            (Some(("u", "10")), told, ("u", "9"), Some(("u", "10"))),
            (Some(("u", "10")), told, ("v", "9"), Some(("v", "9"))),
            (Some(("u", "a")), told, ("u", "b"), Some(("u", "b"))),
            (Some(("u", "9")), gone, ("u", "10"), None),
            (Some(("v", "9")), gone, ("u", "10"), Some(("v", "9"))),
        ] {
            let cache = Cache::new(&[None]);
            cache.replace(&None, before.map(version).into_iter().collect());
            take(&cache, version(came));
            let found = cache.get(&ObjectKey::new(Some("a"), Some("x")));
            let found = found.as_ref().map(|pod| {
                let meta = &pod.metadata;
                (meta.uid.as_deref(), meta.resource_version.as_deref())
            });
            let expected = expected.map(|(uid, version)| (Some(uid), Some(version)));
            assert_eq!(found, expected, "{before:?} {came:?}");
        }
    }
}
