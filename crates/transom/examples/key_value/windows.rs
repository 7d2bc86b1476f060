//! A pool of windows.
//!
//! It is only a queue of free windows, because the types keep the promises of a pool: a window in the queue grants
//! nothing, and a window outside of it has an owner, who ends its grant by dropping it. Allocating a window needs an
//! adapter's firmware. Binding an allocated one is a request like any other.

use super::error::StoreError;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use transom::{Bound, ProtectionDomain, QueuePair, Refused, Type2, Window};

pub(crate) struct Windows {
    pd: ProtectionDomain,
    /// Takes the window that has been free for the longest time, because its next key was valid the longest
    /// time ago.
    free: Mutex<VecDeque<Window<Type2>>>,
}

impl Windows {
    pub(crate) fn new(pd: &ProtectionDomain) -> Self {
        Self { pd: pd.clone(), free: Mutex::default() }
    }

    /// A free window from the pool, or a new one.
    pub(crate) fn take(&self) -> Result<Window<Type2>, StoreError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        Ok(free.map_or_else(|| Window::alloc(&self.pd), Ok)?)
    }

    /// Ends a grant, and puts the window back into the pool. If the queue pair has failed meanwhile, the window is
    /// lost, but the grant still ends.
    pub(crate) async fn end(
        &self,
        window: Window<Type2, Bound>,
        bound_by: &QueuePair,
    ) -> Result<(), StoreError> {
        let invalidating = match window.invalidate(bound_by) {
            Ok(invalidating) => invalidating,
            Err(refused) => return Ok(refused.returned.revoke()?),
        };
        match invalidating.await {
            Ok(window) => {
                self.free.lock().unwrap_or_else(PoisonError::into_inner).push_back(window);
                Ok(())
            }
            Err(Refused { returned: Some(window), .. }) => Ok(window.revoke()?),
            Err(Refused { returned: None, error }) => Err(error.into()),
        }
    }
}
