//! A program's open files, each with a part at every device that ids of it belong to.
//!
//! Nobody knows the device of an id when it is made, so it is made at the first. If it is then bound to an address of
//! another device, or its destination is reached from one, it moves there ([`Command::at_its_device`]). The program goes
//! on naming it by its first number.
//!
//! [`Command::at_its_device`]: super::command::Command::at_its_device

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::epoll;
use transom_cm::Refused;
use transom_host::Adapter;
use transom_host::connections::source_towards;
use transom_system::addresses::{Addresses, gid};
use transom_system::say;
use transom_wire::cm::CommId;

use super::refusal::Refusal;
use crate::adapters;
use crate::description::Description;

/// The open files.
static FILES: Mutex<Vec<Arc<File>>> = Mutex::new(Vec::new());

/// A file.
pub(super) struct File {
    /// The descriptor that the program has.
    pub(super) descriptor: c_int,
    /// The program may have several devices. Then the descriptor is readable while that of any part is.
    may_have_several: bool,
    parts: Mutex<Vec<Arc<Part>>>,
    /// Ids that have moved, by the numbers that the program has for them.
    moved: Mutex<HashMap<u32, Moved>>,
}

/// What of a file is at one device.
pub(super) struct Part {
    /// Its place among the parts of the file.
    index: u8,
    pub(super) adapter: Arc<Adapter>,
    /// The descriptor by which the connection manager of this device knows it.
    pub(super) file: c_int,
}

/// Where an id has moved to.
struct Moved {
    part: Arc<Part>,
    id: CommId,
    /// How many of its events had been taken before.
    reported: u32,
}

/// The bits of a group's number that tell the part of the file.
const PART_OF_GROUP: u32 = 24;

impl File {
    /// Opens a file at the first device that is there.
    pub(super) fn open() -> Result<c_int, Refusal> {
        let adapter = adapters::open_first().map_err(|error| {
            say(format_args!("{error}"));
            let said = "the device cannot be opened; standard error has the reason";
            Refusal::new(error.errno().unwrap_or(libc::ENODEV), said)
        })?;
        let may_have_several = Description::chosen().is_ok_and(|all| all.len() > 1);
        let first = Part::open(0, adapter)?;
        let descriptor = match may_have_several {
            true => all_of(&first)?.into_raw_fd(),
            false => first.file,
        };
        let parts = Mutex::new(vec![Arc::new(first)]);
        let file = Self { descriptor, may_have_several, parts, moved: Mutex::default() };
        let mut files = FILES.lock();
        // The program may have closed another file's descriptor itself, and this file may have its number now.
        let stale = files.extract_if(.., |other| other.descriptor == descriptor);
        let stale: Vec<_> = stale.filter(|stale| stale.may_have_several).collect();
        files.push(Arc::new(file));
        drop(files);
        for stale in stale {
            let _ = stale.end_parts();
        }
        Ok(descriptor)
    }

    /// The file of a descriptor.
    pub(super) fn of(descriptor: c_int) -> Result<Arc<Self>, Refusal> {
        let files = FILES.lock();
        let found = files.iter().find(|file| file.descriptor == descriptor);
        found.cloned().ok_or(Refused::NoFile.into())
    }

    /// Closes a file and ends its ids. `None` if there is none of this descriptor.
    pub(super) fn close(descriptor: c_int) -> Option<Result<(), Refused>> {
        let mut files = FILES.lock();
        let place = files.iter().position(|file| file.descriptor == descriptor)?;
        let file = files.swap_remove(place);
        drop(files);
        if file.may_have_several {
            // SAFETY: it is this file's own, and nobody finds the file any more.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
        Some(file.end_parts())
    }

    /// Ends all ids. The last error is that of all.
    fn end_parts(&self) -> Result<(), Refused> {
        self.moved.lock().clear();
        let parts = std::mem::take(&mut *self.parts.lock());
        let mut ended = Ok(());
        for part in parts {
            let (adapter, file) = (part.adapter.clone(), part.file);
            drop(part);
            ended = ended.and(adapter.connections().call(|manager| manager.close_file(file)));
            adapter.close();
        }
        ended
    }

    /// Whether ids of it may be at several devices.
    pub(super) fn may_have_several(&self) -> bool {
        self.may_have_several
    }

    /// Its parts now.
    pub(super) fn parts(&self) -> Vec<Arc<Part>> {
        self.parts.lock().clone()
    }

    /// The first part.
    pub(super) fn first(&self) -> Result<Arc<Part>, Refusal> {
        self.parts.lock().first().cloned().ok_or(Refused::NoFile.into())
    }

    /// The part at a device. Makes it if there is none.
    pub(super) fn part_at(&self, adapter: Arc<Adapter>) -> Result<Arc<Part>, Refusal> {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.iter().find(|part| Arc::ptr_eq(&part.adapter, &adapter)) {
            return Ok(part.clone());
        }
        let index = u8::try_from(parts.len()).map_err(|_| Refused::NoDescriptor)?;
        let part = Arc::new(Part::open(index, adapter)?);
        // SAFETY: this file's, which is open as long as somebody finds it.
        let all = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        watch(all, &part)?;
        parts.push(part.clone());
        Ok(part)
    }

    /// The part for a new id: at the first device that is there, or else where the first error is.
    pub(super) fn part_for_new(&self) -> Result<Arc<Part>, Refusal> {
        let first = self.first()?;
        if !self.may_have_several || first.adapter.device().check().is_ok() {
            return Ok(first);
        }
        adapters::open_first().map_or(Ok(first), |adapter| self.part_at(adapter))
    }

    /// The part of an id, and its number there.
    pub(super) fn part_of(&self, id: u32) -> Result<(Arc<Part>, CommId), Refusal> {
        if let Some(moved) = self.moved.lock().get(&id) {
            return Ok((moved.part.clone(), moved.id));
        }
        // The connection manager of a device has its slot in its numbers.
        let slot = |part: &Part| part.adapter.device().process().announcer().slot;
        let mut parts = self.parts.lock().clone().into_iter();
        let part = parts.find(|part| u32::from(slot(part)) == id >> 24);
        Ok((part.map_or_else(|| self.first(), Ok)?, CommId(id)))
    }

    /// The part of a group's number, and its number there.
    pub(super) fn part_of_group(&self, number: u32) -> Result<(Arc<Part>, CommId), Refusal> {
        let index = (number >> PART_OF_GROUP) as usize;
        let part = self.parts.lock().get(index).cloned();
        Ok(match part {
            Some(part) => (part, CommId(number & ((1 << PART_OF_GROUP) - 1))),
            None => (self.first()?, CommId(number)),
        })
    }

    /// An id has moved, and so many of its events were taken where it was.
    pub(super) fn has_moved(&self, named: u32, part: Arc<Part>, id: CommId, reported: u32) {
        let mut moved = self.moved.lock();
        let before = moved.remove(&named).map_or(0, |before| before.reported);
        let reported = before.wrapping_add(reported);
        moved.insert(named, Moved { part, id, reported });
    }

    /// An id ends, or moves to another file. If it had moved, how many of its events were taken before.
    pub(super) fn forget(&self, named: u32) -> Option<u32> {
        self.moved.lock().remove(&named).map(|moved| moved.reported)
    }

    /// The program's number for an id.
    pub(super) fn name_of(&self, id: CommId) -> u32 {
        let moved = self.moved.lock();
        let named = moved.iter().find(|(_, moved)| moved.id == id);
        named.map_or(id.0, |(named, _)| *named)
    }

    /// Another device than this part's, which an id has to move to: it has the address that the id is to be bound to, or
    /// from which its destination is reached.
    pub(super) fn other_device(
        &self,
        part: &Part,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Option<Arc<Adapter>> {
        if !self.may_have_several {
            return None;
        }
        let named = |address: &IpAddr| !address.is_unspecified() && !address.is_loopback();
        let source = source.map(|it| it.ip()).filter(named);
        let reached = || source_towards(destination.filter(|it| named(&it.ip()))?);
        let address = source.or_else(reached).filter(named)?;
        let described = Description::chosen().ok()?;
        let has = |device: &Description| {
            let addresses = Addresses::of(device.interface());
            addresses.is_ok_and(|addresses| addresses.index_of(&gid(address)).is_some())
        };
        let own = usize::from(part.adapter.device().options().number);
        if described.get(own).is_some_and(has) {
            return None;
        }
        let mut others = (0..).zip(described).filter(|(_, device)| has(device));
        others.find_map(|(number, _)| adapters::open(number).ok())
    }
}

impl Part {
    fn open(index: u8, adapter: Arc<Adapter>) -> Result<Self, Refusal> {
        let file = adapter.connections().call(|manager| manager.open_file())?;
        Ok(Self { index, adapter, file })
    }

    /// The program's number for a group of this part.
    pub(super) fn name_of_group(&self, number: u32) -> u32 {
        number | u32::from(self.index) << PART_OF_GROUP
    }
}

/// A descriptor that is readable while that of any part is.
fn all_of(first: &Part) -> Result<OwnedFd, Refusal> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|_| Refused::NoDescriptor)?;
    watch(all.as_fd(), first)?;
    Ok(all)
}

fn watch(all: BorrowedFd<'_>, part: &Part) -> Result<(), Refusal> {
    // SAFETY: the connection manager keeps it open as long as the part is there.
    let one = unsafe { BorrowedFd::borrow_raw(part.file) };
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(all, one, data, epoll::EventFlags::IN).map_err(|_| Refused::NoDescriptor)?)
}
