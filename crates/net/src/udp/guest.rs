//! The port of a network namespace with processes of several users.
//!
//! The kernel lets only the sockets of one user share a port. If another user has it, a process is that user's *guest*.
//! A guest sends without the port. The processes with the port hand its packets on, to a socket whose name contains its
//! slot. When the last process of that user has left the port, the guest takes it.
//!
//! The kernel tells a guest with each message which user has sent it. A guest takes any packet from root and from its
//! own user. From others it takes only packets with an address of this host, which every user of this host can send
//! anyway. The queue pairs check all of these like any other packet.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use transom_system::descriptor;
use transom_system::registry::user_of;
use transom_wire::cm::ServiceId;

use super::forward::{self, Forward};
use super::{Datagrams, socket};

/// How long a guest remembers whether an address is this host's.
const REMEMBERED: Duration = Duration::from_millis(100);

/// How long a process with the port remembers which guests there are. One that comes meanwhile is found that much later.
const LOOKED: Duration = Duration::from_millis(10);

/// The backlog for guests that watch whether the process still has the port. None is ever accepted.
const GUESTS: i32 = 4096;

fn name(kind: &str, slot: u8) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("transom-{kind}-{slot}").as_bytes())?)
}

/// The kind of name that the socket has through which a guest gets its packets.
const DOOR: &str = "door";

fn door_of(slot: u8) -> io::Result<SocketAddrUnix> {
    name(DOOR, slot)
}

fn open(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(descriptor::high(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?))
}

/// A socket that a process with the port keeps open, so that guests notice when it leaves.
pub(super) struct Host(OwnedFd);

impl Host {
    /// `None` if another user has taken the name. Guests then watch another process with the port, or none.
    pub(super) fn open(slot: u8) -> io::Result<Option<Self>> {
        let own = open(SocketType::STREAM)?;
        match rustix::net::bind(&own, &name("port", slot)?) {
            Err(Errno::ADDRINUSE) => return Ok(None),
            bound => bound?,
        }
        rustix::net::listen(&own, GUESTS)?;
        Ok(Some(Self(own)))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A connection to a process of this user that has the port. It hangs up when the process leaves the port.
    pub(super) fn watch(user: u32) -> Option<OwnedFd> {
        (1..u8::MAX).find_map(|slot| {
            let asks = open(SocketType::STREAM).ok()?;
            rustix::net::connect(&asks, &name("port", slot).ok()?).ok()?;
            (user_of(&asks).ok()? == user).then_some(asks)
        })
    }
}

/// The socket through which others hand packets on to a guest.
pub(super) struct Door {
    socket: OwnedFd,
    /// The address asked about last, whether it is this host's, and when that was found out.
    known: Mutex<Option<(IpAddr, bool, Instant)>>,
}

impl Door {
    pub(super) fn open(slot: u8) -> io::Result<Self> {
        let socket = open(SocketType::DGRAM)?;
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        rustix::net::bind(&socket, &door_of(slot)?)?;
        Ok(Self { socket, known: Mutex::default() })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes the oldest message into `room`. The inner value is `None` if it holds no datagrams, or if a guest may not
    /// take them from its sender.
    pub(super) fn receive<'a>(&self, room: &'a mut [u8]) -> Option<Option<Datagrams<'a>>> {
        let (length, user) = receive_with_user(&self.socket, room)?;
        let datagrams = forward::parse(&room[..length]);
        Some(datagrams.filter(|it| user.is_some_and(|user| self.may_come(it.from, user))))
    }

    fn may_come(&self, from: SocketAddr, user: u32) -> bool {
        let ours = rustix::process::geteuid().as_raw();
        user == 0 || user == ours || self.is_of_this_host(from.ip())
    }

    fn is_of_this_host(&self, address: IpAddr) -> bool {
        let mut known = self.known.lock();
        if let Some((last, is_here, when)) = *known
            && last == address
            && when.elapsed() < REMEMBERED
        {
            return is_here;
        }
        let is_here = socket::is_of_this_host(address);
        *known = Some((address, is_here, Instant::now()));
        is_here
    }
}

/// Whether a process has the port or is a guest, and the sockets that it keeps open for that. A guest may come to have
/// the port, but a process with the port never becomes a guest.
#[derive(Default)]
pub(super) struct Tenure {
    /// Set once the process has the port. `None` inside if another user has taken the name.
    host: OnceLock<Option<Host>>,
    /// Set if the process is a guest, or was one.
    door: OnceLock<Door>,
    is_guest: AtomicBool,
}

impl Tenure {
    /// Another user has the port. Opens a door, where others hand packets on to the process in this slot.
    pub(super) fn become_guest(&self, slot: u8) -> io::Result<()> {
        let door = Door::open(slot)?;
        self.door.get_or_init(|| door);
        self.is_guest.store(true, SeqCst);
        Ok(())
    }

    /// The process in this slot has the port now. Its guests watch it from here on. Call this when the socket has
    /// joined the port: a process that ends loses its socket first, then what its guests watch.
    pub(super) fn become_host(&self, slot: u8) {
        self.is_guest.store(false, SeqCst);
        self.host.get_or_init(|| Host::open(slot).ok().flatten());
    }

    pub(super) fn is_guest(&self) -> bool {
        self.is_guest.load(SeqCst)
    }

    /// Where a guest gets its packets. `None` for a process that has the port.
    #[inline]
    pub(super) fn door(&self) -> Option<&Door> {
        self.door.get().filter(|_| self.is_guest.load(Relaxed))
    }

    /// Everything that is open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let host = self.host.get().and_then(Option::as_ref).map(Host::descriptor);
        self.door.get().map(Door::descriptor).into_iter().chain(host)
    }
}

/// A socket that a guest keeps open for a service that it listens to. Requests for the service name no process, so a
/// process with the port finds the guest by the socket's name.
#[derive(Debug)]
pub struct Announcement(#[expect(dead_code, reason = "it is there until it is dropped")] OwnedFd);

impl Announcement {
    pub(super) fn of(service: ServiceId, slot: u8) -> io::Result<Self> {
        let own = open(SocketType::DGRAM)?;
        rustix::net::bind(&own, &name(&listener_of(service), slot)?)?;
        Ok(Self(own))
    }
}

fn listener_of(ServiceId(service): ServiceId) -> String {
    format!("listener-{service:x}")
}

/// The slot of a guest that listens to a service.
pub fn listening_guest(service: ServiceId) -> Option<u8> {
    let kind = listener_of(service);
    let asks = open(SocketType::DGRAM).ok()?;
    (1..u8::MAX).find(|slot| has_name(&asks, &kind, *slot))
}

/// Whether there is a datagram socket of this name.
fn has_name(asks: &OwnedFd, kind: &str, slot: u8) -> bool {
    name(kind, slot).is_ok_and(|name| rustix::net::connect(asks, &name).is_ok())
}

/// The guests that there were a moment ago. Strangers may send any number of requests, each for another service. So a
/// request that nobody takes asks those guests only, and mostly there are none.
#[derive(Default)]
pub struct Guests(Mutex<Option<(Vec<u8>, Instant)>>);

impl Guests {
    /// The slot of one that listens to a service.
    pub fn listening(&self, service: ServiceId) -> Option<u8> {
        let slots = self.slots(Instant::now(), || {
            let Ok(asks) = open(SocketType::DGRAM) else { return Vec::new() };
            (1..u8::MAX).filter(|slot| has_name(&asks, DOOR, *slot)).collect()
        });
        if slots.is_empty() {
            return None;
        }
        let (asks, kind) = (open(SocketType::DGRAM).ok()?, listener_of(service));
        slots.into_iter().find(|slot| has_name(&asks, &kind, *slot))
    }

    fn slots(&self, now: Instant, look: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        let mut known = self.0.lock();
        match &*known {
            Some((slots, when)) if now.saturating_duration_since(*when) < LOOKED => slots.clone(),
            _ => known.insert((look(), now)).0.clone(),
        }
    }
}

/// Hands datagrams on to the guest in a slot; an error if nobody is there.
pub(super) fn send(by: &Forward, slot: u8, datagrams: &Datagrams<'_>) -> io::Result<()> {
    by.send_to(&door_of(slot)?, datagrams)
}

/// Room for credentials, and for nothing else. In more room, any process of this host could put its descriptors into
/// this one: the kernel writes them behind the credentials.
// SAFETY: takes a number.
const CREDENTIALS: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

/// The length of a message, and the user of the process that has sent it.
fn receive_with_user(socket: &OwnedFd, room: &mut [u8]) -> Option<(usize, Option<u32>)> {
    /// Aligned as control messages are.
    #[repr(C, align(8))]
    struct Control([u8; CREDENTIALS]);

    let mut control = Control([0; CREDENTIALS]);
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    let length = loop {
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message points to room that lives until the call has returned.
        let length = unsafe {
            libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut message, flags)
        };
        match usize::try_from(length) {
            Ok(length) => break length,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    };
    // SAFETY: the kernel has filled in the headers of the control messages that there are, within the room.
    let user = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_user = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_CREDENTIALS;
        is_user.then(|| libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().uid)
    };
    Some((length, user))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

    use rustix::fs::MemfdFlags;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    /// Nobody has this slot.
    const SLOT: u8 = 0;

    /// The real and effective user of this thread alone.
    fn become_user(user: u32) {
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, -1) }, 0);
    }

    fn hand_on(from: &str) {
        let bytes = b"packet";
        let from = from.parse().expect("an address");
        let to = "127.0.0.1".parse().expect("an address");
        let sent = Datagrams { from, to, tos: 0, ttl: 64, first: 0, segment: bytes.len(), bytes };
        let message = [&forward::head(&sent)[..], bytes].concat();
        let name = UnixAddress::from_abstract_name(format!("transom-door-{SLOT}")).expect("a name");
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.send_to_addr(&message, &name).expect("there is room");
    }

    /// Another user could have made up a packet that seems to come from another host.
    #[test]
    fn another_user_hands_on_only_what_anybody_could_send() {
        let door = Door::open(SLOT).expect("nobody has it");
        let came = || {
            let mut room = [0; 256];
            door.receive(&mut room).expect("something has come").map(|it| it.from.to_string())
        };
        let [near, far] = ["127.0.0.1:50000", "203.0.113.5:50000"];
        for from in [near, far] {
            hand_on(from);
            assert_eq!(came().as_deref(), Some(from), "of this user itself");
        }
        if rustix::process::geteuid().is_root() {
            for (from, expected) in [(near, Some(near)), (far, None)] {
                become_user(65_534);
                hand_on(from);
                become_user(0);
                assert_eq!(came().as_deref(), expected, "{from}");
            }
        }
        assert!(door.receive(&mut [0; 256]).is_none());
    }

    /// Any process of this host may send to a door.
    #[test]
    fn descriptors_of_others_stay_outside() {
        let door = Door::open(u8::MAX).expect("nobody has it");
        let name = UnixAddress::from_abstract_name("transom-door-255").expect("a name");
        let stranger = UnixDatagram::unbound().expect("a socket");
        stranger.connect_addr(&name).expect("the door");
        let theirs =
            rustix::fs::memfd_create("transom-theirs", MemfdFlags::CLOEXEC).expect("a file");
        let seen = || {
            let all = std::fs::read_dir("/proc/self/fd").expect("our own descriptors");
            let paths = all.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
            paths.filter(|path| path.to_string_lossy().contains("transom-theirs")).count()
        };
        for count in [1, 4, 8] {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let many = vec![theirs.as_fd(); count];
            assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
            let parts = [IoSlice::new(b"no packet")];
            let sent = rustix::net::sendmsg(&stranger, &parts, &mut control, SendFlags::empty());
            assert_eq!(sent, Ok(9));
            assert!(door.receive(&mut [0; 256]).is_some(), "a message has come");
            assert_eq!(seen(), 1, "{count} were sent");
        }
    }

    /// Any number of them may come, each for another service.
    #[test]
    fn requests_that_nobody_takes_do_not_each_look_for_guests() {
        let (guests, begun, mut looks) = (Guests::default(), Instant::now(), 0);
        let mut ask = |after| {
            let mut look = || {
                looks += 1;
                vec![looks]
            };
            guests.slots(begun + after, &mut look)
        };
        for _ in 0..1000 {
            assert_eq!(ask(Duration::ZERO), [1]);
        }
        assert_eq!(ask(LOOKED / 2), [1]);
        assert_eq!(ask(LOOKED), [2], "one that has come since");
    }

    #[test]
    fn an_address_of_this_host_is_one_that_is_sent_from() {
        let is_here = |text: &str| socket::is_of_this_host(text.parse().expect("an address"));
        assert!(is_here("127.0.0.1") && is_here("::1"));
        assert!(!is_here("203.0.113.5") && !is_here("2001:db8::5"));
    }
}
