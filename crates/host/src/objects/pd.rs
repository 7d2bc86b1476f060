//! Protection domains: a number, and a count of the objects in it (rules A.1).

use std::sync::Arc;

use transom_system::catalog::{Listed, Number};

use super::dependents::Dependents;
use super::{Busy, ThreadDomain};
use crate::device::Device;

/// A protection domain, or a parent domain that stands for one.
#[derive(Debug)]
pub struct ProtectionDomain {
    device: Arc<Device>,
    number: u32,
    /// By which others see it. A parent domain is not seen.
    listed: Option<Number>,
    children: Dependents,
    /// For a parent domain: the domain that it stands for.
    parent: Option<ParentDomain>,
}

#[derive(Debug)]
struct ParentDomain {
    domain: Arc<ProtectionDomain>,
    thread: Option<Arc<ThreadDomain>>,
}

impl ProtectionDomain {
    /// Makes a domain, in a context that others see by this number. `None` at the limit (rule PD-11), or without memory.
    pub fn allocate(device: &Arc<Device>, context: Option<Number>) -> Option<Arc<Self>> {
        let number = device.resources.domains.take()?;
        let listed = device.process().list(Listed::Domain { number, context });
        let children = Dependents::default();
        Some(Arc::new(Self { device: device.clone(), number, listed, children, parent: None }))
    }

    /// Makes a parent domain. It stands for `domain` wherever a domain is named, and is a child of it and of its thread
    /// domain (rule PD-10).
    pub fn parent_domain(
        domain: &Arc<Self>,
        thread: Option<&Arc<ThreadDomain>>,
    ) -> Result<Arc<Self>, Busy> {
        domain.adopt()?;
        if let Some(Err(busy)) = thread.map(|thread| thread.adopt()) {
            domain.release();
            return Err(busy);
        }
        let parent = ParentDomain { domain: domain.clone(), thread: thread.cloned() };
        let (device, number) = (domain.device.clone(), domain.number);
        let children = Dependents::default();
        Ok(Arc::new(Self { device, number, listed: None, children, parent: Some(parent) }))
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its number, unique on the device. A parent domain has the number of its domain.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the program has promised that one thread at a time uses the objects in it.
    pub fn is_single_threaded(&self) -> bool {
        let Some(parent) = &self.parent else { return false };
        parent.thread.is_some() || parent.domain.is_single_threaded()
    }

    /// Counts a region, window, queue pair or parent domain in it. Fails once it is freed.
    pub fn adopt(&self) -> Result<(), Busy> {
        self.children.adopt()
    }

    /// Whether it has not been freed.
    pub fn check_open(&self) -> Result<(), Busy> {
        if self.is_closed() { Err(Busy) } else { Ok(()) }
    }

    /// Counts one less.
    pub fn release(&self) {
        self.children.release();
    }

    /// How many belong to it.
    pub(super) fn children(&self) -> u64 {
        self.children.count()
    }

    /// Whether something belongs to it.
    pub fn check_unused(&self) -> Result<(), Busy> {
        self.children.check_unused()
    }

    /// Ends the domain unless something is in it (rules PD-02 to PD-06, PD-09).
    pub fn close(&self) -> Result<(), Busy> {
        self.children.close()?;
        let Some(parent) = &self.parent else {
            self.device.process().unlist(self.listed);
            self.device.resources.domains.give_back(self.number);
            return Ok(());
        };
        parent.domain.release();
        if let Some(thread) = &parent.thread {
            thread.release();
        }
        Ok(())
    }

    /// Whether it has been freed.
    pub fn is_closed(&self) -> bool {
        self.children.is_closed()
    }
}
