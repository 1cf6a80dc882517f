//! The committed metadata as the rest of the broker sees it: an image that is swapped as a whole, and the task that
//! makes the broker follow it. Nothing here decides what is committed.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use taffrail_core::metadata::Image;
use tokio::sync::watch;

use crate::broker::Broker;
use crate::env::Env;

/// The newest committed image, the index up to which it is visible, and the index up to which this broker follows it.
pub(super) struct Published {
    current: RwLock<(u64, Arc<Image>)>,
    visible: watch::Sender<u64>,
    applied: watch::Sender<u64>,
    /// The image whose consequences this broker has drawn; locked while it draws those of the next one.
    followed: Mutex<Arc<Image>>,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            current: RwLock::new((0, Arc::default())),
            visible: watch::Sender::new(0),
            applied: watch::Sender::new(0),
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

    /// Makes a newer image visible.
    pub(super) fn publish(&self, index: u64, image: Arc<Image>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (index, image);
        self.visible.send_replace(index);
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
