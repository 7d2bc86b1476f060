//! The reasons for refused calls, and the errors in events, by the system's numbers.

use std::net::IpAddr;

/// A system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// This user may not do this.
    pub const EACCES: Self = Self(13);
    /// There is no such device.
    pub const ENODEV: Self = Self(19);
    /// An argument is invalid, or the id's state does not allow the call.
    pub const EINVAL: Self = Self(22);
    /// Another id has the address.
    pub const EADDRINUSE: Self = Self(98);
    /// The address is not available.
    pub const EADDRNOTAVAIL: Self = Self(99);
    /// The connection is already established.
    pub const EISCONN: Self = Self(106);
    /// Nobody answered in time.
    pub const ETIMEDOUT: Self = Self(110);
    /// There is not enough memory or room.
    pub const ENOMEM: Self = Self(12);
    /// There is no such object.
    pub const ENOENT: Self = Self(2);
    /// The device is gone.
    pub const ENXIO: Self = Self(6);
    /// There is no such descriptor.
    pub const EBADF: Self = Self(9);
    /// No descriptor is left.
    pub const EMFILE: Self = Self(24);
    /// The device does not answer this process.
    pub const EIO: Self = Self(5);
}

/// The reason why a call is refused. A refused call has changed nothing, except where its reason says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// There is no such id.
    #[error("there is no such id")]
    NoSuchId,
    /// The id's state does not allow the call.
    #[error("the id {is}; {takes}")]
    State {
        /// The state of the id, as the rest of a sentence.
        is: &'static str,
        /// The ids that the call takes, as a sentence.
        takes: &'static str,
    },
    /// The call is not for ids of this service or kind of queue pair.
    #[error("{0}")]
    Service(&'static str),
    /// The call is not for this address.
    #[error("{0}")]
    Address(&'static str),
    /// There is more private data than the message has room for.
    #[error("{given} bytes of private data are given, and the message has room for {room}")]
    PrivateData {
        /// The number of bytes given.
        given: usize,
        /// The number of bytes that there is room for.
        room: usize,
    },
    /// Source and destination are of different families.
    #[error("source and destination are of different families: one is IPv4, the other IPv6")]
    Family,
    /// Another id has this address and port.
    #[error("another id, of this or another process, has this address and port already")]
    InUse,
    /// Another id's address includes this one.
    #[error(
        "another id has this port already (`transom devices` says whose); 0.0.0.0, :: and loopback \
         addresses stand for all others"
    )]
    Overlaps,
    /// The address is not of this host.
    #[error("the address does not belong to this host: see `ip address`")]
    NotAvailable,
    /// No port is left.
    #[error("no port is left in net.ipv4.ip_local_port_range")]
    NoPort,
    /// A link-local address is ambiguous without an interface (rule CM-36).
    #[error("a link-local address needs the index of its interface (sin6_scope_id)")]
    NoInterface,
    /// No device has this address.
    #[error("the address belongs to this host, but not to the device: see `transom devices`")]
    NoDevice,
    /// No route leads to the destination. The id is bound all the same.
    #[error("no route leads to {to}: {}", std::io::Error::from_raw_os_error(.errno.0))]
    NoRoute {
        /// The destination.
        to: IpAddr,
        /// The host's error.
        errno: Errno,
    },
    /// A port below 1024 needs a privilege.
    #[error("a port below net.ipv4.ip_unprivileged_port_start needs CAP_NET_BIND_SERVICE")]
    Privileged,
    /// The connection is already established.
    #[error("the connection is established already")]
    Connected,
    /// All communication ids are in use.
    #[error("all ids are in use")]
    NoIds,
    /// There is no memory for the message.
    #[error("there is no memory for the message")]
    NoMemory,
    /// The shared table of ports is full or cannot be locked.
    #[error("the table of ports that all processes share is full, or cannot be locked")]
    NoTable,
    /// The id belongs to another file than the call.
    #[error("the id belongs to another event channel")]
    OtherFile,
    /// There is no such file.
    #[error("the event channel has been closed")]
    NoFile,
    /// No descriptor is left.
    #[error("no file descriptor is left: see `ulimit -n`")]
    NoDescriptor,
    /// The id's device is gone, and the id has had the event.
    #[error("the device of the id is gone: the id has had RDMA_CM_EVENT_DEVICE_REMOVAL")]
    Removed,
    /// The device has failed.
    #[error("the device has failed; standard error has the reason")]
    DeviceFailed,
    /// The device belongs to the process that this one was forked from.
    #[error("the device belongs to the process that this one was forked from; open one here")]
    Inherited,
    /// The connection manager could not be made.
    #[error("the connection manager cannot be started: {}", std::io::Error::from_raw_os_error(.0.0))]
    NoManager(Errno),
    /// There is no such group membership.
    #[error("there is no such group membership, or it belongs to another event channel")]
    NoGroup,
    /// A rehearsal made the call fail.
    #[error("`transom rehearse` made it fail, as the kernel may")]
    Rehearsed(Errno),
    /// The id does not belong to the group of this address.
    #[error("the id has not joined the group of this address")]
    NotJoined,
}

impl Refused {
    /// The errno of the call.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoSuchId | Self::NoGroup => Errno::ENOENT,
            Self::State { .. }
            | Self::Service(_)
            | Self::Address(_)
            | Self::PrivateData { .. }
            | Self::Family
            | Self::NoInterface
            | Self::OtherFile => Errno::EINVAL,
            Self::InUse => Errno::EADDRINUSE,
            Self::Overlaps | Self::NotAvailable | Self::NoPort | Self::NotJoined => {
                Errno::EADDRNOTAVAIL
            }
            Self::NoDevice | Self::DeviceFailed => Errno::ENODEV,
            Self::Privileged => Errno::EACCES,
            Self::Connected => Errno::EISCONN,
            Self::NoIds | Self::NoTable | Self::NoMemory => Errno::ENOMEM,
            Self::NoManager(errno) | Self::NoRoute { errno, .. } | Self::Rehearsed(errno) => errno,
            Self::NoFile => Errno::EBADF,
            Self::NoDescriptor => Errno::EMFILE,
            Self::Removed => Errno::ENXIO,
            Self::Inherited => Errno::EIO,
        }
    }
}
