//! The objects of a device, as far as they find each other by number or are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use transom_system::ThisProcess;

use super::domains::Domains;
use super::keys::Keys;
use super::queue_pairs::QueuePairs;
use crate::objects::{ForeignTargets, Groups, SharedQueues, XrcDomains};

/// The tables of a device.
pub(crate) struct Tables {
    pub(crate) keys: Keys,
    pub(crate) domains: Domains,
    pub(crate) queue_pairs: QueuePairs,
    pub(crate) shared_queues: SharedQueues,
    pub(crate) xrc_domains: XrcDomains,
    pub(crate) groups: Groups,
    pub(crate) foreign_targets: ForeignTargets,
    pub(crate) completion_counters: AtomicU32,
    /// Bytes of device memory handed out.
    pub(crate) device_memory: AtomicU64,
}

impl Tables {
    /// Nothing yet; `first` is the first index to try for a queue pair.
    pub(super) fn new(process: Arc<ThisProcess>, first: u16) -> Self {
        Self {
            keys: Keys::new(process.clone()),
            domains: Domains::new(process.clone()),
            shared_queues: SharedQueues::default(),
            xrc_domains: XrcDomains::default(),
            groups: Groups::new(process.clone()),
            queue_pairs: QueuePairs::starting_at(process, first),
            foreign_targets: ForeignTargets::default(),
            completion_counters: AtomicU32::new(0),
            device_memory: AtomicU64::new(0),
        }
    }
}
