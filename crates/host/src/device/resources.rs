//! The resources that a device hands out to its objects, within its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use transom_system::ThisProcess;

use super::domains::Domains;
use super::keys::Keys;

/// The resources handed out.
pub(crate) struct Resources {
    pub(crate) keys: Keys,
    pub(crate) domains: Domains,
    /// How many completion counters there are.
    pub(crate) completion_counters: AtomicU32,
    /// Bytes of device memory.
    pub(crate) device_memory: AtomicU64,
}

impl Resources {
    /// Nothing yet.
    pub(super) fn new(process: Arc<ThisProcess>, device: u8) -> Self {
        Self {
            keys: Keys::new(process.clone()),
            domains: Domains::new(process, device),
            completion_counters: AtomicU32::new(0),
            device_memory: AtomicU64::new(0),
        }
    }
}
