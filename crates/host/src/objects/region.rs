//! Memory regions of this process (rules A.2, A.3).

use std::collections::TryReserveError;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use transom_device::Access;
use transom_device::protection::{Exhausted, Key, Kind, Place, Region, Snapshot, State};
use transom_rehearse::Provocation;
use transom_system::memory::{Mapping, Maps, enter, leave, page_size};
use transom_system::{clock, rehearsal};
use transom_thread::uncancelled;

use super::{Busy, DeviceMemory, DmaBuf, ProtectionDomain};
use crate::device::Inherited;

/// The rights with which peers write.
const WRITES: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

/// The shortest time for which a rehearsal shuts a region that is changed. It may be doubled four times.
const SHORTEST_SHUT: Duration = Duration::from_micros(400);

/// The attributes of a region to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// First address in the process's memory.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The first address, as requests name it. Ignored if `access` has `ZERO_BASED`.
    pub iova: u64,
    /// Rights, checked already for unknown bits.
    pub access: Access,
}

/// Why a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The combination of rights is not allowed: `EINVAL` (rules MR-04, MR-05).
    #[error("the rights do not go together")]
    Rights,
    /// The range goes past the end of its address space, or its kind does not allow it: `EINVAL` (rules MR-18, MR-19,
    /// MR-32, MR-33).
    #[error("the range goes past the end of its addresses, or is none of its kind")]
    Range,
    /// The iova and the address have different offsets in their pages: `EINVAL` (rule MR-29).
    #[error("the iova is at another offset in its page than the address")]
    PageOffset,
    /// Part of the range is not mapped, or not writable though the rights need it: `EFAULT`.
    #[error("part of the range is not mapped, or not writable as the rights need")]
    Fault,
    /// No key is left, or no memory for the key table: `ENOMEM`.
    #[error("no key, or no memory for one, is left")]
    Exhausted,
    /// The protection domain is gone, or windows are bound: `EBUSY`.
    #[error("the protection domain is gone, or windows are bound")]
    Busy,
    /// An object that it is made of is another device's: `EINVAL` (rule DEVS-04).
    #[error("an object that it is made of is another device's")]
    OtherDevice,
    /// The device belongs to the process that this one was forked from: `EIO`.
    #[error("the device is of the process that this one was forked from")]
    Inherited,
}

impl From<TryReserveError> for RegisterError {
    fn from(_: TryReserveError) -> Self {
        Self::Exhausted
    }
}

impl From<Inherited> for RegisterError {
    fn from(Inherited: Inherited) -> Self {
        Self::Inherited
    }
}

/// The memory behind a region.
#[derive(Clone, Debug)]
pub enum Backing {
    /// Memory of the program.
    Program,
    /// Nothing: a null region.
    Null,
    /// Device memory.
    Device(Arc<DeviceMemory>),
    /// A dma-buf.
    DmaBuf(Arc<DmaBuf>),
}

impl Backing {
    /// The key table's name for the region.
    fn kind(&self) -> Kind {
        if matches!(self, Self::Null) { Kind::Null } else { Kind::Region }
    }

    /// Counts the region in its domain. Null regions are not counted: adapters have one key for all of them, and a
    /// program may free the domain before it (rule PD-02).
    fn adopt(&self, pd: &ProtectionDomain) -> Result<(), Busy> {
        match self {
            Self::Null => pd.check_open(),
            Self::Program | Self::Device(_) | Self::DmaBuf(_) => pd.adopt(),
        }
    }

    /// The region is gone.
    fn release(&self, pd: &ProtectionDomain) {
        if !matches!(self, Self::Null) {
            pd.release();
        }
    }
}

impl Registration {
    /// The whole address space, paged on demand (rule MR-33).
    pub const fn is_implicit(&self) -> bool {
        self.address == 0 && self.length == u64::MAX && self.access.contains(Access::ON_DEMAND)
    }

    /// Checks ranges, rights and the memory itself (rules MR-04 to MR-06, MR-17 to MR-22, MR-29, MR-32).
    fn check(&self, maps: &Maps) -> Result<(), RegisterError> {
        self.check_rights()?;
        let access = self.access;
        if self.is_implicit() {
            // Huge pages are promised for a range, and only for addresses of the program's own.
            let odd = access.contains(Access::HUGETLB) || self.base() != 0;
            return if odd { Err(RegisterError::Range) } else { Ok(()) };
        }
        self.check_range()?;
        if self.length == 0 || access.contains(Access::ON_DEMAND) {
            return Ok(());
        }
        let writable = WRITES.union(Access::LOCAL_WRITE | Access::MW_BIND);
        match maps.mapping(self.address, self.length) {
            Ok(Mapping::Writable) => Ok(()),
            Ok(Mapping::ReadOnly) if !access.intersects(writable) => Ok(()),
            // Without /proc nothing is known. An access will find out.
            Err(_) => Ok(()),
            Ok(_) => Err(RegisterError::Fault),
        }
    }

    /// Remote write access requires local write access.
    fn check_rights(&self) -> Result<(), RegisterError> {
        let local = self.access.contains(Access::LOCAL_WRITE);
        if self.access.intersects(WRITES) && !local { Err(RegisterError::Rights) } else { Ok(()) }
    }

    fn check_range(&self) -> Result<(), RegisterError> {
        let page = page_size();
        let end = self.address.checked_add(self.length).ok_or(RegisterError::Range)?;
        end.checked_next_multiple_of(page).ok_or(RegisterError::Range)?;
        self.base().checked_add(self.length).ok_or(RegisterError::Range)?;
        let zero_based = self.access.contains(Access::ZERO_BASED);
        if !zero_based && self.iova % page != self.address % page {
            return Err(RegisterError::PageOffset);
        }
        Ok(())
    }

    fn base(&self) -> u64 {
        if self.access.contains(Access::ZERO_BASED) { 0 } else { self.iova }
    }

    fn region(&self, pd: &ProtectionDomain, place: Place) -> Region {
        let (pd, access) = (pd.number(), self.access);
        Region { pd, access, base: self.base(), length: self.length, place }
    }

    /// The place of its memory. If that is shared memory, it stays as it is until [`leave`].
    fn place(&self, maps: &Maps) -> Place {
        // Memory that is paged on demand is whatever the program has there at the access (rule MR-34).
        match self.access.contains(Access::ON_DEMAND) {
            true => Place::Memory(self.address),
            false => enter(self.address, self.length, maps),
        }
    }
}

/// The number of bytes that a region counts for. A region of all addresses counts for none.
fn counted(length: u64) -> u64 {
    if length == u64::MAX { 0 } else { length }
}

/// A region as its key's entry has it.
fn opened(region: &Region, key: Key, kind: Kind, since: u64) -> Snapshot {
    let Region { pd, access, base, length, place } = *region;
    let (byte, place) = (key.byte(), place.pack().unwrap_or(0));
    let state = State::Valid;
    Snapshot { byte, state, kind, access, base, length, place, pd, since, ..Snapshot::VACANT }
}

/// A registered memory region. Dropping it without [`MemoryRegion::deregister`] leaves it
/// registered.
#[derive(Debug)]
pub struct MemoryRegion {
    pd: Arc<ProtectionDomain>,
    slot: u32,
    key: Key,
    registration: Registration,
    place: Place,
    backing: Backing,
}

impl MemoryRegion {
    /// Registers memory of the program.
    pub fn register(
        pd: &Arc<ProtectionDomain>,
        registration: Registration,
    ) -> Result<Self, RegisterError> {
        let maps = pd.device().process().maps();
        registration.check(maps)?;
        let region = registration.region(pd, registration.place(maps));
        Self::enter(pd, region, registration, Backing::Program)
    }

    /// A null region (rule MR-36).
    pub fn null(pd: &Arc<ProtectionDomain>) -> Result<Self, RegisterError> {
        let region = Region::null(pd.number());
        let (length, access) = (region.length, region.access);
        let registration = Registration { address: 0, length, iova: 0, access };
        Self::enter(pd, region, registration, Backing::Null)
    }

    /// Registers a range of device memory, zero-based.
    pub fn of_device_memory(
        pd: &Arc<ProtectionDomain>,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let address = memory.range(offset, length).ok_or(RegisterError::Range)?;
        let registration = Registration { address, length, iova: 0, access };
        registration.check_rights()?;
        memory.adopt().map_err(|_| RegisterError::Busy)?;
        let backing = Backing::Device(memory.clone());
        let place = registration.place(pd.device().process().maps());
        Self::enter(pd, registration.region(pd, place), registration, backing)
            .inspect_err(|_| memory.release())
    }

    /// Registers a mapped dma-buf under addresses that begin at `iova`.
    pub fn of_dma_buf(
        pd: &Arc<ProtectionDomain>,
        mapping: DmaBuf,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let registration = Registration { address: mapping.address(), length, iova, access };
        registration.check_rights()?;
        registration.check_range()?;
        let place = Place::Memory(mapping.address());
        let backing = Backing::DmaBuf(Arc::new(mapping));
        Self::enter(pd, registration.region(pd, place), registration, backing)
    }

    fn enter(
        pd: &Arc<ProtectionDomain>,
        region: Region,
        registration: Registration,
        backing: Backing,
    ) -> Result<Self, RegisterError> {
        let place = region.place;
        let entered = Self::enter_keys(pd, &region, &backing).inspect_err(|_| leave(place))?;
        let (pd, (slot, key)) = (pd.clone(), entered);
        Ok(Self { pd, slot, key, registration, place, backing })
    }

    fn enter_keys(
        pd: &Arc<ProtectionDomain>,
        region: &Region,
        backing: &Backing,
    ) -> Result<(u32, Key), RegisterError> {
        let device = pd.device();
        device.check_own()?;
        backing.adopt(pd).map_err(|_| RegisterError::Busy)?;
        let taken = device.resources.keys.take(backing.kind());
        let taken = taken.inspect_err(|_| backing.release(pd));
        let (slot, key) = taken.map_err(|_: Exhausted| RegisterError::Exhausted)?;
        let (segment, now) = (device.process().segment(), clock::steady());
        device.opens(slot, || opened(region, key, backing.kind(), now));
        region.register(&segment.keys(), slot, key, now);
        segment.header().registered.add(region.place, counted(region.length));
        Ok((slot, key))
    }

    /// Its L_Key, which is also its R_Key (rule MR-16).
    pub fn key(&self) -> Key {
        self.key
    }

    /// Its slot in the key table.
    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    /// The attributes it was registered with.
    pub fn registration(&self) -> Registration {
        self.registration
    }

    /// The memory behind it.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// The place of its memory: its first byte.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Changes range, rights or domain of a region of the program's memory. On an error it stays as it was (rules RR-05
    /// to RR-12).
    pub fn change(
        &mut self,
        pd: Option<&Arc<ProtectionDomain>>,
        registration: Registration,
    ) -> Result<(), RegisterError> {
        if !matches!(self.backing, Backing::Program) {
            return Err(RegisterError::Range);
        }
        self.pd.device().check_own()?;
        registration.check(self.pd.device().process().maps())?;
        let new_pd = pd.unwrap_or(&self.pd).clone();
        if !Arc::ptr_eq(new_pd.device(), self.pd.device()) {
            return Err(RegisterError::OtherDevice);
        }
        new_pd.adopt().map_err(|_| RegisterError::Busy)?;
        let process = self.pd.device().process();
        let keys = process.segment().keys();
        let place = registration.place(process.maps());
        let region = registration.region(&new_pd, place);
        let shut = rehearsal::on().and_then(|it| it.provokes_next(Provocation::ShutRegions));
        let begun = match shut {
            None => region.begin_change(&keys, self.slot, &**process),
            Some(_) => Region::close(&keys, self.slot, &**process),
        };
        if begun.is_err() {
            leave(place);
            new_pd.release();
            return Err(RegisterError::Busy);
        }
        if let Some(number) = shut {
            uncancelled(|| thread::sleep(SHORTEST_SHUT * (1 << (number % 5))));
        }
        let (device, now) = (self.pd.device(), clock::steady());
        device.closes(self.slot);
        device.opens(self.slot, || opened(&region, self.key, self.backing.kind(), now));
        region.reopen(&keys, self.slot, self.key, now);
        leave(self.place);
        let registered = &process.segment().header().registered;
        registered.remove(self.place, counted(self.registration.length));
        registered.add(place, counted(registration.length));
        self.pd.release();
        (self.pd, self.place, self.registration) = (new_pd, place, registration);
        Ok(())
    }

    /// Whether windows are bound to it.
    pub fn check_unused(&self) -> Result<(), Busy> {
        let process = self.pd.device().process();
        if process.is_inherited() {
            return Ok(());
        }
        Region::check_unused(&process.segment().keys(), self.slot).map_err(|_| Busy)
    }

    /// Ends the registration. When it returns, no access through its key is under way. While a window is bound, this is
    /// refused and the region stays (rules DR-03 to DR-05).
    pub fn deregister(self) -> Result<(), (Self, Busy)> {
        let device = self.pd.device();
        let process = device.process();
        let keys = process.segment().keys();
        // In a forked child it is the parent's, and stays registered.
        let inherited = process.is_inherited();
        if !inherited && Region::deregister(&keys, self.slot, &**process).is_err() {
            return Err((self, Busy));
        }
        if !inherited {
            device.closes(self.slot);
            keys.note_end(self.slot, clock::steady());
            leave(self.place);
            let registered = &process.segment().header().registered;
            registered.remove(self.place, counted(self.registration.length));
        }
        device.resources.keys.give_back(self.backing.kind(), self.slot);
        if let Backing::Device(memory) = &self.backing {
            memory.release();
        }
        self.backing.release(&self.pd);
        Ok(())
    }
}
