//! The wire link: RoCEv2 packets over UDP, for whoever is not reached otherwise.
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

/// Bursts taken in one go, so that whoever takes them gets back to his own work.
const BATCH: usize = 16;

/// How often one who polls finds another at the arrivals before he gives way: a few microseconds.
const REFUSALS: u32 = 64;

/// How long queue pairs wait that found the sockets full, in nanoseconds.
const STALL: u64 = 100_000;

/// The part of a receiver's room that what one process sends may fill.
const RECEIVERS_SHARE: usize = 4;

/// The wire link of this process: its share of the port, and what it needs to use it.
pub struct Wire {
    port: Port,
    inbound: Inbound,
    /// Room for what goes out, one for each thread that is at it.
    buffers: Mutex<Vec<BurstBuffer>>,
    /// Queue pairs that found the socket full, or are too early.
    pub stalled: Stalled,
    /// Somebody will give them a turn before long, and send what is delayed: a program that polls, or the
    /// background thread, which has been told.
    watched: AtomicBool,
    share: Share,
    /// A delayed acknowledgement.
    pub delayed_ack: DelayedAck,
    counters: &'static Counters,
    instruments: Instruments,
    too_long: LastTooLong,
}

/// What arrives, one thread at a time.
#[derive(Default)]
struct Inbound {
    /// Room for it. Whoever has it carries packets out, so that they keep their order.
    arrivals: Mutex<Arrivals>,
    /// Which polls look for it.
    looks: Looks,
    /// How often others have wanted it since somebody has had it.
    refused: AtomicU32,
}

/// What this process may have on its way: its share of the room that a receiver has.
struct Share {
    /// Bytes of all reliable queue pairs together.
    window: u64,
    /// Queue pairs that have packets on their way.
    senders: AtomicU32,
    /// For what nobody sends again.
    pace: Pace,
}

impl Share {
    /// Of a receiver that has as much room as this process.
    fn of(room: usize) -> Self {
        let window = (room / RECEIVERS_SHARE) as u64;
        Self { window, senders: AtomicU32::new(0), pace: Pace::new(window) }
    }
}

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

    /// The other user who has the port, and hands on what is for this process.
    pub fn holder(&self) -> Option<u32> {
        self.port.holder()
    }

    /// As [`Port::announce`].
    pub fn announce(&self, service: ServiceId) -> Option<Announcement> {
        self.port.announce(service)
    }

    /// Hands a packet that came to this process on to one of another user's, who does not have the port. False if it
    /// is not there.
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

    /// What to wait for.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.port.descriptors()
    }

    /// Readable when something that was sent has come to nobody.
    pub fn undelivered_descriptor(&self) -> BorrowedFd<'_> {
        self.port.undelivered_descriptor()
    }

    /// Hands on what has been told of that. While a user has the port be down, nobody hears it.
    pub fn take_undelivered(&self, receiver: &impl Receiver) {
        self.port.undelivered(|it| {
            if !self.instruments.outages.is_down() {
                receiver.undelivered(it);
            }
        });
    }

    /// Something lies in the second of them: whoever handed it on may have ended before he counted it.
    pub fn expect_handed(&self) {
        self.port.expect_handed();
    }

    /// Whether something has arrived that nobody has taken.
    pub fn has_arrivals(&self) -> bool {
        let descriptors = self.descriptors();
        let mut fds = descriptors.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        transom_system::wait::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Watches the other processes of the port; some may have ended if `ended` says so. If others have
    /// it than before, those that have ended.
    pub fn look_after(&self, others: &mut Others, ended: bool) -> Option<Vec<Announcer>> {
        let mut dead = Vec::new();
        if ended {
            others.bury(&self.port, &mut dead);
        }
        let changed = others.watch(&self.port, &mut dead);
        (changed || !dead.is_empty()).then_some(dead)
    }

    /// Has what is sent to a group on an interface come here. Where that cannot be, the group ends at
    /// this host.
    pub fn join(&self, group: IpAddr, interface: u32) {
        if let Err(error) = self.port.join(group, interface) {
            warn!(%group, interface, %error, "the group ends at this host");
        }
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

    /// Leaves the port to the other processes, for this one has failed.
    pub fn close_port(&self) {
        self.port.close();
    }

    /// What became of packets.
    pub fn counters(&self) -> &Counters {
        self.counters
    }

    /// How many bytes all queue pairs together may have on their way: the other end is taken to have as
    /// much room as this one, and others send to it too.
    pub fn window_limit(&self) -> u64 {
        self.share.window
    }

    /// How many of them one of those that send now may have.
    pub fn window_share(&self) -> u64 {
        self.share.window / u64::from(self.share.senders.load(Relaxed).max(1))
    }

    /// Whether `bytes` that nobody sends again may go now.
    pub fn admits(&self, bytes: u64, now: u64) -> bool {
        self.share.pace.admits(bytes, now)
    }

    /// A queue pair has packets on their way from now on, or none any more.
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

    /// Something has come to this process without packets: its polls look for them less often, until there are
    /// some again.
    pub fn expect_little(&self) {
        self.inbound.looks.seldom();
    }

    /// Sends a burst; false if there was no room for all of it. What finds no way is lost, and sent again
    /// like anything a network loses.
    pub fn send(&self, buffer: &mut BurstBuffer, path: &Path) -> bool {
        let Ok(port) = self.port.source_port(&path.way()) else {
            // No descriptor is left for its socket.
            self.counters.drop(Dropped::Unreachable, buffer.packets());
            return true;
        };
        // What is sent is answered.
        self.inbound.looks.always();
        let Some(icrc) = path.icrc(port) else { return true };
        let mut room = true;
        // A second try if the kernel turns out to number packets differently.
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
                        // Where the kernel cuts no bursts it may take a part of one.
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

    /// Sends a packet that goes with nothing else; false if there was no room for it.
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

    /// What this host's kernel has refused last for its length, if it was for this address.
    pub fn too_long_for(&self, destination: IpAddr) -> Option<TooLong> {
        self.too_long.towards(destination)
    }

    /// Sends what a network with faults has held back until now.
    pub fn send_due(&self) {
        self.instruments.send_due(&self.port, clock::steady);
    }

    /// Sends what such a network still holds back: there may be nobody to do it later.
    pub fn send_rest(&self) {
        self.instruments.send_due(&self.port, || u64::MAX);
    }

    /// When to call [`Wire::send_due`] next.
    pub fn deadline(&self) -> Option<u64> {
        self.instruments.deadline()
    }

    /// Has a queue pair advanced as soon as there may be room again, or it is time.
    pub fn stall(&self, index: u16) {
        self.stalled.add(index);
        self.have_watched();
    }

    /// A queue pair delays an acknowledgement, though not for ever.
    pub fn delay_ack(&self, index: u16, now: u64) {
        if let Some(other) = self.delayed_ack.delay(index, now) {
            self.stalled.add(other);
        }
        self.have_watched();
    }

    /// Something waits: wakes the background thread if nobody would look at it.
    fn have_watched(&self) {
        // Either this sees that nobody watches, or the thread that is about to sleep sees what waits.
        fence(SeqCst);
        if !self.watched.load(Relaxed) && !self.watched.swap(true, SeqCst) {
            self.instruments.wake();
        }
    }

    /// Asked by the background thread before it sleeps: how long it may, in nanoseconds, for the sake of
    /// queue pairs that are stalled or delay an acknowledgement. If `program_polls` that looks at what
    /// begins to wait from now on, else the thread is woken for it.
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
