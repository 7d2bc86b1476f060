//! Where a responder gets its receives.

use super::tag_matching::TagMatching;
use crate::queue::{ReceiveQueue, SizeError};

/// The source of a queue pair's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// From a queue of its own.
    Own {
        /// Work requests.
        size: usize,
        /// Most scatter/gather entries of each.
        max_sge: usize,
    },
    /// From the shared queue it was created with.
    Shared {
        /// The queue matches tags.
        tagged: bool,
    },
    /// From the shared queue that each message names (XRC).
    Named,
    /// It takes no messages: the end of XRC that sends.
    Nowhere,
}

/// The same, with the state that only a responder with this source has.
pub(super) enum ReceiveSource {
    Own(ReceiveQueue),
    Shared {
        matching: Option<Box<TagMatching>>,
        /// The program knows that no more is taken from the queue.
        told_last: bool,
    },
    /// A queue that each message names, or none.
    Elsewhere,
}

impl ReceiveSource {
    pub(super) fn new(receives: Receives) -> Result<Self, SizeError> {
        Ok(match receives {
            Receives::Own { size, max_sge } => Self::Own(ReceiveQueue::new(size, max_sge)?),
            Receives::Shared { tagged } => Self::Shared {
                matching: tagged.then(|| Box::new(TagMatching::new())),
                told_last: false,
            },
            Receives::Named | Receives::Nowhere => Self::Elsewhere,
        })
    }

    /// Forgets everything posted to its own queue, and rendezvous that were not started.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Own(queue) => queue.clear(),
            Self::Shared { matching, told_last } => {
                matching.iter_mut().for_each(|matching| matching.reset());
                *told_last = false;
            }
            Self::Elsewhere => {}
        }
    }

    /// The queue pair's own queue.
    #[inline]
    pub(super) fn own(&self) -> Option<&ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            _ => None,
        }
    }

    /// The same, to take or post receives.
    #[inline]
    pub(super) fn own_mut(&mut self) -> Option<&mut ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            _ => None,
        }
    }

    /// The state of tag matching.
    pub(super) fn matching(&self) -> Option<&TagMatching> {
        match self {
            Self::Shared { matching, .. } => matching.as_deref(),
            _ => None,
        }
    }

    /// The same, to change it.
    pub(super) fn matching_mut(&mut self) -> Option<&mut TagMatching> {
        match self {
            Self::Shared { matching, .. } => matching.as_deref_mut(),
            _ => None,
        }
    }

    /// No more is taken from a shared queue. Returns whether the program has to be told: once.
    pub(super) fn ends(&mut self) -> bool {
        match self {
            Self::Shared { told_last, .. } => !core::mem::replace(told_last, true),
            _ => false,
        }
    }
}
