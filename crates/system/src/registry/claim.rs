//! Taking a slot for this process, and leaving it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};

use rustix::fs::{Mode, OFlags};
use transom_device::protection::Announcer;

use super::file::Registry;
use super::lock::{self, Part, With};
use super::noted::Record;
use super::presence::{self, Hold, NameOwner, Presence};
use crate::clock;
use crate::descriptor;

/// A slot that this process holds until the claim is dropped.
pub struct Claim {
    registry: &'static Registry,
    announcer: Announcer,
    pub(super) presence: Presence,
    /// The process that took it. A child made without `fork` differs from it.
    pid: u32,
    /// This process was forked from the one that took it.
    is_inherited: AtomicBool,
    /// Others write here to wake this process.
    pub wake: OwnedFd,
}

/// Which slots a process takes.
#[derive(Clone, Copy, Debug)]
enum Names {
    /// Those that nobody has named in this network namespace.
    Free,
    /// Those too whose name another user has. So another user who takes all names cannot keep this one out.
    OfOthers,
}

impl Registry {
    /// Takes a slot for the device of this number of this process, whose segment has `descriptor`.
    pub fn claim(&'static self, descriptor: u32, device: u8) -> io::Result<Claim> {
        const USABLE: u64 = Registry::PROCESSES as u64;
        // Under an open file description of its own, which belongs to this claim if it succeeds.
        self.layout().opened.store(clock::steady(), Relaxed);
        let mut file = self.reopen()?;
        self.sweep(&file)?;
        let start = self.layout().next.fetch_add(1, Relaxed);
        for names in [Names::Free, Names::OfOthers] {
            for step in 0..USABLE {
                let slot = 1 + ((start + step) % USABLE) as u8;
                match self.try_claim(slot, names, file, (descriptor, device))? {
                    Ok(claim) => {
                        // The next process begins its search behind it, so that the notes here stay for a while.
                        self.layout().next.fetch_max(start + step + 1, Relaxed);
                        return Ok(claim);
                    }
                    Err(unused) => file = unused,
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{USABLE} processes of this user run a Transom device already; end one of them"
            ),
        ))
    }

    /// The same file under a new open file description.
    pub(super) fn reopen(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/thread-self/fd/{}", self.file.as_raw_fd());
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(descriptor::high(file))
    }

    /// Removes what ended processes left in the directory because they did not close their device. Their slots keep
    /// their notes until another process takes them.
    fn sweep(&self, file: &OwnedFd) -> io::Result<()> {
        for slot in (0..=u8::MAX).filter(|slot| self.layout().named.has(*slot)) {
            // Most of them are there.
            if !lock::is_locked(file, Part::Stay(slot))? && self.begin_change(file, slot)? {
                self.remove_names(slot);
                lock::unlock(file, Part::Change(slot));
            }
        }
        Ok(())
    }

    /// Locks a free slot for a change of its content. False if a process has it or is changing it.
    pub(super) fn begin_change(&self, file: &OwnedFd, slot: u8) -> io::Result<bool> {
        if !lock::try_lock(file, Part::Change(slot), With::Nobody)? {
            return Ok(false);
        }
        let is_locked = |part| lock::is_locked(file, part);
        let vacant = !is_locked(Part::Stay(slot))? && !is_locked(Part::Memory(slot))?;
        if !vacant {
            lock::unlock(file, Part::Change(slot));
        }
        Ok(vacant)
    }

    /// Takes a slot if it is free. Otherwise gives the file back.
    fn try_claim(
        &'static self,
        slot: u8,
        names: Names,
        file: OwnedFd,
        (descriptor, device): (u32, u8),
    ) -> io::Result<Result<Claim, OwnedFd>> {
        if !self.begin_change(&file, slot)? {
            return Ok(Err(file));
        }
        // If another registry has a process in this slot, the name is that one's.
        let name = match (presence::bind_name(slot)?, names) {
            (Ok(name), _) => name,
            (Err(NameOwner::Another(_)), Names::OfOthers) => presence::no_name()?,
            (Err(_), _) => {
                lock::unlock(&file, Part::Change(slot));
                return Ok(Err(file));
            }
        };
        self.commit(slot)?;
        self.layout().used.add(slot);
        self.layout().named.add(slot);
        // Do this before taking the lock, which would make the previous process look alive.
        let it = self.slot(slot);
        it.token.store(0, SeqCst);
        lock::try_lock(&file, Part::Stay(slot), With::Nobody)?;
        let life = presence::make_pipe(&self.life_path(slot))?;
        let wake = presence::make_pipe(&self.wake_path(slot))?;
        // Behind this nothing fails.
        let hold = Hold::take(self.reopen()?, slot)?;
        let generation = it.generation.fetch_add(1, SeqCst).wrapping_add(1) & 0x7f_ffff;
        it.noted.clear();
        let pid = std::process::id();
        it.last_pid.store(pid, Relaxed);
        it.waits_for.store(0, Relaxed);
        self.left(it.device.load(Relaxed) as u8).take_packets(&it.counters);
        it.device.store(device.into(), Relaxed);
        it.descriptor.store(descriptor, Relaxed);
        for (word, value) in it.namespaces.iter().zip(self.namespaces.to_words()) {
            word.store(value, Relaxed);
        }
        let program = program_name();
        for (word, bytes) in it.name.iter().zip(program.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
        }
        it.token.store(u64::from(generation) << 32 | u64::from(pid), SeqCst);
        lock::unlock(&file, Part::Change(slot));
        Ok(Ok(Claim {
            registry: self,
            announcer: Announcer { slot, generation },
            presence: Presence { lock: file, hold, life, name },
            pid,
            is_inherited: AtomicBool::new(false),
            wake,
        }))
    }
}

/// The name of this program, zero-padded to 32 bytes.
fn program_name() -> [u8; 32] {
    let mut name = [0; 32];
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    let bytes = program.as_encoded_bytes();
    let length = bytes.len().min(name.len());
    name[..length].copy_from_slice(&bytes[..length]);
    name
}

impl Claim {
    /// The slot, and the generation of this stay.
    pub fn announcer(&self) -> Announcer {
        self.announcer
    }

    /// The registry it is in.
    pub fn registry(&self) -> &'static Registry {
        self.registry
    }

    /// Has others send packets only, even those that may open this process's files. Called before the device has a
    /// queue pair.
    pub fn take_packets_only(&self) {
        let slot = self.registry.slot(self.announcer.slot);
        let words = self.registry.namespaces.by_packets().to_words();
        for (word, value) in slot.namespaces.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    /// Notes something for `transom explain`.
    pub fn note(&self, record: &Record) {
        self.registry.slot(self.announcer.slot).noted.add(record);
    }

    /// Notes the process that a revocation waits for. Zero for none.
    pub fn note_waiting(&self, pid: u32) {
        self.registry.slot(self.announcer.slot).waits_for.store(u64::from(pid), Relaxed);
    }

    /// In a forked child, leaves it to the parent: the slot becomes free when the parent ends.
    pub fn leave_to_parent(&self) {
        self.is_inherited.store(true, Relaxed);
        self.presence.leave_to_parent(&self.registry.file);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child has a copy of this claim, but the slot is its parent's.
        if self.is_inherited.load(Relaxed) || self.pid != std::process::id() {
            return;
        }
        let slot = self.announcer.slot;
        self.registry.remove_names(slot);
        self.registry.slot(slot).token.store(0, SeqCst);
        self.presence.end(slot);
    }
}
