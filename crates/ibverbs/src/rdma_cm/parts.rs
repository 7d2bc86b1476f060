//! A program's file at one device.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use transom_cm::Refused;
use transom_host::Adapter;
use transom_host::connections::manager::Manager;

use super::refusal::Refusal;

/// What of a file is at one device.
pub(super) struct Part {
    pub(super) adapter: Arc<Adapter>,
    /// The descriptor by which the connection manager of this device knows it.
    pub(super) file: c_int,
}

/// The upper bits of a program's number for an id or a group tell the device, by its slot.
const SLOT: u32 = 24;

/// The slot of the device that a program's number for an id or a group tells of.
pub(super) fn slot_in(named: u32) -> u32 {
    named >> SLOT
}

impl Part {
    pub(super) fn open(adapter: Arc<Adapter>) -> Result<Self, Refusal> {
        match adapter.connections().call(|manager| manager.open_file()) {
            Ok(file) => Ok(Self { adapter, file }),
            Err(refused) => {
                adapter.close();
                Err(Refused::into(refused))
            }
        }
    }

    /// Ends it, with its ids and its descriptor.
    pub(super) fn end(part: Arc<Self>) -> Result<(), Refused> {
        let (adapter, file) = (part.adapter.clone(), part.file);
        drop(part);
        let ended = adapter.connections().call(|manager| manager.close_file(file));
        adapter.close();
        ended
    }

    /// Makes a call of the connection manager.
    pub(super) fn call<T, E: From<Refused> + Into<Refusal>>(
        &self,
        call: impl FnOnce(&mut Manager) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        self.adapter.connections().call(call).map_err(Into::into)
    }

    /// Whether its device was removed.
    pub(super) fn is_removed(&self) -> bool {
        let device = self.adapter.device();
        !device.process().is_inherited() && device.check().is_err()
    }

    /// The slot of its device. No other device has it as long as this one is open.
    pub(super) fn slot(&self) -> u32 {
        self.adapter.device().process().announcer().slot.into()
    }

    /// The program's number for a group here. It tells the device, and not the part: with its id, a group may move to a
    /// file that has other parts.
    pub(super) fn name_of_group(&self, number: u32) -> u32 {
        number | self.slot() << SLOT
    }

    /// The number here of a group that the program names, if it belongs to this device.
    pub(super) fn number_of_group(&self, named: u32) -> Result<u32, Refused> {
        let number = named & !(u32::MAX << SLOT);
        if slot_in(named) == self.slot() { Ok(number) } else { Err(Refused::NoGroup) }
    }
}

/// A descriptor that is readable while that of any part is. This is the first of them.
pub(super) fn all_of(first: &Part) -> Result<OwnedFd, Refusal> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|_| Refused::NoDescriptor)?;
    watch(&all, first)?;
    Ok(all)
}

/// Whether the descriptor is still the one that watches this part. That changes nothing: a forked child has the same
/// set of descriptors as its parent.
pub(super) fn watches(all: &OwnedFd, part: &Part) -> bool {
    // SAFETY: as in `watch`.
    let one = unsafe { BorrowedFd::borrow_raw(part.file) };
    epoll::modify(all.as_fd(), one, epoll::EventData::new_u64(0), epoll::EventFlags::IN).is_ok()
}

/// Makes it readable while that of this part is.
pub(super) fn watch(all: &OwnedFd, part: &Part) -> Result<(), Refusal> {
    // SAFETY: the connection manager keeps it open as long as the part is there.
    let one = unsafe { BorrowedFd::borrow_raw(part.file) };
    let data = epoll::EventData::new_u64(0);
    let added = epoll::add(all.as_fd(), one, data, epoll::EventFlags::IN);
    Ok(added.map_err(|_| Refused::NoDescriptor)?)
}
