//! The service of an id, and its options (rule CM-38).

use transom_wire::cm::{PortSpace, TimeCode};

/// The kind of queue pair that an id connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection: the active end sends, the passive end receives.
    Xrc,
    /// Unreliable datagram.
    Ud,
}

/// A port space, with the kind of queue pair that its ports lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    space: PortSpace,
    kind: Kind,
}

impl Service {
    /// Reliable connections.
    pub const TCP: Self = Self { space: PortSpace::Tcp, kind: Kind::Rc };
    /// Datagrams.
    pub const UDP: Self = Self { space: PortSpace::Udp, kind: Kind::Ud };
    /// Datagrams of IP over InfiniBand.
    pub const IPOIB: Self = Self { space: PortSpace::Ipoib, kind: Kind::Ud };

    /// Any kind of queue pair, in the port space for all of them.
    pub const fn ib(kind: Kind) -> Self {
        Self { space: PortSpace::Ib, kind }
    }

    /// The port space.
    pub const fn space(self) -> PortSpace {
        self.space
    }

    /// The kind of queue pair.
    pub const fn kind(self) -> Kind {
        self.kind
    }
}

/// The options that a program has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Type of service: the traffic class of the packets.
    pub tos: Option<u8>,
    /// Whether other ids with this option may have the same port.
    pub reuse_address: bool,
    /// Whether an IPv6 wildcard excludes IPv4. `None` is the host's default.
    pub v6_only: Option<bool>,
    /// The ACK timeout of the queue pair.
    pub ack_timeout: Option<TimeCode>,
}
