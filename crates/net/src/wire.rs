//! The wire link: RoCEv2 packets over UDP, to all queue pairs that no other link reaches.
//!
//! Sockets are in [`udp`](super::udp): bytes in, bytes out. Here bytes become packets of queue pairs
//! (`receive`) and back (`burst`).

mod burst;
mod delayed_ack;
mod instruments;
mod looks;
mod messenger;
mod pace;
mod path;
mod receive;
mod too_long;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*, fence};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::{debug, warn};

pub use burst::{BurstBuffer, Filling, Run};
use delayed_ack::DelayedAck;
pub use instruments::{Instruments, Network, Observer};
use looks::Looks;
pub use messenger::Messenger;
use pace::Pace;
pub use path::Path;
pub use receive::{Receiver, Reception, Turn};
use too_long::LastTooLong;
pub use too_long::TooLong;
use transom_device::protection::Announcer;
use transom_system::clock;
use transom_system::registry::{Counters, Dropped, Registry};
use transom_wire::cm::ServiceId;
use transom_wire::packet::Packet;

use super::stalled::Stalled;
use super::udp::{Announcement, Arrivals, Datagrams, Others, Port, PortError, SendError};

/// How many bursts are taken at once, so that the thread that takes them gets back to its own work.
const BATCH: usize = 16;

/// How often a polling thread finds another at the arrivals before it yields: this takes a few microseconds.
const REFUSALS: u32 = 64;

/// How long queue pairs wait after they found the sockets full, in nanoseconds.
const STALL: u64 = 100_000;

/// One process may fill a quarter of a receiver's room.
const RECEIVERS_SHARE: usize = 4;

/// The wire link of this process: its share of the port, and everything needed to use it.
pub struct Wire {
    port: Port,
    inbound: Inbound,
    /// Room for outgoing bursts, one for each thread that sends.
    buffers: Mutex<Vec<BurstBuffer>>,
    /// Queue pairs that found the socket full, or are too early.
    pub stalled: Stalled,
    /// Somebody will soon give them a turn and send delayed acknowledgements: a program that polls, or the background
    /// thread, which has been told.
    watched: AtomicBool,
    share: Share,
    /// A delayed acknowledgement.
    pub delayed_ack: DelayedAck,
    counters: &'static Counters,
    instruments: Instruments,
    too_long: LastTooLong,
}

/// The arrivals. One thread at a time handles them.
#[derive(Default)]
struct Inbound {
    /// Room for arrivals. Its holder also carries packets out, so that they keep their order.
    arrivals: Mutex<Arrivals>,
    /// Which polls look for it.
    looks: Looks,
    /// How often other threads have wanted it since it was taken.
    refused: AtomicU32,
}

/// How much this process may have on its way: its share of a receiver's room.
struct Share {
    /// Bytes for all reliable queue pairs together.
    window: u64,
    /// Queue pairs that have packets on their way.
    senders: AtomicU32,
    /// The pace of messages that are never repeated.
    pace: Pace,
}

impl Share {
    /// The share for a receiver with as much room as this process.
    fn of(room: usize) -> Self {
        let window = (room / RECEIVERS_SHARE) as u64;
        Self { window, senders: AtomicU32::new(0), pace: Pace::new(window) }
    }
}

/// The kernel lets a socket join no more multicast groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room for another multicast group of the network: its datagrams from other hosts do not come. Raise \
     net.ipv4.igmp_max_memberships (IPv4) or net.core.optmem_max (IPv6)"
)]
pub struct NoRoom;

impl Wire {
    /// Opens the port for the process that has a slot in the registry.
    ///
    /// # Errors
    ///
    /// Those of [`Port::open`].
    pub fn open(
        registry: &'static Registry,
        me: Announcer,
        instruments: Instruments,
    ) -> Result<Self, PortError> {
        let counters = registry.counters(me.slot);
        let port = Port::open(registry, me)?;
        Ok(Self {
            share: Share::of(port.receive_room()),
            port,
            instruments,
            inbound: Inbound::default(),
            buffers: Mutex::default(),
            stalled: Stalled::default(),
            watched: AtomicBool::new(false),
            delayed_ack: DelayedAck::default(),
            too_long: LastTooLong::default(),
            counters,
        })
    }

    /// The other user who has the port and hands on packets for this process.
    pub fn holder(&self) -> Option<u32> {
        self.port.holder()
    }

    /// As [`Port::announce`].
    pub fn announce(&self, service: ServiceId) -> Option<Announcement> {
        self.port.announce(service)
    }

    /// Hands a packet that came to this process on to one of another user, which does not have the port. False if that
    /// process is gone.
    pub fn hand_to_guest(&self, slot: u8, path: &Path, packet: &Packet<'_>) -> bool {
        let Some(addresses) = path.icrc(path.port) else { return false };
        let mut bytes = vec![0; packet.length()];
        let length = packet.write(&mut bytes);
        let icrc = addresses.icrc(0, &bytes[..length]);
        bytes[length..].copy_from_slice(&icrc);
        let datagrams = Datagrams {
            from: SocketAddr::new(path.source, path.port),
            to: path.destination,
            tos: path.traffic_class,
            ttl: path.hop_limit,
            first: 0,
            segment: bytes.len(),
            bytes: &bytes,
        };
        self.port.hand_to_guest(slot, &datagrams)
    }

    /// The descriptors to wait for.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.port.descriptors()
    }

    /// Readable when a sent packet has reached nobody.
    pub fn undelivered_descriptor(&self) -> BorrowedFd<'_> {
        self.port.undelivered_descriptor()
    }

    /// Hands on the reports of that. During an injected outage nobody gets them.
    pub fn take_undelivered(&self, receiver: &impl Receiver) {
        self.port.undelivered(|it| {
            if !self.instruments.outages.is_down() {
                receiver.undelivered(it);
            }
        });
    }

    /// The second descriptor has something. The process that handed it on may have ended before it counted it.
    pub fn expect_handed(&self) {
        self.port.expect_handed();
    }

    /// Whether its port is down on purpose.
    pub fn is_down(&self) -> bool {
        self.instruments.outages.is_down()
    }

    /// Whether something has arrived that nobody has taken.
    pub fn has_arrivals(&self) -> bool {
        let descriptors = self.descriptors();
        let mut fds = descriptors.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        transom_system::wait::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Watches the other processes of the port. `ended` says that some may have ended. If the set has changed, returns
    /// those that have ended.
    pub fn look_after(&self, others: &mut Others, ended: bool) -> Option<Vec<Announcer>> {
        let mut dead = Vec::new();
        if ended || others.patience().is_some() {
            others.bury(&self.port, &mut dead);
        }
        let changed = others.watch(&self.port, &mut dead);
        (changed || !dead.is_empty()).then_some(dead)
    }

    /// Makes a group's datagrams on an interface come here. If the interface cannot, the group ends at this host.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the kernel lets the socket join no more groups.
    pub fn join(&self, group: IpAddr, interface: u32) -> Result<(), NoRoom> {
        let Err(error) = self.port.join(group, interface) else { return Ok(()) };
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM) => return Err(NoRoom),
            _ => warn!(%group, interface, %error, "the group ends at this host"),
        }
        Ok(())
    }

    /// Ends [`Wire::join`].
    pub fn leave(&self, group: IpAddr, interface: u32) {
        if let Err(error) = self.port.leave(group, interface) {
            debug!(%group, interface, %error, "the group cannot be left");
        }
    }

    /// Leaves the port to the process that this one was forked from.
    pub fn leave_port(&self) {
        self.port.make_private();
    }

    /// Leaves the port to the other processes, because this one has failed.
    pub fn close_port(&self) {
        self.port.close();
    }

    /// The packet counters.
    pub fn counters(&self) -> &Counters {
        self.counters
    }

    /// How many bytes all queue pairs together may have on their way. The other end is assumed to have as much room as
    /// this one, and others send to it too.
    pub fn window_limit(&self) -> u64 {
        self.share.window
    }

    /// The share of that for one queue pair of those that send now.
    pub fn window_share(&self) -> u64 {
        self.share.window / u64::from(self.share.senders.load(Relaxed).max(1))
    }

    /// Whether `bytes` that are never repeated may go now.
    pub fn admits(&self, bytes: u64, now: u64) -> bool {
        self.share.pace.admits(bytes, now)
    }

    /// A queue pair has packets on their way from now on, or no longer has any.
    pub fn count_sender(&self, sends: bool) {
        match sends {
            true => self.share.senders.fetch_add(1, Relaxed),
            false => self.share.senders.fetch_sub(1, Relaxed),
        };
    }

    /// An empty buffer for a burst.
    pub fn take_buffer(&self) -> BurstBuffer {
        let mut buffer = self.buffers.lock().pop().unwrap_or_else(BurstBuffer::new);
        buffer.clear();
        buffer
    }

    /// Keeps a buffer for the next burst.
    pub fn give_back(&self, buffer: BurstBuffer) {
        self.buffers.lock().push(buffer);
    }

    /// A message has come to this process without packets. Its polls look for packets less often, until some come
    /// again.
    pub fn expect_little(&self) {
        self.inbound.looks.seldom();
    }

    /// Sends a burst. False if there was no room for all of it. Packets without a route are lost, and repeated like
    /// packets that a network loses.
    pub fn send(&self, buffer: &mut BurstBuffer, path: &Path) -> bool {
        let Ok(port) = self.port.source_port(&path.way()) else {
            // No descriptor is left for its socket.
            self.counters.drop(Dropped::Unreachable, buffer.packets());
            return true;
        };
        // Answers will come.
        self.inbound.looks.always();
        let Some(icrc) = path.icrc(port) else { return true };
        let mut room = true;
        // Try twice, in case the kernel turns out to number packets differently.
        for _ in 0..2 {
            let identification = |number| self.port.identification(number);
            let limit = |size| self.instruments.most_segments(self.port.most_segments(size));
            let mut again = false;
            buffer.seal(icrc, identification, limit, |run| {
                if again || !room {
                    return;
                }
                self.instruments.show(&Path { port, ..*path }, identification, &run);
                match self.instruments.send(&self.port, &path.way(), &run) {
                    Ok(count) => {
                        // If the kernel cuts no bursts, it may take a part of one.
                        room = count == run.bytes.len().div_ceil(run.size);
                        Counters::add(&self.counters.sent, count);
                        let bytes = run.bytes.len().min(count * run.size);
                        Counters::add(&self.counters.bytes_sent, bytes);
                    }
                    Err(SendError::Identification) => again = true,
                    Err(SendError::Busy) => room = false,
                    Err(error @ (SendError::TooLong | SendError::Unreachable(_))) => {
                        if matches!(error, SendError::TooLong) {
                            self.too_long.note(path, run.size);
                        }
                        let count = run.bytes.len().div_ceil(run.size);
                        self.counters.drop(Dropped::Unreachable, count);
                    }
                }
            });
            if !again {
                break;
            }
        }
        if !room {
            Counters::add(&self.counters.no_room, 1);
        }
        room
    }

    /// Sends a packet that goes alone. False if there was no room for it.
    pub fn send_packet(&self, packet: &Packet<'_>, path: &Path) -> bool {
        let mut buffer = self.take_buffer();
        let mut departed = true;
        if buffer.add(packet, packet.payload.len() as u64) {
            buffer.put(0, packet.payload);
            departed = self.send(&mut buffer, path);
        }
        self.give_back(buffer);
        departed
    }

    /// The last refusal of a packet's length by this host's kernel, if it was for this address.
    pub fn too_long_for(&self, destination: IpAddr) -> Option<TooLong> {
        self.too_long.towards(destination)
    }

    /// Sends the packets that an injected network has held back until now.
    pub fn send_due(&self) {
        self.instruments.send_due(&self.port, clock::steady);
    }

    /// Sends all packets that such a network still holds back, because nobody may be there to do it later.
    pub fn send_rest(&self) {
        self.instruments.send_due(&self.port, || u64::MAX);
    }

    /// When to call [`Wire::send_due`] next.
    pub fn deadline(&self) -> Option<u64> {
        self.instruments.deadline()
    }

    /// Schedules a queue pair to be advanced as soon as there may be room again, or when its time comes.
    pub fn stall(&self, index: u16) {
        self.stalled.add(index);
        self.have_watched();
    }

    /// A queue pair delays an acknowledgement, but not for ever.
    pub fn delay_ack(&self, index: u16, now: u64) {
        if let Some(other) = self.delayed_ack.delay(index, now) {
            self.stalled.add(other);
        }
        self.have_watched();
    }

    /// Something waits. Wakes the background thread if nobody would look at it.
    fn have_watched(&self) {
        // Either this sees that nobody watches, or the thread that is about to sleep sees what waits.
        fence(SeqCst);
        if !self.watched.load(Relaxed) && !self.watched.swap(true, SeqCst) {
            self.instruments.wake();
        }
    }

    /// The background thread asks this before it sleeps: how long it may sleep, in nanoseconds, because queue pairs are
    /// stalled or delay an acknowledgement. With `program_polls`, the program's polls look after everything that begins
    /// to wait from now on. Otherwise the thread is woken for it.
    pub fn watch(&self, program_polls: bool) -> Option<u64> {
        self.watched.store(program_polls, SeqCst);
        fence(SeqCst);
        let of_stalled = self.stalled.any().then_some(STALL);
        let of_delayed = self.delayed_ack.next_look();
        let wait = of_stalled.into_iter().chain(of_delayed).min();
        if wait.is_some() {
            self.watched.store(true, SeqCst);
        }
        wait
    }
}
