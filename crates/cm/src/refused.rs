//! Why a call is refused, and the errors that events tell of, by the system's numbers.

/// A system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The operation is not permitted for this user.
    pub const EACCES: Self = Self(13);
    /// There is no such device.
    pub const ENODEV: Self = Self(19);
    /// An argument, or the id's state, does not allow it.
    pub const EINVAL: Self = Self(22);
    /// Another has the address.
    pub const EADDRINUSE: Self = Self(98);
    /// The address cannot be had.
    pub const EADDRNOTAVAIL: Self = Self(99);
    /// It is connected already.
    pub const EISCONN: Self = Self(106);
    /// Nobody answered in time.
    pub const ETIMEDOUT: Self = Self(110);
    /// There is no room.
    pub const ENOMEM: Self = Self(12);
    /// There is no such thing.
    pub const ENOENT: Self = Self(2);
    /// There is no such device any more.
    pub const ENXIO: Self = Self(6);
}

/// Why a call is refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// There is no such id.
    #[error("there is no such id")]
    NoSuchId,
    /// Not in this state of the id.
    #[error("the id is in a state that does not allow it")]
    State,
    /// Not for ids of this service or kind of queue pair.
    #[error("the id is of a service that does not have it")]
    Service,
    /// More private data than the message has room for.
    #[error("{given} bytes of private data, and there is room for {room}")]
    PrivateData {
        /// Bytes given.
        given: usize,
        /// Bytes that there is room for.
        room: usize,
    },
    /// Source and destination are of different families.
    #[error("source and destination are of different families")]
    Family,
    /// Another id has this address and port.
    #[error("another id has this address and port")]
    InUse,
    /// The address is not of this host, or another id's address includes it, or no port is left.
    #[error("the address or port cannot be had")]
    NotAvailable,
    /// No device has this address.
    #[error("no device has this address")]
    NoDevice,
    /// A port below 1024 takes a privilege.
    #[error("a port below 1024 takes a privilege")]
    Privileged,
    /// It is connected already.
    #[error("it is connected already")]
    Connected,
    /// All communication ids are in use.
    #[error("all communication ids are in use")]
    NoIds,
}

impl Refused {
    /// The error that the call ends with.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoSuchId => Errno::ENOENT,
            Self::State | Self::Service | Self::PrivateData { .. } | Self::Family => Errno::EINVAL,
            Self::InUse => Errno::EADDRINUSE,
            Self::NotAvailable => Errno::EADDRNOTAVAIL,
            Self::NoDevice => Errno::ENODEV,
            Self::Privileged => Errno::EACCES,
            Self::Connected => Errno::EISCONN,
            Self::NoIds => Errno::ENOMEM,
        }
    }
}
