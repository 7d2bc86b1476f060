//! A queue pair while it is being connected.

use crate::created_queue_pair::CreatedQueuePair;
use std::ops::Deref;
use std::sync::Arc;

/// A queue pair that is being connected. Nobody else can have it, because one that is not yet connected has no clones.
/// If connecting fails or is given up, its posted requests are flushed, because no message will come.
pub(crate) struct Unconnected(Option<Arc<CreatedQueuePair>>);

const CONNECTED: &str = "it is had until it is connected";

impl Unconnected {
    pub(crate) fn new(queue_pair: Arc<CreatedQueuePair>) -> Self {
        Self(Some(queue_pair))
    }

    /// Releases the queue pair, now that it is connected.
    pub(crate) fn connected(mut self) -> Arc<CreatedQueuePair> {
        self.0.take().expect(CONNECTED)
    }
}

impl Deref for Unconnected {
    type Target = CreatedQueuePair;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect(CONNECTED)
    }
}

impl Drop for Unconnected {
    fn drop(&mut self) {
        if let Some(queue_pair) = &self.0 {
            queue_pair.give_up();
        }
    }
}
