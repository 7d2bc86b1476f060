//! Reasons why a connection was not made.

use crate::PrivateData;
use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

/// The reason why a connection was not made.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// use transom::{ConnectionProblem, Error, Listener, Provider, QueuePair};
///
/// let listener = Listener::bind(&Provider::software(), "127.0.0.1:0".parse().unwrap())?;
/// let nobody = listener.local_address();
/// drop(listener);
/// match QueuePair::builder(&pd, &cq).connect_to(nobody) {
///     Err(Error::Connection(error)) => match error.problem {
///         ConnectionProblem::Rejected(rejection) => assert!(rejection.is_no_listener()),
///         ConnectionProblem::Unreachable { after } => println!("no answer after {after:?}"),
///         other => println!("{other:?}"),
///     },
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The problem.
    pub problem: ConnectionProblem,
}

/// The problem that prevented a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionProblem {
    /// The peer refused, or its host did, because nobody listens there.
    Rejected(Rejection),
    /// The peer did not answer.
    Unreachable {
        /// How long this end waited.
        after: Duration,
    },
    /// No device leads to the address.
    NoRoute {
        /// The error number of `errno(3)`.
        errno: i32,
    },
    /// The device that leads to the peer is not the device of the queue pair or the domain.
    OtherDevice {
        /// The device and port that lead to the peer.
        leads: String,
        /// The device and port of the given queue pair or domain.
        given: String,
    },
    /// The peer gave up before the connection was made.
    GaveUp,
    /// The device has gone.
    DeviceRemoved,
    /// The connection manager failed at this end.
    Failed {
        /// The error number of `errno(3)`.
        errno: i32,
    },
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection with {}: ", self.peer)?;
        let os = |errno: &i32| io::Error::from_raw_os_error(*errno);
        match &self.problem {
            ConnectionProblem::Rejected(rejection) => rejection.fmt(f),
            ConnectionProblem::Unreachable { after } => write!(
                f,
                "no answer after {:.1} seconds; check that the address is right, that its host is up, \
                 and that no firewall drops UDP port 4791",
                after.as_secs_f64()
            ),
            ConnectionProblem::NoRoute { errno } => write!(
                f,
                "no RDMA device leads there: {}; `ip route get {}` shows the interface of the \
                 route, which must be that of an RDMA device",
                os(errno),
                self.peer.ip()
            ),
            ConnectionProblem::OtherDevice { leads, given } => write!(
                f,
                "{leads} leads there, but you use {given}; make the domain and the queue pair on the device \
                 that leads there, or use an address that yours leads to"
            ),
            ConnectionProblem::GaveUp => {
                write!(f, "the peer gave up first; let it wait longer, or accept sooner")
            }
            ConnectionProblem::DeviceRemoved => {
                write!(f, "the device has gone; open it again when it is back")
            }
            ConnectionProblem::Failed { errno } => {
                write!(f, "the connection manager failed: {}; try again", os(errno))
            }
        }
    }
}

impl std::error::Error for ConnectionError {}

/// A refusal, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason's number in the InfiniBand specification: 8 if nobody listens there, 28 if a program refused.
    /// Datagram services have fewer reasons, with numbers of their own. Here they have the number of the same reason
    /// for connections.
    pub reason: u16,
    /// The private data of the program that refused.
    pub private_data: PrivateData,
}

impl Rejection {
    /// Whether a program listened there and refused, or ended.
    pub fn is_by_program(&self) -> bool {
        self.reason == 28
    }

    /// Whether nobody listens there.
    pub fn is_no_listener(&self) -> bool {
        self.reason == 8
    }

    /// The name of the reason.
    pub fn name(&self) -> &'static str {
        match self.reason {
            1 => "no queue pair available",
            2 => "no end-to-end context available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "invalid service id",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "reliable datagram context does not exist",
            12 => "primary remote port GID rejected",
            13 => "primary remote port LID rejected",
            14 => "invalid primary service level",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            20 => "invalid alternate service level",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "communication manager and port redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer reject",
            29 => "RNR retry count rejected",
            30 => "duplicate local communication id",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option not supported",
            _ => "unknown reason",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, advice) = match self.reason {
            8 => {
                ("nobody listens on that port", "start the server first, or see which port it has")
            }
            28 => ("its program refused", "it may say more in its private data"),
            4 => ("the peer has stopped waiting", "accept sooner"),
            10 => ("a connection of that queue pair is not over yet", "try again"),
            _ => ("it was refused", "see the InfiniBand specification on that reason"),
        };
        write!(f, "{what} (reason {}, {}); {advice}", self.reason, self.name())
    }
}
