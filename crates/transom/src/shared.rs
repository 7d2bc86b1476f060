//! The shared receive queue itself.

use crate::Result;
use crate::context::OpenDevice;
use crate::delivery::CreatedQueue;
use crate::domain::AllocatedDomain;
use crate::error::check;
use crate::outstanding::Poster;
use crate::panics::outlive;
use crate::posted::WorkQueue;
use crate::xrc_domain::OpenedXrcDomain;
use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;
use transom_abi::*;

/// The queue itself. Its queue pairs and the tickets of its receives hold it.
pub(crate) struct CreatedShared {
    pub(crate) srq: *mut ibv_srq,
    /// The completion queue of all its receives.
    pub(crate) completions: Arc<CreatedQueue>,
    poster: Poster,
    domain: Arc<AllocatedDomain>,
    xrc_domain: Option<Arc<OpenedXrcDomain>>,
}

// SAFETY: libibverbs is thread-safe. Any thread may use and destroy a queue.
unsafe impl Send for CreatedShared {}
// SAFETY: as for `Send`.
unsafe impl Sync for CreatedShared {}

impl CreatedShared {
    /// # Safety
    /// The queue was created from these, and nobody else destroys it.
    pub(crate) unsafe fn from_raw(
        srq: *mut ibv_srq,
        completions: Arc<CreatedQueue>,
        domain: Arc<AllocatedDomain>,
        xrc_domain: Option<Arc<OpenedXrcDomain>>,
    ) -> Self {
        Self { srq, completions, poster: Poster::new(), domain, xrc_domain }
    }

    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.domain.device
    }

    pub(crate) fn query(&self) -> Result<ibv_srq_attr> {
        let mut attributes = ibv_srq_attr::default();
        let verbs = self.device().provider.verbs;
        // SAFETY: the queue exists and the place to write is valid.
        let result = unsafe { (verbs.ibv_query_srq)(self.srq, &raw mut attributes) };
        check("ibv_query_srq", format_args!("querying {self}"), result)?;
        Ok(attributes)
    }

    pub(crate) fn modify(
        &self,
        mut attributes: ibv_srq_attr,
        mask: ibv_srq_attr_mask,
    ) -> Result<()> {
        let verbs = self.device().provider.verbs;
        // SAFETY: the queue exists and the attributes are valid.
        let result =
            unsafe { (verbs.ibv_modify_srq)(self.srq, &raw mut attributes, mask as c_int) };
        check("ibv_modify_srq", format_args!("changing {self} to {attributes:?}"), result)
    }
}

impl WorkQueue for CreatedShared {
    fn poster(&self) -> Poster {
        self.poster
    }
}

impl Drop for CreatedShared {
    fn drop(&mut self) {
        if self.device().is_inherited() {
            return;
        }
        // SAFETY: nobody else has the queue.
        if unsafe { (self.device().provider.verbs.ibv_destroy_srq)(self.srq) } != 0 {
            // The queue stays, so the objects it uses must stay.
            let (domain, xrc_domain) = (self.domain.clone(), self.xrc_domain.clone());
            std::mem::forget((self.completions.clone(), domain, xrc_domain));
            return;
        }
        // Its completions take room in the completion queue until they are polled. No more are added from now on. If
        // polling fails, the next poll reports it.
        let _ = self.completions.poll();
        // Nothing uses the objects of its other receives any more, so release them.
        let abandoned = self.completions.lock().outstanding.abandon(self.poster);
        outlive(|| drop(abandoned));
    }
}

impl fmt::Display for CreatedShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the queue exists.
        write!(f, "shared receive queue {}", unsafe { (*self.srq).handle })
    }
}

impl fmt::Debug for CreatedShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CreatedShared").field(&self.srq).finish()
    }
}
