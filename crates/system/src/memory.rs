//! Copies to and from program memory that end in an error, not a crash, when memory is gone.
//!
//! The program may unmap a registered page at any time (rule MR-40). So our own instructions never touch private memory
//! of the program: the kernel copies, and answers `EFAULT`. This costs a system call of 0.3 to 1.5 µs, and needs no
//! signal handler, which a program could replace. Instructions copy Transom's own memory (rings and buffers) and shared
//! memory ([`SharedMemory`]): of that, this process has a mapping of its own, which cannot go away.
//!
//! A **place** names granted memory. It is an address of the program or, with the bit [`SHARED`], an offset in the file
//! of its process's shared memory.

mod allocation;
mod copier;
mod maps;
mod one_store;
mod own;
mod pipe;
mod reader;
mod room;
mod shadow;
mod shared;

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub use allocation::Allocation;
pub use copier::{Copier, consent, may_copy_with, needs_consent, say_slow};
pub(crate) use copier::{Whose, read_word, write_word};
pub use maps::{Mapping, Maps};
use own::Bytes;
pub use own::{Readable, Writable};
pub use pipe::Pipe;
pub use reader::{Part, Reader};
pub use room::{Sharing, begin_sharing, is_shared, sharing};
pub use shadow::Shadow;
pub use shared::{FILE_BYTES, SharedMemory};
use transom_device::protection::{Place, SHARED};

use crate::this_process::this_process;

/// Bytes of a page, by the kernel: 4,096 on x86-64, up to 65,536 on aarch64.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// For the fuzz targets.
#[cfg(debug_assertions)]
pub(crate) fn parse_maps_line(line: &[u8]) {
    maps::Line::parse(line);
}

/// Which side of a copy could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Where the bytes come from.
    #[error("where the bytes come from cannot be read")]
    Source,
    /// Where they go.
    #[error("where the bytes go cannot be written")]
    Destination,
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub enum Side<'a, Own> {
    /// Memory of Transom's own, which nobody can take away.
    Own(Own),
    /// Memory of the program, by address.
    Program(u64),
    /// Memory of another program, by its process and address there.
    Peer(&'a PeerMemory, u64),
}

/// Where the bytes of a copy come from.
pub type Source<'a> = Side<'a, Readable<'a>>;

/// Where they go.
pub type Destination<'a> = Side<'a, Writable<'a>>;

/// The memory of another process, as far as it can be reached from here.
#[derive(Debug)]
pub struct PeerMemory {
    /// Its PID, which names it to the kernel for copies.
    pub pid: u32,
    /// Its shared memory, which this process maps too.
    pub shared: Option<Arc<SharedMemory>>,
    /// The pipe that wakes its background thread.
    pub wake: OwnedFd,
    /// The notes of its AddressSanitizer, if it has one.
    pub shadow: Option<Shadow>,
}

/// Maps the shared memory of a process, by its PID and the descriptor it has there. This process's own is mapped once
/// for all its devices.
///
/// # Errors
///
/// The system's error, or that it is no such file.
pub fn attach_shared(pid: u32, descriptor: u32) -> io::Result<Arc<SharedMemory>> {
    match room::own_memory() {
        Some(own) if pid == this_process() && own.is_behind(descriptor) => Ok(own.clone()),
        _ => Ok(Arc::new(SharedMemory::attach(pid, descriptor)?)),
    }
}

/// The place of program memory that is about to be registered. Shared memory is kept from now on until [`leave`].
pub fn enter(address: u64, length: u64, maps: &Maps) -> Place {
    room::pin(address, length, maps).map_or(Place::Memory(address), Place::Shared)
}

/// No region has that memory any more.
pub fn leave(place: Place) {
    if let Place::Shared(offset) = place {
        room::unpin(offset);
    }
}

/// This process's own address of granted memory of its own, reached without the kernel.
#[inline]
fn find_here(place: u64, length: u64) -> Option<NonNull<u8>> {
    if place & SHARED == 0 { None } else { room::own_memory()?.find(place & !SHARED, length) }
}

/// The program's address of granted memory of this process.
pub fn address_of(place: u64) -> Option<u64> {
    if place & SHARED == 0 { Some(place) } else { room::address_of(place & !SHARED) }
}

/// Eight bytes of this process, if they are shared and aligned.
#[inline]
pub fn shared_word(place: u64) -> Option<&'static AtomicU64> {
    let found = find_here(place, 8).filter(|_| place.is_multiple_of(8))?;
    // SAFETY: mapped as long as the process lives, aligned, and any bytes make a number.
    Some(unsafe { found.cast().as_ref() })
}

/// Replaces a word by `update` of it, atomically also to the instructions of its program. Returns the old value.
#[inline]
pub fn change_word(word: &AtomicU64, mut update: impl FnMut(u64) -> u64) -> u64 {
    word.fetch_update(SeqCst, SeqCst, |old| Some(update(old))).unwrap_or_else(|found| found)
}

impl PeerMemory {
    #[inline]
    fn find(&self, place: u64, length: u64) -> Option<NonNull<u8>> {
        if place & SHARED == 0 { None } else { self.shared.as_ref()?.find(place & !SHARED, length) }
    }

    /// Eight bytes of it, if they are shared and aligned.
    #[inline]
    pub fn shared_word(&self, place: u64) -> Option<&AtomicU64> {
        let found = self.find(place, 8).filter(|_| place.is_multiple_of(8))?;
        // SAFETY: mapped as long as the peer is known, aligned, and any bytes make a number.
        Some(unsafe { found.cast().as_ref() })
    }
}

impl<Own: Bytes> Side<'_, Own> {
    /// The side as memory that this process has mapped, if it has all of it.
    #[inline(always)]
    #[must_use]
    pub fn resolved(self, length: u64) -> Self {
        let found = match self {
            Self::Own(_) => None,
            Self::Program(address) => find_here(address, length),
            Self::Peer(peer, address) => peer.find(address, length),
        };
        // SAFETY: this process's mapping of shared memory, which stays as long as the peer is known or the
        // process lives, and cannot be cut short.
        found.map_or(self, |first| Self::Own(unsafe { Own::mapped(first, length) }))
    }

    /// The address of `length` bytes, for the kernel.
    #[inline]
    fn address(self, length: u64) -> Result<u64, Fault> {
        match self {
            Self::Own(bytes) => bytes.address(length).ok_or(Own::FAULT),
            Self::Program(address) | Self::Peer(_, address) => Ok(address),
        }
    }
}

impl Destination<'_> {
    /// The rest of it, behind the first `done` bytes.
    #[inline]
    #[must_use]
    pub fn behind(self, done: u64) -> Self {
        match self {
            Self::Own(bytes) => Self::Own(bytes.behind(done)),
            Self::Program(address) => Self::Program(address + done),
            Self::Peer(peer, address) => Self::Peer(peer, address + done),
        }
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Own(bytes.into())
    }
}

impl<'a> From<&'a mut [u8]> for Destination<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::Own(bytes.into())
    }
}
