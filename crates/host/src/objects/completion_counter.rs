//! Completion counters (rules G.9): they count operations that have ended, without a completion for each.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

use transom_device::execution::Counted;

use super::Busy;
use super::dependents::Dependents;
use crate::device::{Device, Limits};

/// The amount that a counter adds for an operation that ends well. For one that fails it always adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterUnit {
    /// One.
    Operations,
    /// Its bytes.
    Bytes,
}

/// A completion counter. Both of its values wrap to zero after `u64::MAX`.
pub struct CompletionCounter {
    device: Arc<Device>,
    unit: CounterUnit,
    completions: AtomicU64,
    errors: AtomicU64,
    queue_pairs: Dependents,
}

impl std::fmt::Debug for CompletionCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionCounter").field("unit", &self.unit).finish_non_exhaustive()
    }
}

impl CompletionCounter {
    /// Makes a counter at zero with nothing attached; `None` at the limit.
    pub fn new(device: &Arc<Device>, unit: CounterUnit) -> Option<Arc<Self>> {
        let limit = Limits::DEVICE.completion_counters;
        let one_more = |count| (count < limit).then(|| count + 1);
        device.resources.completion_counters.fetch_update(AcqRel, Relaxed, one_more).ok()?;
        Some(Arc::new(Self {
            device: device.clone(),
            unit,
            completions: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            queue_pairs: Dependents::default(),
        }))
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The count of operations that ended well.
    pub fn completions(&self) -> &AtomicU64 {
        &self.completions
    }

    /// How many operations have failed.
    pub fn errors(&self) -> &AtomicU64 {
        &self.errors
    }

    /// Checks that no queue pair counts with it.
    pub fn check_unused(&self) -> Result<(), Busy> {
        self.queue_pairs.check_unused()
    }

    /// Ends it unless a queue pair counts with it.
    pub fn close(&self) -> Result<(), Busy> {
        self.queue_pairs.close()
    }

    fn count(&self, bytes: Option<u64>) {
        let (value, amount) = match (bytes, self.unit) {
            (Some(_), CounterUnit::Operations) => (&self.completions, 1),
            (Some(bytes), CounterUnit::Bytes) => (&self.completions, bytes),
            (None, _) => (&self.errors, 1),
        };
        value.fetch_add(amount, AcqRel);
    }
}

impl Drop for CompletionCounter {
    fn drop(&mut self) {
        self.device.resources.completion_counters.fetch_sub(1, AcqRel);
    }
}

/// Why a counter cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// No operation is named, the queue pair is already in use, or the counter is another device's.
    #[error("no operation is named, the queue pair is in use, or the counter is another device's")]
    Invalid,
    /// The queue pair's service has no such operation to count.
    #[error("the service of the queue pair has nothing of the kind to count")]
    Unsupported,
    /// An operation has a counter already.
    #[error("an operation has a counter already")]
    Taken,
    /// The counter has been destroyed.
    #[error("the counter has been destroyed")]
    Gone,
}

/// The counters of a queue pair, at most one for each operation.
#[derive(Default)]
pub(super) struct Counters {
    each: [OnceLock<Arc<CompletionCounter>>; Counted::all().bits().count_ones() as usize],
    /// Which operations have one.
    counted: AtomicU32,
}

impl Counters {
    /// Adds to the counter of this one operation, if it has one.
    #[inline]
    pub(super) fn count(&self, operation: Counted, bytes: Option<u64>) {
        if self.any(operation)
            && let Some(counter) = self.of(operation)
        {
            counter.count(bytes);
        }
    }

    fn of(&self, operation: Counted) -> Option<&Arc<CompletionCounter>> {
        self.each.get(operation.bits().trailing_zeros() as usize)?.get()
    }

    /// Whether one of these operations has a counter.
    #[inline]
    pub(super) fn any(&self, operations: Counted) -> bool {
        Counted::from_bits_retain(self.counted.load(Acquire)).intersects(operations)
    }

    /// Makes a counter count these operations, which have no counter yet. Nobody else may attach meanwhile.
    pub(super) fn attach(
        &self,
        counter: &Arc<CompletionCounter>,
        operations: Counted,
    ) -> Result<(), AttachError> {
        for operation in operations {
            counter.queue_pairs.adopt().map_err(|Busy| AttachError::Gone)?;
            let index = operation.bits().trailing_zeros() as usize;
            let attached = self.each[index].set(counter.clone());
            attached.expect("it has no counter");
            self.counted.fetch_or(operation.bits(), Release);
        }
        Ok(())
    }

    /// Releases all counters, because the queue pair has ended.
    pub(super) fn release(&self) {
        for counter in self.each.iter().filter_map(OnceLock::get) {
            counter.queue_pairs.release();
        }
    }
}
