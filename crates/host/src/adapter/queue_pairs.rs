//! The queue pairs of this process by their index, the part of a number that tells them apart.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use transom_system::object_counts::ObjectKind;

use super::{Adapter, Limits};
use crate::objects::QueuePair;

/// Which indices are taken, and the next to try.
pub(super) struct QueuePairs {
    by_index: HashMap<u16, Weak<QueuePair>>,
    next: u16,
}

impl QueuePairs {
    /// None yet; `first` is the first index to try.
    pub(super) fn starting_at(first: u16) -> Self {
        Self { by_index: HashMap::new(), next: first }
    }
}

impl Adapter {
    /// Takes an index for a queue pair: the longest unused, and none that a bound window still
    /// names (rules CR-20, T2-04).
    pub(crate) fn take_qp_index(&self) -> Option<u16> {
        let mut pairs = self.queue_pairs.write();
        if pairs.by_index.len() >= Limits::DEVICE.queue_pairs as usize {
            return None;
        }
        pairs.by_index.try_reserve(1).ok()?;
        for _ in 0..=u16::MAX {
            let index = pairs.next;
            pairs.next = pairs.next.wrapping_add(1);
            let free = !pairs.by_index.contains_key(&index)
                && self.segment.qps().summary(index).is_some_and(|qp| qp.windows() == 0);
            if free {
                self.segment.open_qp(index).ok()?;
                pairs.by_index.insert(index, Weak::new());
                self.objects().add(ObjectKind::QueuePair);
                return Some(index);
            }
        }
        None
    }

    pub(crate) fn enter_qp(&self, index: u16, qp: &Arc<QueuePair>) {
        self.queue_pairs.write().by_index.insert(index, Arc::downgrade(qp));
    }

    pub(crate) fn leave_qp(&self, index: u16) {
        if self.queue_pairs.write().by_index.remove(&index).is_some() {
            self.objects().remove(ObjectKind::QueuePair);
        }
    }

    /// The queue pair at an index.
    pub(crate) fn qp(&self, index: u16) -> Option<Arc<QueuePair>> {
        self.queue_pairs.read().by_index.get(&index)?.upgrade()
    }

    pub(crate) fn all_qps(&self) -> Vec<Arc<QueuePair>> {
        self.queue_pairs.read().by_index.values().filter_map(Weak::upgrade).collect()
    }
}
