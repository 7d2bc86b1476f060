//! The processes that are or were in the registry, as others see them.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::*;

use transom_device::protection::Announcer;

use super::directory;
use super::file::Registry;
use super::lock::{self, Part};
use super::presence::{self, NameOwner};
use crate::{clock, threads};

/// How long the owner of a slot that no process of this user has is remembered, in nanoseconds.
const REMEMBERED: u64 = 1_000_000_000;

/// How long it is remembered that no other user has a slot. One who comes meanwhile is found that much later.
const REMEMBERED_OF_NOBODY: u64 = 10_000_000;

/// A process found in the registry.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its slot and stay.
    pub announcer: Announcer,
    /// Its PID, in its own PID namespace.
    pub pid: u32,
    /// Whether it still has its device.
    pub alive: bool,
    /// It has closed its device, and may still run. If it is neither alive nor closed, it has ended, has called `exec`,
    /// or has closed descriptors of ours.
    pub closed: bool,
    /// Whether it lives in the PID namespace of this process, so that its PID is valid here.
    pub shares_pids: bool,
    /// Whether the local link leads to it. Only packets reach the others.
    pub is_near: bool,
    /// Whether its segment can be read here. That of a device that takes packets only can.
    pub is_open: bool,
    /// Its program's name, up to 32 bytes, printable characters only.
    pub name: String,
    /// The PID that a revocation of it waits for right now.
    pub waits_for: Option<u32>,
    /// The segment's descriptor there.
    pub descriptor: u32,
    /// The number of the device among those of its program. Each device of a program has a slot.
    pub device: u8,
}

impl Process {
    /// Whether a thread of it is stopped, by a signal or a debugger.
    pub fn is_stopped(&self, thread: u32) -> bool {
        matches!(threads::state(self.pid, thread), Some(b'T' | b't'))
    }
}

impl Registry {
    /// Whether only packets reach the process in a slot, because it lives in other namespaces. For a free slot it does
    /// not matter who had it.
    #[inline]
    pub fn needs_packets(&self, slot: u8) -> bool {
        let taken = self.is_used(slot) && self.slot(slot).token.load(SeqCst) != 0;
        taken && !self.namespaces.are_near(self.slot(slot).namespaces())
    }

    /// Whether a process of this user that is not in this registry has a slot of this number in this network namespace.
    pub fn is_in_other_registry(&self, slot: u8) -> bool {
        self.process(slot).is_none_or(|process| !process.alive)
            && presence::name_owner(slot) == Some(NameOwner::ThisUser)
    }

    /// Whether a slot was just seen not to be another user's. To look costs system calls, and packets may come for any
    /// slot, as fast as a stranger sends them.
    pub fn was_of_no_other_user(&self, slot: u8) -> bool {
        let last = self.seen_of_nobody[usize::from(slot)].load(Relaxed);
        last != 0 && clock::steady().saturating_sub(last) < REMEMBERED_OF_NOBODY
    }

    /// Whether a slot that is free here belongs to another user, as far as this process can tell.
    pub fn is_of_another_user(&self, slot: u8) -> bool {
        let is_anothers = self.look_for_other_user(slot);
        let seen = if is_anothers { 0 } else { clock::steady() };
        self.seen_of_nobody[usize::from(slot)].store(seen, Relaxed);
        is_anothers
    }

    fn look_for_other_user(&self, slot: u8) -> bool {
        // If it has ended, its number may be another's by now.
        if self.process(slot).is_some_and(|it| it.alive) {
            return false;
        }
        let (seen, now) = (&self.seen_of_others[usize::from(slot)], clock::steady());
        let is_known = || {
            let last = seen.load(Relaxed);
            last != 0 && now.saturating_sub(last) < REMEMBERED
        };
        let is_anothers =
            is_known() || matches!(presence::name_owner(slot), Some(NameOwner::Another(_)));
        if is_anothers && !is_known() {
            seen.store(now, Relaxed);
        }
        is_anothers
    }

    /// The other users who have named numbers of processes in this network namespace, and how many of the existing ones
    /// they have. Without users who cannot be asked.
    pub fn names_of_others(&self) -> (BTreeSet<u32>, usize) {
        let owners = (1..u8::MAX).filter_map(presence::name_owner);
        let others = owners.filter_map(|owner| match owner {
            NameOwner::ThisUser => None,
            NameOwner::Another(user) => Some(user),
        });
        let others: Vec<_> = others.collect();
        (others.iter().copied().flatten().collect(), others.len())
    }

    /// The process in a slot, if there is or was one.
    pub fn process(&self, index: u8) -> Option<Process> {
        if !self.is_used(index) {
            return None;
        }
        let slot = self.slot(index);
        let token = slot.token.load(SeqCst);
        let generation = match token {
            0 => slot.generation.load(Relaxed),
            _ => (token >> 32) as u32,
        };
        let announcer = Announcer { slot: index, generation };
        let name: Vec<u8> = slot
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_ne_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        let alive = self.is_alive(announcer);
        Some(Process {
            announcer,
            pid: if token == 0 { slot.last_pid.load(Relaxed) } else { token as u32 },
            alive,
            closed: !alive && slot.token.load(SeqCst) == 0,
            shares_pids: self.namespaces.share_pids(slot.namespaces()),
            is_near: self.namespaces.are_near(slot.namespaces()),
            is_open: self.namespaces.may_open(slot.namespaces()),
            name: printable(&name),
            waits_for: self.waits_for(index),
            descriptor: slot.descriptor.load(Acquire),
            device: slot.device.load(Relaxed) as u8,
        })
    }

    /// The PID of the process that a revocation of the process in a slot waits for.
    pub fn waits_for(&self, index: u8) -> Option<u32> {
        let waits_for = self.slot(index).waits_for.load(Relaxed) as u32;
        (waits_for != 0).then_some(waits_for)
    }

    /// All processes that are or were here, by slot.
    pub fn processes(&self) -> Vec<Process> {
        (0..=u8::MAX).filter_map(|slot| self.process(slot)).collect()
    }

    /// The same, those first that came last.
    pub fn newest_processes(&self) -> Vec<Process> {
        const USABLE: u64 = Registry::PROCESSES as u64;
        let next = self.layout().next.load(Relaxed);
        let slots = (1..=USABLE).map(|back| 1 + (next.wrapping_sub(back) % USABLE) as u8);
        slots.filter_map(|slot| self.process(slot)).collect()
    }

    /// When a process last began to open a device, by the steady clock.
    pub fn last_opened(&self) -> u64 {
        self.layout().opened.load(Relaxed)
    }

    /// The taken slots. Does not check whether their processes still run.
    pub fn taken(&self) -> impl Iterator<Item = u8> {
        let taken = |slot: &u8| self.is_used(*slot) && self.slot(*slot).token.load(SeqCst) != 0;
        (0..=u8::MAX).filter(taken)
    }

    /// Whether the slot is still in this stay's name. The process may have died unnoticed.
    pub fn holds(&self, process: Announcer) -> bool {
        let token = self.slot(process.slot).token.load(SeqCst);
        token != 0 && (token >> 32) as u32 == process.generation
    }

    /// Whether this stay in the slot goes on.
    pub fn is_alive(&self, process: Announcer) -> bool {
        self.holds(process) && self.is_locked(Part::Stay(process.slot)) && self.holds(process)
    }

    /// Whether threads of this stay may still be in the middle of a copy: it goes on, or its program has closed the
    /// descriptors that say so.
    pub fn has_memory(&self, process: Announcer) -> bool {
        let slot = process.slot;
        let is_locked = || self.is_locked(Part::Stay(slot)) || self.is_locked(Part::Memory(slot));
        self.holds(process) && is_locked() && self.holds(process)
    }

    /// A successor writes its name to the slot after it has cleared the other's and then taken the locks. If the kernel
    /// cannot tell, or tells of another file, count the process as alive: exactness comes first.
    fn is_locked(&self, part: Part) -> bool {
        match lock::is_locked(&self.file, part) {
            Ok(true) => true,
            // The program may have closed the descriptor, and opened another file that has its number now.
            Ok(false) if self.identity.is_behind(&self.file) => false,
            _ => self.is_locked_by_name(part).unwrap_or(true),
        }
    }

    /// The same, if this process has lost its descriptor: the file has a name.
    #[cold]
    fn is_locked_by_name(&self, part: Part) -> io::Result<bool> {
        let file = directory::open_again(self.directory())?;
        match self.identity.is_behind(&file) {
            true => lock::is_locked(&file, part),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A program's name for display, perhaps on a terminal. A file may have any name, and another process may have written
/// anything.
fn printable(name: &[u8]) -> String {
    let printable = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    String::from_utf8_lossy(name).chars().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_nothing_to_a_terminal() {
        for (name, told) in [
            (&b"ib_write_bw"[..], "ib_write_bw"),
            ("d\u{e9}j\u{e0}".as_bytes(), "d\u{e9}j\u{e0}"),
            (b"a\x1b[31mb\nc\x7f", "a\u{fffd}[31mb\u{fffd}c\u{fffd}"),
            (b"\xc2\x9b\xff", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(printable(name), told);
        }
    }
}
