//! A pool of windows.
//!
//! It is no more than a queue of free windows, for what a pool must keep is kept by the types: what is in it grants
//! nothing, and a window that is not in it is somebody's who ends its grant by dropping it. To allocate a window asks an
//! adapter's firmware; to bind one that is there is a request like any other.

use super::error::StoreError;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use transom::{Bound, ProtectionDomain, QueuePair, Refused, Type2, Window};

pub(crate) struct Windows {
    pd: ProtectionDomain,
    /// The one that has been free for longest is taken first: its next key was last valid as long ago as can be.
    free: Mutex<VecDeque<Window<Type2>>>,
}

impl Windows {
    pub(crate) fn new(pd: &ProtectionDomain) -> Self {
        Self { pd: pd.clone(), free: Mutex::default() }
    }

    /// A free window: one that is there, or a new one.
    pub(crate) fn take(&self) -> Result<Window<Type2>, StoreError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        Ok(free.map_or_else(|| Window::alloc(&self.pd), Ok)?)
    }

    /// Ends a grant, and keeps the window for the next if it can be had. If the queue pair has failed meanwhile, it
    /// cannot, and the grant ends all the same.
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
