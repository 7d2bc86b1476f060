//! The wire link's sockets: UDP port 4791, shared by the processes of one user in one network
//! namespace. Bytes in, bytes out; what they mean is the transport's business.
//!
//! | module | holds |
//! |---|---|
//! | `arrivals` | receiving bursts of datagrams |
//! | `receiving` | for which process each of them is, and giving it to that process |
//! | `sending` | sending them, from a few sockets that differ in their source port |
//! | `steering` | which process gets a packet |
//! | `others` | noticing the end of one of them |
//! | `forward` | handing on one that went astray |
//! | `guest` | processes of other users, who do not have the port |
//! | `control` | what goes with a datagram beside its bytes |
//! | `undelivered` | datagrams of which the network, or the other end, says that they have come to nobody |
//! | `holder` | who has the port, and what to say when that is somebody else |
//! | `way` | the way of a datagram |
//! | `socket` | sockets, their options and addresses |
//!
//! `quinn-udp` does the sending and receiving of bursts too, but neither the TTL and DSCP, which a
//! datagram's Global Route Header shows, nor the choice of both by datagram.

mod arrivals;
mod control;
mod forward;
mod guest;
mod holder;
mod others;
mod receiving;
mod sending;
mod socket;
mod steering;
mod undelivered;
mod way;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use transom_device::protection::Announcer;
use transom_system::registry::{Counters, Registry};
use transom_wire::cm::ServiceId;

pub use self::arrivals::{Arrivals, Datagrams};
use self::forward::Forward;
#[cfg(debug_assertions)]
pub(crate) use self::forward::{head, parse};
pub use self::guest::{Announcement, listening_guest};
use self::guest::{Door, Host, Tenure};
pub use self::holder::PortError;
pub use self::others::Others;
pub use self::sending::SendError;
pub(crate) use self::sending::Sending;
pub use self::socket::ROOM;
#[cfg(debug_assertions)]
pub(crate) use self::steering::Probe;
use self::steering::Steering;
pub use self::undelivered::{Obstacle, Undelivered};
pub use self::way::{Way, path_mtu};

/// How long opening the port waits for its entry in the kernel's list; the loopback interface takes
/// microseconds, and a busy machine a few milliseconds.
const FIND_PLACE: Duration = Duration::from_millis(50);

/// Bursts that are looked through for those of others before the port is of use, and after.
const LEFT_BEHIND: usize = 64;

/// This process's share of the port.
pub struct Port {
    // Closed before the others are told that it is.
    socket: OwnedFd,
    tenure: Tenure,
    steering: Steering,
    forward: Forward,
    sending: Sending,
    me: Announcer,
    /// When a sender was told last that nobody is there.
    told: AtomicU64,
    counters: &'static Counters,
}

/// Who keeps a process of this registry from having the port, if somebody does.
pub fn taken_by_others(registry: &Registry) -> Option<PortError> {
    let known = steering::Mapping::of(registry).ok()?;
    holder::taken_by_others(|inode| known.knows(inode))
}

/// Whether a user who has the port hands on to those of others what is for them: his programs are Transom's.
pub fn hands_on(user: u32) -> bool {
    Host::watch(user).is_some()
}

impl Port {
    /// Opens the port for the process that has a slot in the registry.
    pub fn open(registry: &'static Registry, me: Announcer) -> Result<Self, PortError> {
        let steering = Steering::open(registry, me).map_err(PortError::new)?;
        let forward = Forward::open(registry, me.slot, &steering).map_err(PortError::new)?;
        let socket = socket::open_receiving().map_err(PortError::new)?;
        let sending = Sending::new().map_err(PortError::new)?;
        let (tenure, told) = (Tenure::default(), AtomicU64::new(0));
        let counters = registry.counters(me.slot);
        let port = Self { socket, tenure, steering, forward, sending, me, told, counters };
        match port.enter() {
            Ok(()) => {}
            Err(taken) if taken.user().and_then(Host::watch).is_some() => {
                port.tenure.become_guest(me.slot).map_err(|_| taken)?;
            }
            Err(error) => return Err(error),
        }
        Ok(port)
    }

    /// Has the socket share the port with the other processes of this user.
    fn enter(&self) -> Result<(), PortError> {
        // Before it joins them.
        self.steering.enter(holder::inode(&self.socket).map_err(PortError::new)?);
        if let Err(error) = socket::enter_port(&self.socket) {
            self.steering.leave();
            return Err(PortError::new(error));
        }
        // Those of another registry would be steered by other slots.
        if holder::is_shared(|inode| self.steering.is_known(inode)) {
            return Err(PortError::shared());
        }
        self.steering.attach(&self.socket).map_err(PortError::new)?;
        self.steering.begin_round();
        self.tenure.become_host(self.me.slot);
        self.find_place();
        Ok(())
    }

    /// The user who has the port, and what hangs up when one of his processes leaves it; none if this user has it.
    fn watch_holder(&self) -> Option<OwnedFd> {
        Host::watch(self.holder()?)
    }

    /// The other user who has the port, and hands on what is for this process.
    pub fn holder(&self) -> Option<u32> {
        let is_guest = self.tenure.is_guest();
        is_guest.then(|| holder::taken_by_others(|inode| self.steering.is_known(inode))?.user())?
    }

    /// A process of the user who has the port has left it: if it was the last one, the port is this process's now.
    fn succeed(&self) {
        let deadline = Instant::now() + FIND_PLACE;
        while self.tenure.is_guest() && Instant::now() < deadline {
            match holder::taken_by_others(|inode| self.steering.is_known(inode)) {
                None => return drop(self.enter()),
                Some(taken) if taken.user().and_then(Host::watch).is_some() => return,
                // One that is killed may still have the port when nobody is to be watched any more.
                Some(_) => std::thread::yield_now(),
            }
        }
    }

    /// Waits until packets for this process come here and do not go astray first: datagrams would be
    /// late, behind what was sent after them. Where the loopback interface is down it gives up, for
    /// then they always go astray.
    fn find_place(&self) {
        let mut arrivals = Arrivals::default();
        let deadline = Instant::now() + FIND_PLACE;
        while !self.steering.has_place() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return };
            let mut wait = [PollFd::new(&self.socket, PollFlags::IN)];
            let came =
                transom_system::wait::poll(&mut wait, Some(&left)).is_ok_and(|ready| ready > 0);
            if !came || Instant::now() >= deadline {
                return;
            }
            // It may be for queue pair 1, of this process or of others: this one takes it when its port is of use.
            let _ = self.receive(&mut arrivals, LEFT_BEHIND, |datagrams| {
                let _ = self.forward.send(self.me.slot, &datagrams, &self.steering);
            });
        }
    }

    /// Readable when there is something to receive: the port, and what other processes hand on.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        let port = self.tenure.door().map_or(self.socket.as_fd(), Door::descriptor);
        [port, self.forward.descriptor()]
    }

    /// Leaves the port to the other processes, for this one's device has failed.
    pub fn close(&self) {
        self.give_up();
        // What others still hand on wakes nobody.
        self.make_private();
        self.steering.leave();
    }

    /// Has nothing come here any more. What of others has gone astray is handed on, and what is for queue pair 1,
    /// which may be about any process's connections: it would be lost with the socket.
    fn give_up(&self) {
        // A child that a thread is just about to start has the socket until it has become its program. Until then
        // the kernel would go on choosing it, and nobody would take what comes there.
        let has_left = socket::leave_port(&self.socket);
        self.steering.end_repairs();
        // Else more may come all the time.
        let limit = if has_left { usize::MAX } else { LEFT_BEHIND };
        let _ = self.receive(&mut Arrivals::default(), limit, |datagrams| {
            for (number, bytes) in datagrams.iter().enumerate() {
                if matches!(bytes.get(5..8), Some([0, 0, 1])) {
                    self.leave_to_others(&Datagrams {
                        first: datagrams.first + number,
                        segment: bytes.len(),
                        bytes,
                        ..datagrams
                    });
                }
            }
        });
    }

    /// Leaves the sockets to whoever else has them, and has nothing come here any more: in a forked child they are
    /// its parent's, whose port is free when that ends.
    pub fn make_private(&self) {
        let Ok(nobody) = UnixDatagram::unbound() else { return };
        let always = [self.socket.as_fd(), self.forward.descriptor()];
        for inherited in always.into_iter().chain(self.tenure.descriptors()) {
            // SAFETY: both are open, and `inherited` stays so, as another socket.
            unsafe { libc::dup3(nobody.as_raw_fd(), inherited.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }

    /// Bytes that may lie in the socket before it loses some, with the kernel's overhead left out.
    pub fn receive_room(&self) -> usize {
        // The kernel counts both, and says twice what was asked for.
        rustix::net::sockopt::socket_recv_buffer_size(&self.socket).unwrap_or_default() / 2
    }

    /// What was dropped or took a detour.
    pub fn counters(&self) -> &Counters {
        self.counters
    }

    /// Another process that had the port has ended without a word.
    fn bury(&self, who: Announcer) {
        self.steering.bury(who, &self.socket);
    }

    /// Has requests for a service handed on to this process while another user has the port, until what this answers is
    /// dropped.
    pub fn announce(&self, service: ServiceId) -> Option<Announcement> {
        let is_guest = self.tenure.is_guest();
        is_guest.then(|| Announcement::of(service, self.me.slot).ok())?
    }

    /// Readable when there is something for [`Port::undelivered`].
    pub fn undelivered_descriptor(&self) -> BorrowedFd<'_> {
        self.sending.undelivered_descriptor()
    }

    /// Hands out what this process has sent and of which was told that it has come to nobody.
    pub fn undelivered(&self, each: impl FnMut(&Undelivered<'_>)) {
        self.sending.undelivered(each);
    }

    /// The UDP port that datagrams of this way come from.
    pub fn source_port(&self, way: &Way) -> io::Result<u16> {
        self.sending.source_port(way)
    }

    /// Has what is sent to a group on an interface come here too; again is no error.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such interface, `ENOBUFS` if the kernel lets the socket join no more
    /// groups of IPv4 (`net.ipv4.igmp_max_memberships`, usually 20), `ENOMEM` for those of IPv6
    /// (`net.core.optmem_max`).
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        socket::join(&self.socket, group, interface)
    }

    /// Ends [`Port::join`].
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL` if it has not joined, `ENODEV` if the interface is gone.
    pub fn leave(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        socket::leave(&self.socket, group, interface)
    }

    /// How many datagrams of `segment` bytes one [`Port::send`] takes.
    pub fn most_segments(&self, segment: usize) -> usize {
        self.sending.most(segment)
    }

    /// The IPv4 identification, which the ICRC covers, of the datagram with this number in a call of
    /// [`Port::send`].
    pub fn identification(&self, index: usize) -> u16 {
        self.sending.identification(index)
    }

    /// Sends datagrams of `segment` bytes each, the last of which may be shorter, and says how many
    /// went out: all, or the first few. Those to a group on interface zero go to no network.
    pub fn send(&self, way: &Way, bytes: &[u8], segment: usize) -> Result<usize, SendError> {
        if !way.destination.is_multicast() {
            return self.sending.send(way, bytes, segment);
        }
        let sent = match way.interface {
            0 => Ok(bytes.len().div_ceil(segment).min(self.most_segments(segment))),
            _ => self.sending.send(way, bytes, segment),
        };
        if let Ok(count) = sent {
            self.share(way, &bytes[..bytes.len().min(count * segment)], segment);
        }
        sent
    }

    /// Gives datagrams for a group to the processes of this host that only packets lead to: what is sent
    /// to a network does not come back from it.
    fn share(&self, way: &Way, bytes: &[u8], segment: usize) {
        let Ok(port) = self.source_port(way) else { return };
        let Way { source, destination: to, tos, ttl, .. } = *way;
        let from = SocketAddr::new(source, port);
        let datagrams = Datagrams { from, to, tos, ttl, first: 0, segment, bytes };
        for Announcer { slot, .. } in self.steering.others() {
            let apart = self.steering.registry().needs_packets(slot);
            if apart {
                let _ = self.forward.send(slot, &datagrams, &self.steering);
            }
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.steering.is_ours() {
            self.give_up();
        }
    }
}
