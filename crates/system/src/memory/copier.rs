//! The copier moves bytes by instructions if this process has them mapped, and otherwise by the kernel.

use std::io;
use std::ops::Range;
use std::sync::Once;

use super::own::{self, Readable};
use super::{
    Destination, Fault, PeerMemory, Pipe, Shadow, Source, find_here, one_store, page_size,
};
use crate::one_step::{Write, Written};
use crate::sanitizers::{self, Access};
use crate::say;
use crate::this_process::by_number;
use parking_lot::Mutex;

/// How bytes are moved.
#[derive(Debug)]
pub enum Copier {
    /// `process_vm_readv` and `process_vm_writev`, also from and to other processes.
    Kernel,
    /// Through pipes, in this process only, if the kernel forbids the above.
    Pipes(Mutex<Vec<Pipe>>),
    /// By the copier inside: a sanitizer is told of each copy.
    Watched(Box<Self>),
}

impl Copier {
    /// The kernel's way if it works on this process, otherwise pipes.
    pub fn best() -> io::Result<Self> {
        let probe = 0x7472_616e_736f_6d21_u64;
        let mut copy = 0_u64;
        let (from, to) = (&raw const probe as u64, &raw mut copy as u64);
        match transfer(Direction::Read, Whose::This, to, from, 8) {
            Ok(8) if copy == probe => Ok(Self::Kernel),
            _ => Self::pipes(),
        }
    }

    /// Pipes, whatever the kernel allows.
    pub fn pipes() -> io::Result<Self> {
        // One is made now, so that a process without free descriptors learns it early.
        Ok(Self::Pipes(Mutex::new(vec![Pipe::new()?])))
    }

    /// The same copier. If a sanitizer watches this process's memory, it is told of each copy.
    pub fn watched(self) -> Self {
        if sanitizers::are_told() { Self::Watched(Box::new(self)) } else { self }
    }

    /// Whether it copies from and to other processes too.
    pub fn reaches_others(&self) -> bool {
        match self {
            Self::Kernel => true,
            Self::Pipes(_) => false,
            Self::Watched(copier) => copier.reaches_others(),
        }
    }

    /// Copies `length` bytes. If both sides are Transom's own or shared, this takes no system call.
    ///
    /// # Errors
    ///
    /// Which side could not be reached; some of the bytes may have been copied.
    #[inline(always)]
    pub fn copy(&self, to: Destination<'_>, from: Source<'_>, length: u64) -> Result<(), Fault> {
        match (to.resolved(length), from.resolved(length)) {
            (Destination::Own(to), Source::Own(from)) => own::copy(to, from, length),
            (to, from) => self.copy_by_kernel(to, from, length),
        }
    }

    /// Copies bytes that this process does not have mapped on both sides.
    #[inline(never)]
    fn copy_by_kernel(
        &self,
        to: Destination<'_>,
        from: Source<'_>,
        length: u64,
    ) -> Result<(), Fault> {
        if let Self::Watched(copier) = self {
            return copier.copy_watched(to, from, length);
        }
        match (to, from) {
            // Only the kernel can.
            (Destination::Peer(..), _) if !matches!(self, Self::Kernel) => Err(Fault::Destination),
            (_, Source::Peer(..)) if !matches!(self, Self::Kernel) => Err(Fault::Source),
            (Destination::Peer(peer, to), from) => {
                self.copy_to_peer(peer, to, from.address(length)?, length)
            }
            (to, Source::Peer(peer, from)) => {
                self.copy_from_peer(peer, to.address(length)?, from, length)
            }
            (to, from) => self.copy_here(to.address(length)?, from.address(length)?, length),
        }
    }

    /// The same, and tells a sanitizer.
    fn copy_watched(
        &self,
        to: Destination<'_>,
        from: Source<'_>,
        length: u64,
    ) -> Result<(), Fault> {
        if let Source::Program(from) = from {
            sanitizers::begins(from, length, Access::Read);
        }
        if let Destination::Program(to) = to {
            sanitizers::begins(to, length, Access::Write);
        }
        self.copy_by_kernel(to, from, length)?;
        if let Source::Program(from) = from {
            sanitizers::has_ended(from, length, Access::Read);
        }
        if let Destination::Program(to) = to {
            sanitizers::has_ended(to, length, Access::Write);
        }
        Ok(())
    }

    /// Lets the kernel copy within this process.
    fn copy_here(&self, to: u64, from: u64, length: u64) -> Result<(), Fault> {
        match self {
            Self::Kernel => {
                let done = transfer(Direction::Write, Whose::This, from, to, length);
                if done.is_ok_and(|done| done == length) {
                    return Ok(());
                }
                // Only a program's own system calls reach memory of devices, such as dma-bufs. And a pipe tells which
                // side is missing.
                match Pipe::new() {
                    Ok(pipe) => pipe.copy(to, from, length),
                    Err(_) if is_readable(Whose::This, from, length) => Err(Fault::Destination),
                    Err(_) => Err(Fault::Source),
                }
            }
            Self::Pipes(pipes) => {
                let kept = pipes.lock().pop().and_then(Pipe::unless_closed);
                let pipe = kept.map_or_else(Pipe::new, Ok).map_err(|_| Fault::Source)?;
                pipe.copy(to, from, length)?;
                pipes.lock().push(pipe);
                Ok(())
            }
            Self::Watched(copier) => copier.copy_here(to, from, length),
        }
    }

    /// Stores a word in private memory of this process, by one store if the kernel has one (rule AT-18).
    ///
    /// # Errors
    ///
    /// That it could not be reached. The word is unchanged.
    pub fn store_word(&self, to: u64, word: u64) -> Result<(), Fault> {
        let copy =
            || self.copy_by_kernel(Destination::Program(to), (&word.to_ne_bytes()[..]).into(), 8);
        if !matches!(self, Self::Watched(_)) {
            return one_store::store_word(to, word).unwrap_or_else(copy);
        }
        sanitizers::begins(to, 8, Access::Write);
        match one_store::store_word(to, word) {
            None => copy(),
            Some(stored) => {
                stored?;
                sanitizers::has_ended(to, 8, Access::Write);
                Ok(())
            }
        }
    }

    /// Copies pieces, one after the other, to memory of the program from `to` on.
    pub fn copy_pieces(&self, to: u64, pieces: &[&[u8]]) -> Result<(), Fault> {
        let whole: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let to @ Destination::Own(_) = Destination::Program(to).resolved(whole) {
            let mut done = 0;
            return pieces.iter().try_for_each(|piece| {
                let (to, length) = (to.behind(done), piece.len() as u64);
                done += length;
                self.copy(to, (*piece).into(), length)
            });
        }
        let mut done = 0;
        for group in pieces.chunks(MAX_SLICES) {
            let length = group.iter().map(|piece| piece.len() as u64).sum();
            let whole = matches!(self, Self::Kernel)
                && transfer_slices(to + done, group).is_ok_and(|moved| moved == length);
            if !whole {
                let mut to = to + done;
                for piece in group {
                    let length = piece.len() as u64;
                    self.copy(Destination::Program(to), (*piece).into(), length)?;
                    to += length;
                }
            }
            done += length;
        }
        Ok(())
    }

    /// Copies from memory of the program at `from` to ranges of `bytes`, one after the other.
    pub fn copy_apart(
        &self,
        bytes: &mut [u8],
        ranges: &[Range<usize>],
        from: u64,
    ) -> Result<(), Fault> {
        let whole: u64 = ranges.iter().map(|range| range.len() as u64).sum();
        if let Some(first) = find_here(from, whole) {
            let mut from = first.as_ptr().cast_const();
            return ranges.iter().try_for_each(|range| {
                let length = range.len() as u64;
                // SAFETY: as in `Side::resolved`; the ranges together are as long as what was found.
                let part = unsafe { Readable::shared(from, length) };
                from = from.wrapping_add(range.len());
                self.copy((&mut bytes[range.clone()]).into(), Source::Own(part), length)
            });
        }
        let mut done = 0;
        for group in ranges.chunks(MAX_SLICES) {
            let length = group.iter().map(|range| range.len() as u64).sum();
            let whole = matches!(self, Self::Kernel)
                && transfer_apart(bytes, group, from + done).is_ok_and(|moved| moved == length);
            if !whole {
                let mut from = from + done;
                for range in group {
                    let length = range.len() as u64;
                    let to = &mut bytes[range.clone()];
                    self.copy(to.into(), Source::Program(from), length)?;
                    from += length;
                }
            }
            done += length;
        }
        Ok(())
    }

    /// Copies from this process to memory of another; only [`Copier::Kernel`] can.
    #[inline]
    fn copy_to_peer(
        &self,
        peer: &PeerMemory,
        to: u64,
        from: u64,
        length: u64,
    ) -> Result<(), Fault> {
        if peer.shadow.is_some_and(|shadow| !allows(shadow, peer.pid, to, length)) {
            return Err(Fault::Destination);
        }
        match transfer(Direction::Write, Whose::Peer(peer.pid), from, to, length) {
            Ok(done) if done == length => Ok(()),
            _ if is_readable(Whose::This, from, length) => Err(Fault::Destination),
            _ => Err(Fault::Source),
        }
    }

    /// Copies from memory of another process to this one; only [`Copier::Kernel`] can.
    #[inline]
    fn copy_from_peer(
        &self,
        peer: &PeerMemory,
        to: u64,
        from: u64,
        length: u64,
    ) -> Result<(), Fault> {
        if peer.shadow.is_some_and(|shadow| !allows(shadow, peer.pid, from, length)) {
            return Err(Fault::Source);
        }
        match transfer(Direction::Read, Whose::Peer(peer.pid), to, from, length) {
            Ok(done) if done == length => Ok(()),
            _ if is_readable(Whose::Peer(peer.pid), from, length) => Err(Fault::Destination),
            _ => Err(Fault::Source),
        }
    }
}

/// Whether other processes of this user may copy from and to this one only if it consents. This is so in Yama's scope
/// 1. In higher scopes no consent helps. In scope 0, and without Yama, none is needed.
pub fn needs_consent() -> bool {
    let scope = std::fs::read("/proc/sys/kernel/yama/ptrace_scope");
    scope.is_ok_and(|scope| scope.trim_ascii() == b"1")
}

/// Says once that data takes the slow way, what that costs, and what to do about it.
pub fn say_slow(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        say(format_args!(
            "{why}; private memory goes through rings in place of that, and a \
             WRITE or READ waits for the process that it is for: microseconds while that process polls or sleeps, milliseconds \
             a message if it looks at its memory on a busy processor. Copying directly needs \
             kernel.yama.ptrace_scope to be 0 or 1, or CAP_SYS_PTRACE at both ends, and a seccomp \
             profile that allows process_vm_readv and process_vm_writev"
        ));
    });
}

/// Lets the other processes of this user copy from and to this one. Yama asks for it if `kernel.yama.ptrace_scope` is
/// 1. It also lets them trace this process, as they may in scope 0 and without Yama.
pub fn consent() {
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Whether this process may copy from and to another one; `probe` is readable there.
pub fn may_copy_with(pid: u32, probe: u64) -> bool {
    let mut byte = 0_u8;
    transfer(Direction::Read, Whose::Peer(pid), &raw mut byte as u64, probe, 1) == Ok(1)
}

/// Whose memory a call reaches.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    /// This process's own.
    This,
    /// That of another process, by its PID. If its first thread has ended, the kernel finds no memory by that. Then
    /// that process copies by itself.
    Peer(u32),
}

impl Whose {
    /// Makes a call by its number.
    #[inline]
    fn reached(self, call: impl Fn(u32) -> libc::c_long) -> libc::c_long {
        match self {
            Self::This => by_number(call),
            Self::Peer(pid) => call(pid),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// Makes one call of `process_vm_readv` or `process_vm_writev`, and returns the number of bytes moved.
#[inline]
fn transfer(
    direction: Direction,
    whose: Whose,
    near: u64,
    far: u64,
    length: u64,
) -> Result<u64, ()> {
    let near = libc::iovec { iov_base: near as *mut _, iov_len: length as usize };
    let far = libc::iovec { iov_base: far as *mut _, iov_len: length as usize };
    // SAFETY: the kernel checks every address of both lists, and answers EFAULT if one is not mapped or not allowed.
    // The destination is program memory that a work request or a grant names, or memory owned by the caller; the
    // program has given it up for such writes, and this process holds no Rust reference into it. The call is made by
    // number, because sanitizers would take one by name for the program's own.
    let done = whose.reached(|pid| unsafe {
        let call = match direction {
            Direction::Read => libc::SYS_process_vm_readv,
            Direction::Write => libc::SYS_process_vm_writev,
        };
        libc::syscall(call, pid, &raw const near, 1_usize, &raw const far, 1_usize, 0_usize)
    });
    u64::try_from(done).map_err(|_| ())
}

/// Reads a word of a process, and also stores it at `landing` in this process, if that is given. Returns the
/// word, and whether it was stored. `None` if the word cannot be read.
pub(crate) fn read_word(whose: Whose, address: u64, landing: Option<u64>) -> Option<(u64, bool)> {
    let mut word = 0_u64;
    let vector = |first: u64| libc::iovec { iov_base: first as *mut _, iov_len: 8 };
    let near = [vector(&raw mut word as u64), vector(landing.unwrap_or(0))];
    let far = [vector(address); 2];
    let count = if landing.is_some() { 2 } else { 1 };
    // SAFETY: as in `transfer`; the word is this function's.
    let done = whose.reached(|pid| unsafe {
        libc::process_vm_readv(pid as i32, near.as_ptr(), count, far.as_ptr(), count, 0) as i64
    });
    (done >= 8).then_some((word, done == 16))
}

/// Writes a word of another process, unless the write has been revoked. `None` if the word cannot be written. Who looks
/// at it by instructions may see a half of each word (see `one_store`).
pub(crate) fn write_word(pid: u32, address: u64, write: &Write) -> Option<Written> {
    let far = libc::iovec { iov_base: address as *mut _, iov_len: 8 };
    // SAFETY: as in `transfer`; the vector names the value beside it, or nothing.
    let done = unsafe { libc::process_vm_writev(pid as i32, write.vector(), 1, &far, 1, 0) };
    match done {
        8 => Some(Written::All),
        0 => Some(Written::Nothing),
        _ => None,
    }
}

/// Most slices that one call writes.
const MAX_SLICES: usize = 64;

/// Writes at most [`MAX_SLICES`] slices in one call of `process_vm_writev`, and returns the number of bytes moved.
fn transfer_slices(to: u64, slices: &[&[u8]]) -> Result<u64, ()> {
    let mut near = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_SLICES];
    let mut length = 0;
    for (vector, slice) in near.iter_mut().zip(slices) {
        *vector = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
        length += slice.len();
    }
    let far = libc::iovec { iov_base: to as *mut _, iov_len: length };
    let count = slices.len().min(MAX_SLICES) as u64;
    // SAFETY: the slices are only read and live as long as the borrow; the kernel checks the
    // destination, which is program memory that a grant names, as in `transfer`.
    let done = by_number(|own| unsafe {
        libc::process_vm_writev(own as i32, near.as_ptr(), count, &far, 1, 0) as i64
    });
    u64::try_from(done).map_err(|_| ())
}

/// Reads into at most [`MAX_SLICES`] ranges of `bytes` in one call of `process_vm_readv`, and returns the number of
/// bytes moved.
fn transfer_apart(bytes: &mut [u8], ranges: &[Range<usize>], from: u64) -> Result<u64, ()> {
    let mut near = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_SLICES];
    let mut length = 0;
    for (vector, range) in near.iter_mut().zip(ranges) {
        let part = &mut bytes[range.clone()];
        *vector = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
        length += part.len();
    }
    let far = libc::iovec { iov_base: from as *mut _, iov_len: length };
    let count = ranges.len().min(MAX_SLICES) as u64;
    // SAFETY: the ranges lie in `bytes`, which this function borrows alone; the kernel checks the
    // source, which is program memory that a grant names, as in `transfer`.
    let done = by_number(|own| unsafe {
        libc::process_vm_readv(own as i32, near.as_ptr(), count, &far, 1, 0) as i64
    });
    u64::try_from(done).map_err(|_| ())
}

/// Whether a process's AddressSanitizer lets the program use a range. If not, or if it cannot be asked from here, that
/// process decides.
#[cold]
fn allows(shadow: Shadow, pid: u32, address: u64, length: u64) -> bool {
    shadow.allows(address, length, |from, notes| {
        let (to, count) = (notes.as_mut_ptr() as u64, notes.len() as u64);
        transfer(Direction::Read, Whose::Peer(pid), to, from, count) == Ok(count)
    })
}

/// Whether all pages of a range can be read; asked after a copy has failed.
fn is_readable(whose: Whose, address: u64, length: u64) -> bool {
    let size = page_size();
    let Some(last) = address.checked_add(length.saturating_sub(1)) else { return false };
    let pages = (address / size..=last / size).map(|page| (page * size).max(address));
    let mut byte = 0_u8;
    pages
        .into_iter()
        .all(|at| transfer(Direction::Read, whose, &raw mut byte as u64, at, 1) == Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copiers() -> [Copier; 2] {
        [Copier::best().unwrap(), Copier::pipes().unwrap()]
    }

    #[test]
    fn bytes_arrive_whole() {
        for copier in copiers() {
            let from: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
            let mut to = vec![0_u8; from.len()];
            let (there, here) = (to.as_mut_ptr() as u64, from.as_ptr() as u64);
            let length = from.len() as u64;
            copier.copy(Destination::Program(there), Source::Program(here), length).unwrap();
            assert!(to == from, "{copier:?}");
            to.fill(0);
            copier.copy((&mut *to).into(), (&*from).into(), length).unwrap();
            assert!(to == from, "{copier:?}");
        }
    }

    /// Rules: MR-40
    #[test]
    fn unmapped_memory_is_an_error_on_the_right_side() {
        for copier in copiers() {
            let mut buffer = [0_u8; 64];
            let copied = copier.copy((&mut buffer[..]).into(), Source::Program(4096), 64);
            assert_eq!(copied, Err(Fault::Source), "{copier:?}");
            let copied = copier.copy(Destination::Program(4096), (&buffer[..]).into(), 64);
            assert_eq!(copied, Err(Fault::Destination), "{copier:?}");
        }
    }
}
