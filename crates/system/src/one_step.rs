//! Atomics on private memory, which the kernel copies. Each is a read and a write with no other access in between (rule
//! AT-09).
//!
//! A process that carries out an atomic of a device has the **turn** of that device meanwhile: the device's own process
//! for a message, or an initiator that reaches its memory directly. The turn lies in the device's segment.
//!
//! The holder of the turn may be killed or stopped at any instruction, and nobody waits for that:
//!
//! * if it has died, the turn is taken from it. No system call of it is under way any more;
//! * if it is stopped (by a signal or a debugger), the turn is taken too. A stopped process is in no system call, but
//!   may be just before the one that writes. So that write is **revocable**: its length stands in the segment, and the
//!   kernel reads it when the call begins. A process that takes the turn first writes a zero there, and then makes sure
//!   that the other is stopped. When that one goes on, it writes nothing, sees that, and begins again.
//!
//! If it waits for the kernel or for a processor, others wait for it. And the write of the device's own process is not
//! revocable, because it is one store for whoever looks (rule AT-18), and the kernel has no revocable one. If that
//! process is stopped in the microsecond in which it has the turn, others wait until it goes on.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use transom_device::protection::{Announcer, PROCESSES, Waiter};

use crate::fork;

/// How many rounds a wait lasts until it checks once whether the other side is dead or stopped.
const ASKS_EVERY: u32 = 64;
/// Bytes of a word.
const WORD: u64 = 8;
/// In [`Write::length`]: it has not begun. The low bits hold a number of the turn.
const NOT_BEGUN: u64 = 1 << 63;

/// How a caller waits for others, and checks their threads.
pub trait Others: Waiter {
    /// Whether a thread of a process is stopped. Then it is in no system call, and does not go on before somebody
    /// continues it.
    fn is_stopped(&self, process: Announcer, thread: u32) -> bool;
}

/// The turn of a device, and the writes of its holders.
#[repr(C)]
pub struct OneStep {
    /// Zero, or the holder: its slot, its generation, and a number that no other turn of it has.
    turn: AtomicU64,
    _apart: [u64; 7],
    /// By the slots of processes. Each writes one word at a time.
    writes: [Write; PROCESSES],
}

/// The write of a process that has the turn. The kernel takes the first two fields for a `struct iovec`.
#[repr(C, align(64))]
pub struct Write {
    /// Where its process has [`Write::value`].
    first: AtomicU64,
    /// How many bytes. None if it was revoked.
    length: AtomicU64,
    value: AtomicU64,
    /// The thread of the process. Zero if its write cannot be revoked.
    thread: AtomicU32,
}

impl Write {
    /// The `struct iovec` for the kernel, of bytes to write from. It may change until the call.
    pub fn vector(&self) -> *const libc::iovec {
        std::ptr::from_ref(self).cast()
    }

    /// The new value.
    pub fn value(&self) -> u64 {
        self.value.load(Relaxed)
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The word has the new value.
    All,
    /// The word is unchanged, because the write was revoked.
    Nothing,
}

const SLOT_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 33;
/// As many bits of a generation as a hazard cell holds.
const GENERATION: u64 = (1 << 23) - 1;
const NUMBER: u64 = (1 << GENERATION_SHIFT) - 1;

/// The holder of a turn.
fn holder_of(turn: u64) -> Option<Announcer> {
    (turn != 0).then_some(Announcer {
        slot: (turn >> SLOT_SHIFT) as u8,
        generation: (turn >> GENERATION_SHIFT & GENERATION) as u32,
    })
}

/// The number of this thread. The kernel is asked for it once.
fn this_thread() -> u32 {
    thread_local!(static KNOWN: Cell<(u32, u64)> = const { Cell::new((0, 0)) });
    match KNOWN.get() {
        (thread, depth) if thread != 0 && depth == fork::depth() => thread,
        _ => {
            let thread = rustix::thread::gettid().as_raw_pid().unsigned_abs();
            KNOWN.set((thread, fork::depth()));
            thread
        }
    }
}

/// The owner of a turn, and whether its write can be revoked.
#[derive(Debug)]
pub struct Holder<'a> {
    /// The process. One thread of it at a time comes here.
    pub process: Announcer,
    /// It writes by [`Write::vector`].
    pub is_revocable: bool,
    /// How many turns the process has tried for, at any device.
    pub turns: &'a mut u64,
}

impl OneStep {
    /// Changes a word of the process that this belongs to: `read` reads it, `update` computes the new value, and
    /// `write` makes the kernel write that. Returns the old value. If the value stays the same, nothing is written.
    ///
    /// # Errors
    ///
    /// The errors of `read` and `write`. The word is unchanged.
    pub fn change<E>(
        &self,
        mut holder: Holder<'_>,
        others: &dyn Others,
        mut read: impl FnMut() -> Result<u64, E>,
        mut update: impl FnMut(u64) -> u64,
        mut write: impl FnMut(&Write) -> Result<Written, E>,
    ) -> Result<u64, E> {
        loop {
            let turn = self.take_turn(&mut holder, others);
            let changed = read().and_then(|old| {
                let new = update(old);
                let written = match new == old {
                    true => Written::All,
                    false => self.write(turn, holder.process, new, &mut write)?,
                };
                Ok((written == Written::All).then_some(old))
            });
            // Unless it has been taken.
            let _ = self.turn.compare_exchange(turn, 0, SeqCst, Relaxed);
            if let Some(changed) = changed.transpose() {
                return changed;
            }
        }
    }

    fn write_of(&self, process: Announcer) -> &Write {
        &self.writes[usize::from(process.slot)]
    }

    /// Waits for the turn, and takes it from a holder that is stopped or dead. Returns the turn.
    fn take_turn(&self, holder: &mut Holder<'_>, others: &dyn Others) -> u64 {
        let Announcer { slot, generation } = holder.process;
        *holder.turns = holder.turns.wrapping_add(1);
        let turn = u64::from(slot) << SLOT_SHIFT
            | (u64::from(generation) & GENERATION) << GENERATION_SHIFT
            | *holder.turns & NUMBER;
        // Publish this before taking the turn: a process that finds this one stopped asks for it.
        let write = self.write_of(holder.process);
        write.thread.store(if holder.is_revocable { this_thread() } else { 0 }, Relaxed);
        write.length.store(NOT_BEGUN | turn & NUMBER, Relaxed);
        let mut round = 0;
        loop {
            let had = self.turn.load(SeqCst);
            let is_free = had == 0 || asks(round) && self.may_be_taken(had, others);
            if is_free && self.turn.compare_exchange(had, turn, SeqCst, Relaxed).is_ok() {
                break;
            }
            others.pause(round, holder_of(had));
            round = round.wrapping_add(1);
        }
        if round > 0 {
            others.resumed();
        }
        turn
    }

    /// Whether a turn may be taken from its holder: that is dead, or it is stopped and can no longer write with this
    /// turn.
    fn may_be_taken(&self, turn: u64, others: &dyn Others) -> bool {
        let Some(process) = holder_of(turn) else { return true };
        if others.is_gone(process) {
            return true;
        }
        let write = self.write_of(process);
        let is_stopped = || match write.thread.load(SeqCst) {
            0 => false,
            thread => others.is_stopped(process, thread),
        };
        if !is_stopped() || self.turn.load(SeqCst) != turn {
            return false;
        }
        // If it has another turn by now, it tries again.
        write.length.store(0, SeqCst);
        // If it is stopped now, a write that began before is over, and none begins.
        is_stopped()
    }

    /// Writes with a turn.
    fn write<E>(
        &self,
        turn: u64,
        process: Announcer,
        new: u64,
        write: &mut impl FnMut(&Write) -> Result<Written, E>,
    ) -> Result<Written, E> {
        let mine = self.write_of(process);
        mine.first.store(&raw const mine.value as u64, Relaxed);
        mine.value.store(new, Relaxed);
        let not_begun = NOT_BEGUN | turn & NUMBER;
        match mine.length.compare_exchange(not_begun, WORD, SeqCst, Relaxed) {
            Ok(_) => write(mine),
            Err(_) => Ok(Written::Nothing),
        }
    }
}

/// Whether a wait checks the other side in this round.
fn asks(round: u32) -> bool {
    round % ASKS_EVERY == ASKS_EVERY - 1
}
