//! The committed metadata as the rest of the broker sees it: an image that is swapped as a whole, and the task that
//! makes the broker follow it. Nothing here decides what is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;
use tokio::sync::watch;

use crate::broker::Broker;
use crate::env::Env;

/// How long clients are still told of a broker that was fenced. librdkafka drops a broker that it is not told of, with
/// the partitions that it is just moving from there to their new leader; it then looks for that one only a second later.
/// Twice the pause of its own look.
const TOLD_FOR: Duration = Duration::from_secs(2);

/// The newest committed image, the index up to which it is visible, and the index up to which this broker follows it.
pub(super) struct Published {
    current: RwLock<(u64, Arc<Image>)>,
    visible: watch::Sender<u64>,
    applied: watch::Sender<u64>,
    /// The brokers that were fenced lately, and when; as many as there are brokers at most.
    departed: Mutex<BTreeMap<BrokerId, Instant>>,
    /// The image whose consequences this broker has drawn; locked while it draws those of the next one.
    followed: Mutex<Arc<Image>>,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            current: RwLock::new((0, Arc::default())),
            visible: watch::Sender::new(0),
            applied: watch::Sender::new(0),
            departed: Mutex::default(),
            followed: Mutex::default(),
        }
    }
}

impl Published {
    pub(super) fn image(&self) -> Arc<Image> {
        Arc::clone(
            &self
                .current
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .1,
        )
    }

    /// The image with the last index that it contains.
    pub(super) fn indexed_image(&self) -> (u64, Arc<Image>) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (current.0, Arc::clone(&current.1))
    }

    /// The last index that the image contains.
    pub(super) fn visible_index(&self) -> u64 {
        *self.visible.borrow()
    }

    /// The last index whose consequences this broker has drawn.
    pub(super) fn applied_index(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Does something by the image that this broker follows, which stays the same meanwhile. The newest image may be
    /// ahead of what the replicas here are.
    pub(super) fn with_followed<R>(&self, work: impl FnOnce(&Arc<Image>) -> R) -> R {
        work(&self.followed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a newer image visible. A broker that comes to vote may begin with an older one than it has followed as an
    /// observer; what is committed does not change, so it keeps the newer one meanwhile. One task at a time publishes.
    pub(super) fn publish(&self, index: u64, image: Arc<Image>, now: Instant) {
        if index < self.visible_index() {
            return;
        }
        self.note_departed(&image, now);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (index, image);
        self.visible.send_replace(index);
    }

    /// Before the image is visible: whoever sees it must find who has just left.
    fn note_departed(&self, new: &Image, now: Instant) {
        let old = self.image();
        let serves = |image: &Image, id| image.broker(id).is_some_and(|known| !known.fenced);
        let mut departed = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        departed.retain(|id, at| {
            now.saturating_since(*at) < TOLD_FOR
                && new.broker(*id).is_some_and(|known| known.fenced)
        });
        for broker in old.brokers().filter(|broker| !broker.fenced) {
            if !serves(new, broker.id) {
                departed.insert(broker.id, now);
            }
        }
    }

    /// The brokers that were fenced a moment ago.
    pub(super) fn departed(&self, now: Instant) -> BTreeSet<BrokerId> {
        let departed = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        departed
            .iter()
            .filter(|(_, at)| now.saturating_since(**at) < TOLD_FOR)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Waits until the image contains more than `index`, and gives its index.
    pub(super) async fn changed(&self, index: u64) -> u64 {
        let mut visible = self.visible.subscribe();
        match visible.wait_for(|visible| *visible > index).await {
            Ok(visible) => *visible,
            // The sender lives in self.
            Err(_) => index,
        }
    }

    /// Waits until this broker has followed the image beyond `index`.
    pub(super) async fn applied_beyond(&self, index: u64) {
        let mut applied = self.applied.subscribe();
        // The sender lives in self.
        let _ = applied.wait_for(|applied| *applied > index).await;
    }
}

/// Follows the image. It takes the newest one each time, so that a burst of changes costs one pass.
pub(super) async fn follow<E: Env>(broker: Arc<Broker<E>>) {
    let published = &broker.cluster.published;
    let mut index = 0;
    loop {
        published.changed(index).await;
        let (new_index, new) = published.indexed_image();
        {
            let mut followed = published
                .followed
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            broker.apply_metadata(&followed, &new);
            *followed = new;
        }
        index = new_index;
        published.applied.send_replace(index);
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::{BrokerEpoch, Incarnation};
    use taffrail_core::metadata::Record;

    use super::*;

    fn registration(fenced: bool) -> Record {
        Record::RegisterBroker {
            broker: BrokerId(1),
            epoch: BrokerEpoch(1),
            incarnation: Incarnation([1; 16]),
            directories: Vec::new(),
            listeners: Vec::new(),
            rack: None,
            fenced,
        }
    }

    #[test]
    fn an_older_image_than_the_visible_one_is_not_shown() {
        let published = Published::default();
        let mut image = Image::default();
        let older = Arc::new(image.clone());
        image.apply(&registration(false));
        let now = Instant::from_millis(0);
        published.publish(5, Arc::new(image.clone()), now);
        published.publish(3, older, now);
        assert_eq!(published.indexed_image(), (5, Arc::new(image)));
        assert_eq!(published.visible_index(), 5);
    }

    #[test]
    fn a_broker_that_was_fenced_is_told_of_for_a_moment() {
        let published = Published::default();
        let mut image = Image::default();
        let mut index = 0;
        let mut publish = |fenced: bool, at_ms: u64| {
            index += 1;
            image.apply(&registration(fenced));
            published.publish(index, Arc::new(image.clone()), Instant::from_millis(at_ms));
        };
        let told = |at_ms| !published.departed(Instant::from_millis(at_ms)).is_empty();
        publish(false, 0);
        assert!(!told(0));
        publish(true, 1000);
        assert!(told(1000) && told(2999) && !told(3000));
        // Other changes do not begin it anew, and one that is back is told of anyway.
        publish(true, 2000);
        assert!(told(2999) && !told(3000));
        publish(false, 2500);
        assert!(!told(2500));
    }
}
