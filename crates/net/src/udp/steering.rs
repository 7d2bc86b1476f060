//! Which process a packet for the shared port goes to.
//!
//! The kernel keeps the sockets of one port in a list, and a classic BPF program picks one by its index. The program
//! looks at the top byte of the destination QP, which is the slot of a process. All processes share QP 1. For a message
//! to it, the program looks at the top byte of the communication id that the message names, unless it is a request. The
//! program does not know the order of the list: a new socket goes to the end, and when one is closed, the last one
//! takes its index. The kernel does not tell the order, so rounds find it out:
//!
//! A *round* sends one probe to each index, by way of the program itself: a packet for QP 0, which does not exist, goes
//! to the index that its PSN names. A process that receives a probe learns its index. It writes the index into a table
//! that all processes of the registry share, and replaces the program if the table has changed. Rounds begin when a
//! process opens the port or leaves it, when another notices that one has ended, and when one receives a packet for
//! another (and hands it on). If an index is past the end of the list, the kernel chooses any socket. So the lowest
//! index among the probes of one round counts.
//!
//! No process waits for another: there is no lock, and a stopped process keeps its slot.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::SendFlags;
use tracing::warn;
use transom_device::protection::{Announcer, PROCESSES};
use transom_system::file_limit;
use transom_system::registry::{Registry, private_file};
use transom_wire::cm::message::attribute;
use transom_wire::cm::{ATTRIBUTE_AT, GSI_QPN, HEADER_BYTES};
use transom_wire::packet::PORT;

use super::holder::is_listed;
use super::socket;

/// Indexes that are probed beyond those of the known processes. A killed process may still have its socket for a
/// moment.
const SLACK: u32 = 4;

/// Rounds begin at most this often, in nanoseconds, when packets go astray.
const PAUSE: u64 = 20_000_000;

/// The offset of a datagram's payload: behind BTH and DETH.
const PAYLOAD_AT: u32 = 20;

/// The offset of the message in a datagram of connection management. The first word of the message is the sender's
/// communication id, or the number of a SIDR request. The second one is the receiver's communication id.
const MESSAGE_AT: u32 = PAYLOAD_AT + HEADER_BYTES as u32;

/// The bit of [`Member::stay`] for a slot in use. The other bits are the generation.
const HERE: u32 = 1 << 31;

/// After this time a round begins, even if the socket of a process that has ended is still in the kernel's list. A
/// child may have the socket too.
const LINGERS: Duration = Duration::from_millis(300);
/// For this time we read the list again and again. Usually the socket leaves it within microseconds.
const AT_ONCE: Duration = Duration::from_millis(2);

/// Whether a socket has left the kernel's list since its process ended. A process that ends closes its files one by
/// one, and may close the pipe that tells of its end before the socket. A round that begins in between finds the old
/// order.
fn is_unlisted(inode: u64, ended: Instant) -> bool {
    while is_listed(inode) {
        let waited = ended.elapsed();
        if waited >= AT_ONCE {
            return waited >= LINGERS;
        }
        std::thread::yield_now();
    }
    true
}

/// The slot of the process that has the connection of a message for QP 1, as the BPF program finds it. `None` for a
/// request, which is for the process that listens.
pub(super) fn connection(datagram: &[u8]) -> Option<u8> {
    let at = |at: usize| datagram.get(at..).and_then(<[u8]>::first_chunk::<2>);
    let attribute = u16::from_be_bytes(*at(PAYLOAD_AT as usize + ATTRIBUTE_AT)?);
    let word = match attribute {
        attribute::REQ | attribute::SIDR_REQ => return None,
        attribute::SIDR_REP => MESSAGE_AT,
        _ => MESSAGE_AT + 4,
    };
    datagram.get(word as usize).copied()
}

/// One process's socket.
#[repr(C, align(64))]
struct Member {
    /// The generation of the process and [`HERE`]; zero if it does not have the port.
    stay: AtomicU32,
    /// Packets that others have handed on to it.
    handed: AtomicU32,
    /// The last stay whose end has begun a round, as in `stay`.
    buried: AtomicU32,
    /// The number of its socket in the kernel's list. It stays when the socket is gone.
    inode: AtomicU64,
    /// The upper half is the round that found its index, the lower half its index plus one. Zero while unknown.
    position: AtomicU64,
}

/// The shared table.
#[repr(C, align(4096))]
struct Table {
    /// Each probe carries it, to show that it is ours. Never zero once it is set.
    secret: AtomicU64,
    /// When the last round began, on the steady clock.
    begun: AtomicU64,
    /// Number of the last round.
    round: AtomicU32,
    /// Counts changes of the members, from which programs are made.
    changes: AtomicU32,
    members: [Member; PROCESSES],
}

/// The table, as this process sees it.
pub(super) struct Mapping(NonNull<Table>);

// SAFETY: the mapping is this value's own until it is dropped, and all of it is atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the table of the registry, and makes it if nobody has.
    pub(super) fn of(registry: &Registry) -> io::Result<Self> {
        map(&registry.directory().join("steering")).map(Self)
    }

    fn table(&self) -> &Table {
        // SAFETY: mapped until drop, aligned to a page, valid in any bit pattern (atomics).
        unsafe { self.0.as_ref() }
    }

    /// Whether a socket is that of a process that has entered.
    pub(super) fn knows(&self, inode: u64) -> bool {
        self.table().members.iter().any(|member| member.inode.load(SeqCst) == inode)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<Table>()) };
    }
}

/// A process's part in the table. It is dropped after the socket, because closing the socket changes the order.
pub(super) struct Steering {
    mapping: Mapping,
    registry: &'static Registry,
    me: Announcer,
    /// The process that opened it. A forked child must not act for its parent.
    pid: u32,
    /// Whether its socket is in the kernel's list. Only such a socket can attach a program.
    repairs: AtomicBool,
}

impl Steering {
    /// Maps the table of the registry, and makes it if nobody has.
    pub(super) fn open(registry: &'static Registry, me: Announcer) -> io::Result<Self> {
        let mapping = Mapping::of(registry)?;
        let (pid, repairs) = (std::process::id(), AtomicBool::new(true));
        let steering = Self { mapping, registry, me, pid, repairs };
        let mut secret = [0; 8];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let secret = u64::from_ne_bytes(secret) | 1;
        let _ = steering.table().secret.compare_exchange(0, secret, SeqCst, SeqCst);
        Ok(steering)
    }

    /// Whether this is the process that opened it, not one forked from it.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.pid
    }

    fn table(&self) -> &Table {
        self.mapping.table()
    }

    fn member(&self, slot: u8) -> &Member {
        &self.table().members[usize::from(slot)]
    }

    /// Enters this process, whose socket has no known position yet.
    pub(super) fn enter(&self, inode: u64) {
        let member = self.member(self.me.slot);
        member.inode.store(inode, SeqCst);
        member.position.store(0, SeqCst);
        member.stay.store(HERE | self.me.generation, SeqCst);
        self.table().changes.fetch_add(1, SeqCst);
    }

    /// Whether a socket is that of a process that has entered.
    pub(super) fn is_known(&self, inode: u64) -> bool {
        self.mapping.knows(inode)
    }

    /// Takes a process out; false if it is not there any more.
    fn remove(&self, slot: u8, stay: u32) -> bool {
        let removed = self.member(slot).stay.compare_exchange(stay, 0, SeqCst, Relaxed).is_ok();
        if removed {
            self.table().changes.fetch_add(1, SeqCst);
        }
        removed
    }

    /// This process leaves the kernel's list, or has left it. From now on the others repair what goes astray.
    pub(super) fn end_repairs(&self) {
        self.repairs.store(false, Relaxed);
    }

    /// Takes this process out. Its socket has left the kernel's list, so the others find out their indexes anew.
    pub(super) fn leave(&self) {
        if self.remove(self.me.slot, HERE | self.me.generation) {
            self.begin_round();
        }
    }

    /// Whether the process in `slot` has the port, so that packets can be handed on to it. A dead process is taken out
    /// here.
    pub(super) fn has_port(&self, slot: u8) -> bool {
        let stay = self.member(slot).stay.load(SeqCst);
        if stay == 0 {
            return false;
        }
        let alive = self.registry.is_alive(Announcer { slot, generation: stay & !HERE });
        if !alive {
            self.remove(slot, stay);
        }
        alive
    }

    /// The number of the last change of the members.
    #[inline]
    pub(super) fn change(&self) -> u32 {
        self.table().changes.load(SeqCst)
    }

    /// The other processes that have the port, as the table says.
    pub(super) fn others(&self) -> impl Iterator<Item = Announcer> {
        let stay = |slot| self.member(slot).stay.load(SeqCst);
        (0..=u8::MAX)
            .filter(|slot| *slot != self.me.slot)
            .map(move |slot| (slot, stay(slot)))
            .filter(|(_, stay)| *stay != 0)
            .map(|(slot, stay)| Announcer { slot, generation: stay & !HERE })
    }

    pub(super) fn registry(&self) -> &'static Registry {
        self.registry
    }

    /// A process has ended without a word, and was noticed then. Each process that notices begins a round, unless
    /// another has done so already. False if it is too early: the kernel still has the socket.
    pub(super) fn bury(&self, who: Announcer, ended: Instant, socket: &OwnedFd) -> bool {
        let stay = HERE | who.generation;
        self.remove(who.slot, stay);
        let member = self.member(who.slot);
        let before = member.buried.load(SeqCst);
        // Who has come to its slot since then has begun a round, and the socket is another's.
        let has_gone = member.stay.load(SeqCst) == 0;
        if before != stay && has_gone {
            if !is_unlisted(member.inode.load(SeqCst), ended) {
                return false;
            }
            self.try_attach(socket);
            self.begin_round();
            // Only now: if this process said so first and was then stopped, nobody would begin the round.
            let _ = member.buried.compare_exchange(before, stay, SeqCst, SeqCst);
        }
        true
    }

    /// Counts a packet handed on to a slot.
    pub(super) fn note_handed(&self, slot: u8) {
        self.member(slot).handed.fetch_add(1, Release);
    }

    /// How many packets were handed on to this process.
    #[inline]
    pub(super) fn handed(&self) -> u32 {
        self.member(self.me.slot).handed.load(Acquire)
    }

    /// Whether packets for this process are steered to it.
    pub(super) fn has_place(&self) -> bool {
        self.member(self.me.slot).position.load(SeqCst) as u32 != 0
    }

    /// Begins a round because a packet went astray, unless one has begun just now.
    pub(super) fn repair(&self, socket: &OwnedFd) {
        if !self.repairs.load(Relaxed) {
            return;
        }
        let now = transom_system::clock::steady();
        let begun = self.table().begun.load(Relaxed);
        // A time in the future comes from an earlier boot.
        let recent = begun <= now && now - begun < PAUSE;
        let free = || self.table().begun.compare_exchange(begun, now, SeqCst, Relaxed).is_ok();
        if !recent && free() {
            // The program may be out of date though the table is right: the process that changed the table may have
            // been killed.
            self.try_attach(socket);
            self.begin_round();
        }
    }

    /// Sends a probe to every index.
    ///
    /// If the loopback interface is down, none arrives. Then packets go to any process, and are handed on.
    pub(super) fn begin_round(&self) {
        let round = self.table().round.fetch_add(1, SeqCst).wrapping_add(1);
        let members = (0..=u8::MAX).filter(|slot| self.has_port(*slot)).count() as u32;
        if members == 0 {
            // If somebody has the port now, it is another program, and must not learn the secret.
            return;
        }
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let Ok(from) = socket::open(to) else { return };
        for index in 0..members + SLACK {
            let probe = Probe { index, round, secret: self.table().secret.load(SeqCst) };
            let _ = rustix::net::sendto(&from, &probe.to_bytes(), SendFlags::DONTWAIT, &to);
        }
    }

    /// Takes a packet for QP 0. If it is a probe, this process learns its index.
    pub(super) fn take(&self, packet: &[u8], socket: &OwnedFd) {
        let Some(probe) = Probe::parse(packet).filter(|_| self.repairs.load(Relaxed)) else {
            return;
        };
        // A probe of an earlier round may have lain here while the order changed.
        let current = self.table().round.load(SeqCst);
        if probe.secret != self.table().secret.load(SeqCst) || probe.round != current {
            return;
        }
        let member = self.member(self.me.slot);
        let old = member.position.load(SeqCst);
        let position = u64::from(probe.round) << 32 | u64::from(probe.index + 1);
        if old >> 32 == position >> 32 && old <= position {
            return;
        }
        member.position.store(position, SeqCst);
        if old as u32 != position as u32 {
            self.table().changes.fetch_add(1, SeqCst);
            self.try_attach(socket);
        }
    }

    /// Attaches the program. If that fails, packets are handed on, and the next round tries again.
    fn try_attach(&self, socket: &OwnedFd) {
        if let Err(error) = self.attach(socket) {
            warn!(%error, "packets are not steered");
        }
    }

    /// Gives the port the program that the table asks for.
    pub(super) fn attach(&self, socket: &OwnedFd) -> io::Result<()> {
        loop {
            let changes = self.table().changes.load(SeqCst);
            let program = self.program();
            socket::filter(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &program)?;
            // Another process may have attached a newer one before this.
            if changes == self.table().changes.load(SeqCst) {
                return Ok(());
            }
        }
    }

    /// The program: from the first bytes of a packet to the index of a socket.
    fn program(&self) -> Vec<libc::sock_filter> {
        use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_H, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD};
        use libc::{BPF_RET, BPF_RSH, BPF_W};
        let code = socket::instruction;
        let answer = |index| code(BPF_RET | BPF_K, 0, 0, index);
        let known = (0..=u8::MAX).filter_map(|slot| {
            let member = self.member(slot);
            let index = (member.position.load(SeqCst) as u32).checked_sub(1)?;
            (member.stay.load(SeqCst) != 0).then_some((slot, index))
        });
        // No socket has this index: the kernel takes any.
        let any = answer(u32::MAX);
        let load = |bytes, at| code(BPF_LD | bytes | BPF_ABS, 0, 0, at);
        let jump_if = |value, then, other| code(BPF_JMP | BPF_JEQ | BPF_K, then, other, value);
        let jump = |over| code(BPF_JMP | BPF_JA, 0, 0, over);
        let shift = |bits| code(BPF_ALU | BPF_RSH | BPF_K, 0, 0, bits);
        let low_24 = code(BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xff_ffff);
        // BTH: destination QP in bytes 5 to 7, PSN in bytes 9 to 11.
        let mut program = vec![
            load(BPF_W, 4),
            low_24,
            jump_if(0, 0, 3),
            load(BPF_W, 8),
            low_24,
            code(BPF_RET | libc::BPF_A, 0, 0, 0),
            // All processes share QP 1. Any message but a request names a communication id of its process.
            jump_if(GSI_QPN, 0, 9),
            load(BPF_H, PAYLOAD_AT + ATTRIBUTE_AT as u32),
            jump_if(attribute::REQ.into(), 1, 0),
            jump_if(attribute::SIDR_REQ.into(), 0, 1),
            any,
            jump_if(attribute::SIDR_REP.into(), 2, 0),
            load(BPF_W, MESSAGE_AT + 4),
            jump(1),
            load(BPF_W, MESSAGE_AT),
            shift(8),
            // The upper byte of 24 bits is the slot.
            shift(16),
        ];
        for (slot, index) in known {
            program.push(code(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, slot.into()));
            program.push(answer(index));
        }
        program.push(any);
        program
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if self.is_ours() {
            self.leave();
        }
    }
}

fn map(path: &Path) -> io::Result<NonNull<Table>> {
    let file = private_file(path)?;
    let length = size_of::<Table>();
    // Reserve memory for all of it now, so that writing to it cannot fail later.
    file_limit::grow(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length as u64))?;
    // SAFETY: a fresh shared mapping of the whole file; nobody shrinks it.
    let address = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)?
    };
    Ok(NonNull::new(address.cast()).expect("a mapping is never at zero"))
}

/// A packet that tells its receiver its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    index: u32,
    round: u32,
    secret: u64,
}

impl Probe {
    /// A BTH, the round and the secret.
    const BYTES: usize = 12 + 4 + 8;
    /// Bits of a PSN, which holds the index.
    const INDEX_BITS: u32 = 24;

    /// A BTH with an opcode that means nothing, destination QP 0 and the index as PSN; then the rest.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = 0xff;
        bytes[8..12].copy_from_slice(&self.index.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.round.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.secret.to_be_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        let secret = u64::from_be_bytes(*bytes.last_chunk().expect("eight bytes"));
        let probe = Self { index: word(8), round: word(12), secret };
        (probe.to_bytes() == *bytes && probe.index >> Self::INDEX_BITS == 0).then_some(probe)
    }
}
