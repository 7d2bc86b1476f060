//! The state that the connection managers of a network namespace share: which process has which port, and the farewells
//! to send to the peers of a process that dies.
//!
//! One file in the registry's directory. The first process that uses connections makes it. Each entry belongs to one
//! stay of a process and is void when that ends; any process that comes across it removes it. The entries for one port
//! form a chain. Every reader and writer locks the file (`lock`). The kernel releases the lock when a process dies. It
//! may then leave an entry without an owner, or one with a dead owner.

mod waiting;
mod words;

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use transom_cm::{Claim, Record};
use transom_device::protection::Announcer;
use transom_wire::cm::{CommId, PortSpace};

use super::directory::private_file;
use super::file::Registry;
use super::lock::{self, Part};
use crate::file_limit;
use crate::shared_mapping::map_shared;
pub use waiting::Waiting;
#[cfg(debug_assertions)]
pub(crate) use words::fuzz;
use words::{LISTENS, claimed, connection, connection_words, port_words};

/// The file's name in the registry's directory.
const NAME: &str = "connections";
/// The most ports and connections of all processes.
const ENTRIES: usize = 1 << 17;
/// Chains.
const BUCKETS: usize = 1 << 14;
/// Ports of this host.
const PORTS: usize = 1 << 16;
/// How many entries get memory at once.
const CHUNK: usize = 512;
/// Marks an entry that has an owner, beside slot and generation.
const OWNED: u64 = 1 << 63;

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Port = 1,
    Connection = 2,
    Request = 3,
}

#[repr(C, align(128))]
struct Entry {
    /// Slot and generation of the process, or zero. It is written last, and cleared first.
    owner: AtomicU64,
    /// The next one of the chain, plus one.
    next: AtomicU32,
    kind: AtomicU32,
    words: [AtomicU64; WORDS],
}

const WORDS: usize = 8;

#[repr(C)]
struct Table {
    /// Entries that there is memory for.
    room: AtomicU64,
    /// No entry before this one is free.
    low: AtomicU64,
    /// No entry from this one on was ever used.
    high: AtomicU64,
    /// The first entry of each chain, plus one.
    buckets: [AtomicU32; BUCKETS],
    /// How many connections are at each port of this host. It is never too low. If a process dies while changing it, it
    /// is one too high.
    connections: [AtomicU32; PORTS],
    entries: [Entry; ENTRIES],
}

/// A port that an id of some process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedPort {
    /// Its claim.
    pub claim: Claim,
    /// It listens there.
    pub listens: bool,
    /// The process.
    pub owner: Announcer,
}

/// A connection of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The message for its peer when its process dies.
    pub record: Record,
    /// The port here, and the peer's.
    pub ports: (u16, u16),
}

/// Where a connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept(u32);

/// The file, as one process uses it.
pub struct Connections {
    table: NonNull<Table>,
    file: OwnedFd,
    /// The file's lock does not keep threads of one process apart.
    threads: Mutex<()>,
    registry: &'static Registry,
    me: Announcer,
}

// SAFETY: the mapping lives as long as the value, and all of it is atomics.
unsafe impl Send for Connections {}
// SAFETY: as above.
unsafe impl Sync for Connections {}

/// The file, locked.
pub struct Locked<'a> {
    of: &'a Connections,
    _threads: MutexGuard<'a, ()>,
}

impl Connections {
    /// Opens the file for the process that has a slot in the registry.
    ///
    /// # Errors
    ///
    /// The system's error: there may be no room for it.
    pub fn open(registry: &'static Registry, me: Announcer) -> io::Result<Self> {
        let file = private_file(&registry.directory().join(NAME))?;
        let length = size_of::<Table>() as u64;
        if rustix::fs::fstat(&file)?.st_size < length as i64 {
            file_limit::grow(|| rustix::fs::ftruncate(&file, length))?;
        }
        let before_entries = size_of::<Table>() - size_of::<[Entry; ENTRIES]>();
        take_room(&file, 0, before_entries)?;
        Self::map(file, registry, me)
    }

    /// Opens it for reading, if any process has used connections.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn look(registry: &'static Registry) -> io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = registry.directory().join(NAME);
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            file => file?,
        };
        if rustix::fs::fstat(&file)?.st_size < size_of::<Table>() as i64 {
            return Ok(None);
        }
        // No process has slot 0.
        Self::map(file, registry, Announcer { slot: 0, generation: 0 }).map(Some)
    }

    fn map(file: OwnedFd, registry: &'static Registry, me: Announcer) -> io::Result<Self> {
        // The file has at least this length, and nobody shrinks it.
        let table = map_shared(&file, 0, size_of::<Table>())?.cast();
        Ok(Self { table, file, threads: Mutex::new(()), registry, me })
    }

    fn table(&self) -> &Table {
        // SAFETY: mapped as long as this lives, aligned to a page, valid in any bit pattern (atomics).
        unsafe { self.table.as_ref() }
    }

    /// Locks it against all others. Hold it for microseconds only.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn lock(&self) -> io::Result<Locked<'_>> {
        let threads = self.threads.lock();
        lock::wait_for(&self.file, Part::All)?;
        Ok(Locked { of: self, _threads: threads })
    }

    /// An entry that an index names, if the file is that long and holds one.
    fn entry(&self, index: u32) -> Option<&Entry> {
        let room = self.table().room.load(Acquire);
        let entry = self.table().entries.get(index as usize);
        entry.filter(|_| u64::from(index) < room)
    }

    fn high(&self) -> u32 {
        let room = self.table().room.load(Acquire);
        self.table().high.load(Relaxed).min(room).min(ENTRIES as u64) as u32
    }

    fn lives(&self, owner: Announcer) -> bool {
        owner == self.me || self.registry.is_alive(owner)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.table.as_ptr().cast(), size_of::<Table>()) };
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        lock::unlock(&self.of.file, Part::All);
    }
}

/// Takes memory for a part of the file.
fn take_room(file: &OwnedFd, offset: usize, length: usize) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), offset as u64, length as u64)?)
}

fn bucket(space: PortSpace, port: u16) -> usize {
    // Different port spaces go to different chains, and so do ports in a row.
    (usize::from(port) ^ usize::from(space.code()).wrapping_mul(0x9e5)) % BUCKETS
}

impl Entry {
    fn owner(&self) -> Option<Announcer> {
        let owner = self.owner.load(Acquire);
        let generation = owner as u32;
        (owner & OWNED != 0).then_some(Announcer { slot: (owner >> 32) as u8, generation })
    }

    fn is(&self, kind: Kind) -> bool {
        self.kind.load(Relaxed) == kind as u32
    }

    fn words(&self) -> [u64; WORDS] {
        self.words.each_ref().map(|word| word.load(Relaxed))
    }

    fn write(&self, kind: Kind, words: [u64; WORDS]) {
        self.owner.store(0, SeqCst);
        self.kind.store(kind as u32, Relaxed);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    fn own(&self, owner: Announcer) {
        let owner = OWNED | u64::from(owner.slot) << 32 | u64::from(owner.generation);
        self.owner.store(owner, SeqCst);
    }
}

impl Locked<'_> {
    /// Everything that live processes have of a port.
    pub fn ports(&mut self, space: PortSpace, port: u16) -> Vec<ClaimedPort> {
        let mut found = Vec::new();
        self.walk(bucket(space, port), |it, _| {
            if (it.claim.space, it.claim.address.port()) == (space, port) {
                found.push(it);
            }
            false
        });
        found
    }

    /// Notes that an id of this process has a port.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room.
    pub fn add_port(&mut self, claim: &Claim) -> io::Result<()> {
        let index = self.allocate()?;
        let Some(entry) = self.of.entry(index) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        let bucket = &self.of.table().buckets[bucket(claim.space, claim.address.port())];
        entry.write(Kind::Port, port_words(claim, false));
        entry.next.store(bucket.load(Relaxed), Relaxed);
        entry.own(self.of.me);
        bucket.store(index + 1, SeqCst);
        Ok(())
    }

    /// Notes that an id of this process listens at its port.
    pub fn listen(&mut self, claim: &Claim) {
        let me = self.of.me;
        self.walk(bucket(claim.space, claim.address.port()), |it, entry| {
            if it.owner == me && it.claim.id == claim.id {
                entry.words[1].fetch_or(LISTENS, SeqCst);
            }
            false
        });
    }

    /// The id of this claim, one of this process, has its port with other options from now on.
    pub fn change_port(&mut self, claim: &Claim) {
        let me = self.of.me;
        self.walk(bucket(claim.space, claim.address.port()), |it, entry| {
            if it.owner == me && it.claim.id == claim.id {
                entry.write(Kind::Port, port_words(claim, it.listens));
                entry.own(me);
            }
            false
        });
    }

    /// Hands an id's claim of this process over to another id: one that the process has at another device.
    pub fn hand_over(&mut self, claim: &Claim, id: CommId, to: Announcer) {
        let me = self.of.me;
        self.walk(bucket(claim.space, claim.address.port()), |it, entry| {
            if it.owner == me && it.claim.id == claim.id {
                entry.write(Kind::Port, port_words(&Claim { id, ..it.claim }, it.listens));
                entry.own(to);
            }
            false
        });
    }

    /// Removes an id's claim of this process.
    pub fn remove_port(&mut self, claim: &Claim) {
        let me = self.of.me;
        let bucket = bucket(claim.space, claim.address.port());
        self.walk(bucket, |it, _| it.owner == me && it.claim.id == claim.id);
    }

    /// Keeps a connection of this process where others find it. `None` if there is no room.
    pub fn keep(&mut self, connection: &Connection) -> Option<Kept> {
        let index = self.allocate().ok()?;
        let entry = self.of.entry(index)?;
        entry.write(Kind::Connection, connection_words(connection));
        self.connections(connection.ports.0).fetch_add(1, SeqCst);
        entry.own(self.of.me);
        Some(Kept(index))
    }

    /// Changes the record of a connection. Its ports stay the same. A process that dies during this leaves the old or
    /// the new record.
    pub fn change(&mut self, Kept(index): Kept, connection: &Connection) {
        let Some(entry) = self.of.entry(index) else { return };
        let words = connection_words(connection);
        // The message for its peer is one word.
        for (word, value) in entry.words.iter().zip(words).rev() {
            word.store(value, Relaxed);
        }
    }

    /// Removes the record of a connection, or of a request.
    pub fn forget(&mut self, Kept(index): Kept) {
        self.free(index);
    }

    /// Removes everything that dead processes have left, and hands out their connections. The caller knows that those
    /// in `ended` have ended, though they may hold locks for another moment.
    pub fn reap(&mut self, ended: &[Announcer], mut each: impl FnMut(Connection)) {
        // First handle the entries that others wait for.
        let mut checked: Option<(Announcer, bool)> = None;
        for index in 0..self.of.high() {
            let Some(entry) = self.of.entry(index) else { break };
            let Some(owner) = entry.owner() else { continue };
            let lives = match checked {
                Some((known, lives)) if known == owner => lives,
                _ => !ended.contains(&owner) && self.of.lives(owner),
            };
            checked = Some((owner, lives));
            // A port is in a chain, and every walk along the chain removes it.
            if lives || entry.is(Kind::Port) {
                continue;
            }
            let is_connection = entry.is(Kind::Connection);
            let left = is_connection.then(|| connection(&entry.words())).flatten();
            self.free(index);
            left.into_iter().for_each(&mut each);
        }
        for bucket in 0..BUCKETS {
            self.walk(bucket, |it, _| ended.contains(&it.owner));
        }
    }

    /// Whether a dead process has left a connection. The caller knows that those in `ended` have ended.
    pub fn has_connections_left(&self, ended: &[Announcer]) -> bool {
        let is_left = |entry: &Entry| {
            let owner = entry.owner().filter(|_| entry.is(Kind::Connection));
            owner.is_some_and(|owner| ended.contains(&owner) || !self.of.lives(owner))
        };
        (0..self.of.high()).any(|index| self.of.entry(index).is_some_and(is_left))
    }

    /// A live process that has a connection at a port of this host.
    pub fn connected_at(&mut self, port: u16) -> Option<Announcer> {
        let of = self.of;
        if self.connections(port).load(SeqCst) == 0 {
            return None;
        }
        let is_there = |index| {
            let entry = of.entry(index).filter(|entry| entry.is(Kind::Connection))?;
            let connection = connection(&entry.words()).filter(|it| it.ports.0 == port);
            connection.and(live(of, index, Kind::Connection)).map(|(_, owner)| owner)
        };
        (0..of.high()).find_map(is_there)
    }

    /// All ports that live processes have.
    pub fn all_ports(&mut self) -> Vec<ClaimedPort> {
        let of = self.of;
        let of_index = |index| {
            let (entry, owner) = live(of, index, Kind::Port)?;
            claimed(owner, &entry.words())
        };
        (0..of.high()).filter_map(of_index).collect()
    }

    /// All connections that live processes have.
    pub fn all_connections(&mut self) -> Vec<(Announcer, Connection)> {
        let of = self.of;
        let of_index = |index| {
            let (entry, owner) = live(of, index, Kind::Connection)?;
            Some((owner, connection(&entry.words())?))
        };
        (0..of.high()).filter_map(of_index).collect()
    }

    /// Walks along a chain, and removes entries without a live owner and those that `take_out` selects.
    fn walk(&mut self, bucket: usize, mut take_out: impl FnMut(ClaimedPort, &Entry) -> bool) {
        let of = self.of;
        let mut link = &of.table().buckets[bucket];
        // Another process may have made the chain a circle.
        for _ in 0..ENTRIES {
            let Some(index) = link.load(Acquire).checked_sub(1) else { return };
            let Some(entry) = of.entry(index) else {
                link.store(0, SeqCst);
                return;
            };
            let owner = entry.owner().filter(|owner| entry.is(Kind::Port) && of.lives(*owner));
            let found = owner.and_then(|owner| claimed(owner, &entry.words()));
            if found.is_some_and(|found| !take_out(found, entry)) {
                link = &entry.next;
                continue;
            }
            link.store(entry.next.load(Relaxed), SeqCst);
            if entry.is(Kind::Port) {
                self.free(index);
            }
        }
    }

    fn connections(&self, port: u16) -> &AtomicU32 {
        &self.of.table().connections[usize::from(port)]
    }

    /// A free entry, with memory behind it.
    fn allocate(&mut self) -> io::Result<u32> {
        let table = self.of.table();
        let low = table.low.load(Relaxed).min(u64::from(self.of.high())) as u32;
        for index in low..ENTRIES as u32 {
            if u64::from(index) >= table.room.load(Relaxed) {
                let first = size_of::<Table>() - size_of::<[Entry; ENTRIES]>();
                let entry = size_of::<Entry>();
                take_room(&self.of.file, first + index as usize * entry, CHUNK * entry)?;
                table.room.store((u64::from(index) + CHUNK as u64).min(ENTRIES as u64), SeqCst);
            }
            let Some(entry) = self.of.entry(index) else { break };
            if entry.owner().is_none() {
                table.low.store(u64::from(index) + 1, Relaxed);
                table.high.fetch_max(u64::from(index) + 1, Relaxed);
                return Ok(index);
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    fn free(&mut self, index: u32) {
        let Some(entry) = self.of.entry(index) else { return };
        self.of.table().low.fetch_min(index.into(), Relaxed);
        let kept = entry.is(Kind::Connection).then(|| connection(&entry.words())).flatten();
        let owned = entry.owner.swap(0, SeqCst) & OWNED != 0;
        if let Some(Connection { ports, .. }) = kept.filter(|_| owned) {
            let less = |count: u32| count.checked_sub(1);
            let _ = self.connections(ports.0).fetch_update(SeqCst, SeqCst, less);
        }
    }
}

/// An entry of this kind of a live process.
fn live(of: &Connections, index: u32, kind: Kind) -> Option<(&Entry, Announcer)> {
    let entry = of.entry(index).filter(|entry| entry.is(kind))?;
    let owner = entry.owner().filter(|owner| of.lives(*owner))?;
    Some((entry, owner))
}
