//! What the ThreadSanitizer is told. To it each half of a queue pair is a thread, which touches the program's memory
//! and is ordered with the program's threads by what they post and poll, and by nothing else.
//!
//! What orders is an address that one releases and another acquires:
//!
//! | address | released | acquired |
//! |---|---|---|
//! | [`Sync::Posted`], of a half | by a post to it | before it touches memory |
//! | [`Sync::PostedShared`] | by a post to a shared receive queue | by every receive half |
//! | [`Sync::Done`], of a half | when it, or a peer in this process, has touched memory | by a poll; by a peer in this process |
//! | [`Sync::AnyPosted`] | by posts, verbs, arming, commands to rdma_cm | before a peer's access; by polls and events |
//! | [`Sync::AnyRemote`] | by a peer's access | by polls and events |
//! | [`Sync::AnyDone`] | with [`Sync::Done`] | by verbs that end something |
//!
//! A poll orders if it finds a completion: of [`Sync::Done`], the one of that half.
//!
//! A peer may have heard in other ways than by a queue pair that it may access memory now, and the program that it has
//! done so. Of these the sanitizer knows sockets: to it all sockets of a process are one thing, which a write releases
//! and a read acquires. So an access of a peer's reads and writes nothing at a socket of ours. Of a peer in this process
//! the sanitizer knows all that it has heard, and nothing of this is needed: two of them that change the same memory
//! are ordered only by what the program has them wait for. A peer is in this process if it is of this host and this
//! process has made a queue pair of its number, at whichever of its devices.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use parking_lot::Mutex;
use transom_sanitizers::Fibers;

use super::{Access, Half, Work, posts};
use crate::{descriptor, say};

/// The sanitizer knows some 8,000 threads and fibers in all, and ends the process at one more.
const MOST: usize = 4000;

/// What orders.
#[derive(Clone, Copy)]
enum Sync {
    Posted(u32, Half),
    Done(u32, Half),
    PostedShared,
    AnyPosted,
    AnyRemote,
    AnyDone,
}

/// Addresses of ours that nothing else uses, of each device: four words for each of its queue pairs. The number of a
/// queue pair begins with that of its device.
static OF_DEVICES: [OnceLock<usize>; 256] = [const { OnceLock::new() }; 256];
/// The same of what is no queue pair's.
static OF_ALL: OnceLock<usize> = OnceLock::new();
const WORD: usize = 8;

fn room(addresses: &OnceLock<usize>, words: usize) -> usize {
    *addresses.get_or_init(|| {
        // SAFETY: a new mapping; nobody reads or writes it.
        let room = unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), words * WORD, libc::PROT_READ, kind, -1, 0)
        };
        if room == libc::MAP_FAILED { 0 } else { room as usize }
    })
}

impl Sync {
    fn address(self) -> u64 {
        let of = |qp: u32, half, which| {
            let [_, device, ..] = qp.to_be_bytes();
            let index = usize::from(qp as u16) * 4 + which + usize::from(half == Half::Receive);
            room(&OF_DEVICES[usize::from(device)], (usize::from(u16::MAX) + 1) * 4) + index * WORD
        };
        let of_all = |index| room(&OF_ALL, 4) + index * WORD;
        let address = match self {
            Self::Posted(qp, half) => of(qp, half, 0),
            Self::Done(qp, half) => of(qp, half, 2),
            Self::AnyPosted => of_all(0),
            Self::AnyRemote => of_all(1),
            Self::AnyDone => of_all(2),
            Self::PostedShared => of_all(3),
        };
        address as u64
    }
}

fn acquire(tsan: &Fibers, sync: Sync) {
    tsan.thread.acquire(sync.address());
}

fn release(tsan: &Fibers, sync: Sync) {
    tsan.thread.release(sync.address());
}

/// The fiber of each half of the queue pairs of this process, and of other halves that have touched its memory.
static FIBERS: LazyLock<Mutex<HashMap<(u32, Half), Fiber>>> = LazyLock::new(Mutex::default);
/// The process that has them. In a forked child its parent's queue pairs are another process's.
static OWNER: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy)]
struct Fiber {
    context: *mut c_void,
    /// Whether the queue pair is of this process.
    is_ours: bool,
}

// SAFETY: the sanitizer lets any thread switch to a fiber, one at a time; a half works on one thread at a time.
unsafe impl Send for Fiber {}

/// That of a half; `None` if there are too many. If it is new, `is_ours` says whether it is of this process.
fn fiber(tsan: &Fibers, qp: u32, half: Half, is_ours: bool) -> Option<Fiber> {
    let mut fibers = FIBERS.lock();
    if let Some(fiber) = fibers.get(&(qp, half)) {
        return Some(*fiber);
    }
    if fibers.len() == MOST {
        return None;
    }
    let kind = match half {
        Half::Send => "SEND",
        Half::Receive => "RECV",
    };
    let name = CString::new(format!("QP {qp:#08x} ({kind})")).ok()?;
    // SAFETY: the name is copied.
    let fiber = unsafe {
        let context = (tsan.create_fiber)(0);
        (tsan.set_fiber_name)(context, name.as_ptr());
        Fiber { context, is_ours }
    };
    fibers.insert((qp, half), fiber);
    if fibers.len() == MOST {
        say(format_args!(
            "more than {} queue pairs at work: what further ones do is hidden from ThreadSanitizer",
            MOST / 2
        ));
    }
    Some(fiber)
}

/// Whether the peer is a queue pair of this process.
fn is_peer_here(work: &Work) -> bool {
    let peer = (work.peer, work.half.other());
    work.peer_is_of_this_host && FIBERS.lock().get(&peer).is_some_and(|fiber| fiber.is_ours)
}

/// The program relies on the last byte of a WRITE to arrive last.
static LAST_BYTE_TELLS: AtomicBool = AtomicBool::new(false);

/// Says whether the program relies on the last byte of a peer's WRITE to arrive last. Then the sanitizer is not told that
/// the WRITE changes memory: no instruction of the program's says when it has seen that byte.
pub fn last_byte_tells(it_does: bool) {
    LAST_BYTE_TELLS.store(it_does, Relaxed);
}

/// Does on a fiber what the half at work does to memory of the program.
pub(super) fn touch(tsan: &Fibers, work: &Work, address: u64, length: u64, access: Access) {
    let Some(fiber) = fiber(tsan, work.qp, work.half, false) else { return };
    let remote = work.is_remote(access);
    let is_peer_here = is_peer_here(work);
    let (posted_by_peer, done_for_peer) =
        (Sync::Posted(work.peer, work.half.other()), Sync::Done(work.peer, work.half.other()));
    // To a report, whoever posted the request has called what is done for it.
    let posted = if remote { None } else { posts::find(work.half, address) };
    let calls = posted.map(|(_, calls)| calls).unwrap_or_default();
    let outer = || calls.iter().skip(1).rev();
    let innermost = calls.first().map_or(1 + touch as *const () as usize, |pc| *pc);
    let pc = innermost as *const c_void;
    const WITHOUT_ORDER: u32 = 1;
    const RELAXED: c_int = 0;
    // SAFETY: this thread comes back from the fiber before anything else; ranges are noted only. The word of an atomic
    // has just been read or written there, and it keeps its value.
    unsafe {
        let me = (tsan.current_fiber)();
        (tsan.switch_to_fiber)(fiber.context, WITHOUT_ORDER);
        acquire(tsan, Sync::Posted(work.qp, work.half));
        // What the other end has done for this comes before it, also where that is of this process.
        if is_peer_here {
            acquire(tsan, posted_by_peer);
            acquire(tsan, done_for_peer);
        }
        if work.half == Half::Receive {
            acquire(tsan, Sync::PostedShared);
        }
        if remote && !is_peer_here {
            acquire(tsan, Sync::AnyPosted);
            acquire_sockets();
        }
        outer().for_each(|pc| (tsan.func_entry)(*pc as *const c_void));
        match access {
            // A program looks at words for atomics by atomic instructions, which do not race with these.
            Access::Read if work.is_atomic() => {
                (tsan.atomic_load)(address as *const u64, RELAXED);
            }
            Access::Write if work.is_atomic() => {
                (tsan.atomic_add)(address as *mut u64, 0, RELAXED);
            }
            Access::Write if remote && LAST_BYTE_TELLS.load(Relaxed) => {}
            Access::Read => (tsan.read_range)(address as *const c_void, length as usize, pc),
            Access::Write => (tsan.write_range)(address as *const c_void, length as usize, pc),
        }
        outer().for_each(|_| (tsan.func_exit)());
        release(tsan, Sync::Done(work.qp, work.half));
        release(tsan, Sync::AnyDone);
        match remote {
            true if is_peer_here => release(tsan, done_for_peer),
            true => {
                release(tsan, Sync::AnyRemote);
                release_sockets();
            }
            false => {}
        }
        (tsan.switch_to_fiber)(me, WITHOUT_ORDER);
    }
}

/// A post to this half, or to a shared receive queue.
pub(super) fn posted(tsan: &Fibers, qp: Option<u32>, half: Half) {
    release(tsan, qp.map_or(Sync::PostedShared, |qp| Sync::Posted(qp, half)));
    released(tsan);
}

pub(super) fn released(tsan: &Fibers) {
    release(tsan, Sync::AnyPosted);
}

pub(super) fn acquired_all(tsan: &Fibers) {
    acquire(tsan, Sync::AnyDone);
}

/// A poll that has found completions: with them comes what any program may have told its peer.
pub(super) fn polled(tsan: &Fibers) {
    acquire(tsan, Sync::AnyPosted);
    acquire(tsan, Sync::AnyRemote);
}

/// A command to the connection manager. A peer that hears of it may post, write to a socket, or connect in its turn.
pub(super) fn peers_are_told(tsan: &Fibers) {
    released(tsan);
    release_sockets();
}

/// An event of the connection manager: as the poll of a message, and what a peer may have heard by a socket before.
pub(super) fn peers_have_told(tsan: &Fibers) {
    polled(tsan);
    acquire_sockets();
}

/// One of them.
pub(super) fn completed(tsan: &Fibers, qp: u32, half: Option<Half>) {
    let halves = half.map_or([Half::Send, Half::Receive], |half| [half; 2]);
    halves.into_iter().for_each(|half| acquire(tsan, Sync::Done(qp, half)));
}

/// A queue pair has been made. To the sanitizer a fiber begins with what its maker has done so far: one that is made
/// later would come behind what the program should have waited with.
pub(super) fn made(tsan: &Fibers, qp: u32) {
    let me = std::process::id();
    if OWNER.swap(me, Relaxed) != me {
        FIBERS.lock().clear();
    }
    fiber(tsan, qp, Half::Send, true);
    fiber(tsan, qp, Half::Receive, true);
}

/// A queue pair is gone.
pub(super) fn forget(tsan: &Fibers, qp: u32) {
    let mut fibers = FIBERS.lock();
    for half in [Half::Send, Half::Receive] {
        if let Some(fiber) = fibers.remove(&(qp, half)) {
            // SAFETY: it was made by this, and nobody is on it: the queue pair has ended.
            unsafe { (tsan.destroy_fiber)(fiber.context) };
        }
    }
}

/// A socket that leads nowhere; -1 if there is none.
static SOCKET: LazyLock<c_int> = LazyLock::new(|| {
    // SAFETY: these calls take plain numbers. They are those of the C library, which the sanitizer sees.
    unsafe {
        let low = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if low < 0 {
            return -1;
        }
        let free = descriptor::high(OwnedFd::from_raw_fd(low)).into_raw_fd();
        let again = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let high = libc::dup3(again, free, libc::O_CLOEXEC);
        libc::close(again);
        high
    }
});

/// What other threads of the program have written to sockets comes before this.
fn acquire_sockets() {
    // SAFETY: nothing is read.
    unsafe { libc::read(*SOCKET, null_mut(), 0) };
}

/// This comes before what the program reads from sockets.
fn release_sockets() {
    // SAFETY: nothing is written. Another file that has the number by now takes no urgent data, or none of no bytes.
    unsafe { libc::send(*SOCKET, null(), 0, libc::MSG_OOB | libc::MSG_NOSIGNAL) };
}
