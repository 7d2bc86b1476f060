//! Memory regions of this process (rules A.2, A.3).

use std::sync::Arc;

use transom_device::Access;
use transom_device::protection::{Exhausted, Key, Kind, Region};

use super::{Busy, ProtectionDomain};
use crate::adapter::Adapter;
use crate::memory::{Mapping, mapping};

/// What to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// First address in the process's memory.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// First address as requests name it; ignored if `access` has `ZERO_BASED`.
    pub iova: u64,
    /// Rights, checked already for unknown bits.
    pub access: Access,
}

/// Why a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// The range or the rights make no sense: `EINVAL`.
    Invalid,
    /// Part of the range is not mapped, or not writable as the rights need: `EFAULT`.
    Fault,
    /// No key, or no memory for the key table, is left: `ENOMEM`.
    Exhausted,
    /// The protection domain is gone, or windows are bound: `EBUSY`.
    Busy,
}

impl Registration {
    /// Checks ranges, rights and the memory itself (rules MR-04 to MR-06, MR-17 to MR-22, MR-29, MR-32).
    fn check(&self) -> Result<(), RegisterError> {
        let access = self.access;
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::Invalid);
        }
        const PAGE: u64 = 4096;
        let end = self.address.checked_add(self.length).ok_or(RegisterError::Invalid)?;
        end.checked_next_multiple_of(PAGE).ok_or(RegisterError::Invalid)?;
        self.base().checked_add(self.length).ok_or(RegisterError::Invalid)?;
        let zero_based = access.contains(Access::ZERO_BASED);
        if !zero_based && self.iova % PAGE != self.address % PAGE {
            return Err(RegisterError::Invalid);
        }
        if self.length == 0 || access.contains(Access::ON_DEMAND) {
            return Ok(());
        }
        let writable = Access::LOCAL_WRITE | writes | Access::MW_BIND;
        match mapping(self.address, self.length) {
            Ok(Mapping::Writable) => Ok(()),
            Ok(Mapping::ReadOnly) if !access.intersects(writable) => Ok(()),
            // Without /proc nothing is known; an access will find out.
            Err(_) => Ok(()),
            Ok(_) => Err(RegisterError::Fault),
        }
    }

    fn base(&self) -> u64 {
        if self.access.contains(Access::ZERO_BASED) { 0 } else { self.iova }
    }

    fn region(&self, pd: &ProtectionDomain) -> Region {
        Region {
            pd: pd.number(),
            access: self.access,
            base: self.base(),
            length: self.length,
            place: self.address,
        }
    }
}

/// A registered memory region. Dropping it without [`MemoryRegion::deregister`] leaves it
/// registered.
#[derive(Debug)]
pub struct MemoryRegion {
    adapter: Arc<Adapter>,
    pd: Arc<ProtectionDomain>,
    slot: u32,
    key: Key,
    registration: Registration,
}

impl MemoryRegion {
    /// Registers memory.
    pub fn register(
        adapter: &Arc<Adapter>,
        pd: &Arc<ProtectionDomain>,
        registration: Registration,
    ) -> Result<Self, RegisterError> {
        registration.check()?;
        pd.adopt().map_err(|_| RegisterError::Busy)?;
        let taken = adapter.take_key(Kind::Region).inspect_err(|_| pd.release());
        let (slot, key) = taken.map_err(|_: Exhausted| RegisterError::Exhausted)?;
        let keys = adapter.segment().keys();
        registration.region(pd).register(&keys, slot, key, adapter.now());
        Ok(Self { adapter: adapter.clone(), pd: pd.clone(), slot, key, registration })
    }

    /// Its L_Key, which is its R_Key as well (rule MR-16).
    pub fn key(&self) -> Key {
        self.key
    }

    /// What it was registered as.
    pub fn registration(&self) -> Registration {
        self.registration
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Changes range, rights or domain; on an error it stays as it was (rules RR-05 to RR-12).
    pub fn change(
        &mut self,
        pd: Option<&Arc<ProtectionDomain>>,
        registration: Registration,
    ) -> Result<(), RegisterError> {
        registration.check()?;
        let new_pd = pd.unwrap_or(&self.pd).clone();
        new_pd.adopt().map_err(|_| RegisterError::Busy)?;
        let (keys, now) = (self.adapter.segment().keys(), self.adapter.now());
        let region = registration.region(&new_pd);
        if region.change(&keys, self.slot, self.key, now, &*self.adapter).is_err() {
            new_pd.release();
            return Err(RegisterError::Busy);
        }
        self.pd.release();
        self.pd = new_pd;
        self.registration = registration;
        Ok(())
    }

    /// Ends the registration. When it returns, no access through its key is under way. While a
    /// window is bound it is refused and stays (rules DR-03 to DR-05).
    pub fn deregister(self) -> Result<(), (Self, Busy)> {
        let keys = self.adapter.segment().keys();
        if Region::deregister(&keys, self.slot, &*self.adapter).is_err() {
            return Err((self, Busy));
        }
        self.adapter.give_back_key(Kind::Region, self.slot);
        self.pd.release();
        Ok(())
    }
}
