//! The wire link's sockets: UDP port 4791. The processes of one user in one network namespace share it. This module
//! moves bytes, and the transport gives them their meaning.
//!
//! | module | holds |
//! |---|---|
//! | `arrivals` | receiving bursts of datagrams |
//! | `receiving` | finding the process that each datagram is for, and giving it to that process |
//! | `sending` | sending datagrams, from a few sockets with different source ports |
//! | `steering` | the kernel's choice of the process that gets a packet |
//! | `others` | noticing that another process of the port has ended |
//! | `forward` | passing a datagram on that arrived at the wrong process |
//! | `guest` | processes of other users, who do not have the port |
//! | `control` | control messages: TTL, traffic class and interface of a datagram |
//! | `undelivered` | datagrams that nobody got, as the network or the other host reports |
//! | `holder` | the user who has the port, and the error if it is another user |
//! | `way` | where a datagram goes, and how |
//! | `socket` | sockets, their options and addresses |
//!
//! `quinn-udp` sends and receives bursts too. But it does not show TTL and DSCP, which a datagram's Global Route Header
//! needs, and it cannot set them for each datagram.

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
pub use self::guest::{Announcement, Guests, listening_guest};
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

/// The longest time that opening the port waits for its entry in the kernel's list. The loopback interface takes
/// microseconds, and a busy machine a few milliseconds.
const FIND_PLACE: Duration = Duration::from_millis(50);

/// The most bursts that are searched for datagrams of other processes, when the port opens and when it closes.
const LEFT_BEHIND: usize = 64;

/// This process's share of the port.
pub struct Port {
    // First, so that it is closed before the other processes hear of it.
    socket: OwnedFd,
    tenure: Tenure,
    steering: Steering,
    forward: Forward,
    sending: Sending,
    /// What its socket's buffer holds, in bytes.
    holds: usize,
    me: Announcer,
    /// The last time that a sender was told that its packet's process has ended.
    told: AtomicU64,
    counters: &'static Counters,
}

/// The user who keeps processes of this registry from opening the port, if there is one.
pub fn taken_by_others(registry: &Registry) -> Option<PortError> {
    let known = steering::Mapping::of(registry).ok()?;
    holder::taken_by_others(|inode| known.knows(inode))
}

/// Whether a user who has the port passes on the packets of other users. Programs that use Transom do.
pub fn hands_on(user: u32) -> bool {
    Host::watch(user).is_some()
}

impl Port {
    /// Opens the port for the process with this slot of the registry.
    pub fn open(registry: &'static Registry, me: Announcer) -> Result<Self, PortError> {
        let steering = Steering::open(registry, me).map_err(PortError::new)?;
        let forward = Forward::open(registry, me.slot, &steering).map_err(PortError::new)?;
        let socket = socket::open_receiving().map_err(PortError::new)?;
        let sending = Sending::new().map_err(PortError::new)?;
        let (tenure, told) = (Tenure::default(), AtomicU64::new(0));
        let counters = registry.counters(me.slot);
        let holds = rustix::net::sockopt::socket_recv_buffer_size(&socket).unwrap_or(ROOM);
        let port = Self { socket, tenure, steering, forward, sending, holds, me, told, counters };
        match port.enter() {
            Ok(()) => {}
            Err(taken) if taken.user().and_then(Host::watch).is_some() => {
                port.tenure.become_guest(me.slot).map_err(|_| taken)?;
            }
            Err(error) => return Err(error),
        }
        Ok(port)
    }

    /// Joins the other processes of this user on the port.
    fn enter(&self) -> Result<(), PortError> {
        // The others must know the socket before it joins them.
        self.steering.enter(holder::inode(&self.socket).map_err(PortError::new)?);
        if let Err(error) = socket::enter_port(&self.socket) {
            self.steering.leave();
            return Err(PortError::new(error));
        }
        // Processes of another registry have other slots, so they would steer packets to the wrong process.
        if holder::is_shared(|inode| self.steering.is_known(inode)) {
            return Err(PortError::shared());
        }
        self.steering.attach(&self.socket).map_err(PortError::new)?;
        self.steering.begin_round();
        self.tenure.become_host(self.me.slot);
        self.find_place();
        Ok(())
    }

    /// A descriptor that hangs up when a process of the user who has the port leaves it. None if this user has the
    /// port.
    fn watch_holder(&self) -> Option<OwnedFd> {
        Host::watch(self.holder()?)
    }

    /// The other user who has the port, and passes on the packets of this process.
    pub fn holder(&self) -> Option<u32> {
        let is_guest = self.tenure.is_guest();
        is_guest.then(|| holder::taken_by_others(|inode| self.steering.is_known(inode))?.user())?
    }

    /// A process of the user who has the port has left it. If it was the last one, this process takes the port.
    fn succeed(&self) {
        let deadline = Instant::now() + FIND_PLACE;
        while self.tenure.is_guest() && Instant::now() < deadline {
            match holder::taken_by_others(|inode| self.steering.is_known(inode)) {
                None => return drop(self.enter()),
                Some(taken) if taken.user().and_then(Host::watch).is_some() => return,
                // A killed process may keep the port for a moment after its connection has hung up.
                Some(_) => std::thread::yield_now(),
            }
        }
    }

    /// Waits until the kernel steers the packets of this process to this socket. Until then other processes pass them
    /// on, so datagrams would arrive late, after datagrams that were sent later. If the loopback interface is down, it
    /// gives up: then all packets take that detour.
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
            // A datagram for queue pair 1 may be for any process. The one that opens the port now takes it later.
            let _ = self.receive(&mut arrivals, LEFT_BEHIND, |datagrams| {
                let _ = self.forward.send(self.me.slot, &datagrams, &self.steering);
            });
        }
    }

    /// Readable when there is something to receive: from the port, and from other processes.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        let port = self.tenure.door().map_or(self.socket.as_fd(), Door::descriptor);
        [port, self.forward.descriptor()]
    }

    /// Leaves the port to the other processes, because this one's device has failed.
    pub fn close(&self) {
        self.give_up();
        // Other processes may still pass datagrams on. They must wake nobody.
        self.make_private();
        self.steering.leave();
    }

    /// Stops receiving. Passes on the datagrams of other processes, and those for queue pair 1, which may be about the
    /// connections of any process. Else they would be lost with the socket.
    fn give_up(&self) {
        // A thread may be starting a child, which has the socket until it calls `exec`. Until then the kernel would
        // still choose the socket, and nobody would receive from it.
        let has_left = socket::leave_port(&self.socket);
        self.steering.end_repairs();
        // If the socket still receives, more may arrive without end.
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

    /// Puts other sockets in the place of these, and receives no more. In a forked child the sockets are its parent's,
    /// and the port must be free when the parent ends.
    pub fn make_private(&self) {
        let Ok(nobody) = UnixDatagram::unbound() else { return };
        let always = [self.socket.as_fd(), self.forward.descriptor()];
        for inherited in always.into_iter().chain(self.tenure.descriptors()) {
            // SAFETY: both are open, and `inherited` stays so, as another socket.
            unsafe { libc::dup3(nobody.as_raw_fd(), inherited.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }

    /// The bytes that fit into the socket's receive buffer, without the kernel's overhead.
    pub fn receive_room(&self) -> usize {
        // The kernel counts its overhead too, and reports twice the requested size.
        self.holds / 2
    }

    /// Counts of dropped datagrams, and of those that took a detour.
    pub fn counters(&self) -> &Counters {
        self.counters
    }

    /// Another process of the port was killed, so it could not leave the port itself. False if its socket is still
    /// there.
    fn bury(&self, who: Announcer, ended: Instant) -> bool {
        self.steering.bury(who, ended, &self.socket)
    }

    /// Asks the other user who has the port to pass requests for a service on to this process, until the announcement
    /// is dropped.
    pub fn announce(&self, service: ServiceId) -> Option<Announcement> {
        let is_guest = self.tenure.is_guest();
        is_guest.then(|| Announcement::of(service, self.me.slot).ok())?
    }

    /// Readable when there is something for [`Port::undelivered`].
    pub fn undelivered_descriptor(&self) -> BorrowedFd<'_> {
        self.sending.undelivered_descriptor()
    }

    /// Calls `each` with every datagram of this process that the network or another host reports as undelivered.
    pub fn undelivered(&self, each: impl FnMut(&Undelivered<'_>)) {
        self.sending.undelivered(each);
    }

    /// The UDP source port of datagrams of this way.
    pub fn source_port(&self, way: &Way) -> io::Result<u16> {
        self.sending.source_port(way)
    }

    /// Receives what is sent to a group on an interface, too. A second call is no error.
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

    /// The IPv4 identification of the datagram with this number in a call of [`Port::send`]. The ICRC covers it.
    pub fn identification(&self, index: usize) -> u16 {
        self.sending.identification(index)
    }

    /// Sends datagrams of `segment` bytes each; the last may be shorter. Returns how many it sent: all, or the first
    /// few. Datagrams to a group on interface zero go to no network.
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

    /// Gives datagrams for a group to the processes of this host that need packets. The network does not send them back
    /// to this host.
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
