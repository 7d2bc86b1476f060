//! Notes for `transom explain` why connections did not come about.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use transom_cm::{Claim, Happened};
use transom_net::management::ManagementDatagram;
use transom_system::addresses::gid;
use transom_system::clock;
use transom_system::registry::connections::ClaimedPort;
use transom_system::registry::{ConnectionFault, ConnectionRecord, Name};
use transom_wire::cm::{IpHeader, Mad, Message, PortSpace};

use super::ports::SharedPorts;
use super::routes;
use crate::device::Device;

/// The least time between two notes of refused requests, in nanoseconds. A sender of many requests must not push out
/// other notes, nor keep this process busy.
const SELDOM: u64 = 100_000_000;

/// Notes them.
pub(super) struct Complaints {
    device: Arc<Device>,
    /// When a request was noted last.
    last: u64,
}

impl Complaints {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self { device, last: 0 }
    }

    /// Notes an event that reports a failure, for an id with these addresses.
    pub(super) fn of_event(
        &self,
        (source, destination): (Option<SocketAddr>, Option<SocketAddr>),
        space: Option<PortSpace>,
        happened: &Happened,
        ports: &SharedPorts,
    ) {
        let (fault, code) = match happened {
            Happened::Rejected { reason, .. } => (ConnectionFault::Rejected, reason.code().into()),
            Happened::Unreachable => (ConnectionFault::Unreachable, 0),
            Happened::NobodyThere { .. } => (ConnectionFault::NobodyThere, 0),
            Happened::NotServed { status, .. } => {
                (ConnectionFault::NotServed, status.code().into())
            }
            Happened::AddressError(errno) | Happened::RouteError(errno) => {
                (ConnectionFault::NoRoute, errno.0 as u32)
            }
            Happened::MulticastError(_, errno) => (ConnectionFault::NotJoined, errno.0 as u32),
            Happened::Disconnected { timed_out: true } => (ConnectionFault::NotConfirmed, 0),
            Happened::DeviceRemoval => (ConnectionFault::DeviceRemoved, 0),
            Happened::AddressChange => (ConnectionFault::AddressChanged, 0),
            // These are no failures, or are the program's own doing.
            Happened::AddressResolved
            | Happened::RouteResolved
            | Happened::ConnectRequest { .. }
            | Happened::ConnectResponse { .. }
            | Happened::Established
            | Happened::Resolved { .. }
            | Happened::Disconnected { timed_out: false }
            | Happened::TimewaitExit
            | Happened::MulticastJoin(_)
            | Happened::Written { .. } => return,
        };
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let (source, destination) = (source.unwrap_or(nowhere), destination.unwrap_or(nowhere));
        // A group has no port.
        let destination = match happened {
            Happened::MulticastError(group, _) => SocketAddr::new(group.address, 0),
            _ => destination,
        };
        let text = happened.private_data().split(|byte| *byte == 0).next().unwrap_or_default();
        // Listeners are known only on this host.
        let is_rejected = matches!(fault, ConnectionFault::Rejected | ConnectionFault::NotServed);
        let space = space.filter(|_| is_rejected && self.is_of_this_host(destination.ip()));
        let listening = Listening::beside(space, destination, ports);
        let cause = if let Happened::Rejected { cause, .. } = happened { *cause } else { None };
        self.note(&ConnectionRecord {
            nearest: listening.nearest,
            listens_at: listening.listens_at,
            other_space: listening.other_space,
            cause,
            said: Name::new(str::from_utf8(text).unwrap_or_default()),
            ..record(fault, code, (source, destination))
        });
    }

    /// Notes that a message of an id with these addresses found no route, with this errno. The message is sent again
    /// later.
    pub(super) fn of_way(&self, ends: (Option<SocketAddr>, Option<SocketAddr>), errno: i32) {
        if let (Some(source), Some(destination)) = ends {
            self.note(&record(ConnectionFault::NoRoute, errno as u32, (source, destination)));
        }
    }

    /// Notes that a request which arrived here did not get what it asked for.
    pub(super) fn of_request(
        &mut self,
        datagram: &ManagementDatagram,
        fault: ConnectionFault,
        code: u32,
        ports: &SharedPorts,
    ) {
        let now = clock::steady();
        if self.last != 0 && now.saturating_sub(self.last) < SELDOM {
            return;
        }
        let Ok(mad) = Mad::parse(&datagram.mad) else { return };
        let (service, private_data): (_, &[u8]) = match &mad.message {
            Message::Req(req) => (req.service, &req.private_data),
            Message::SidrReq(request) => (request.service, &request.private_data),
            _ => return,
        };
        self.last = now;
        let header = private_data.first_chunk().and_then(IpHeader::read);
        let from = header.map_or(0, |header| header.source_port);
        let to = service.port().map_or(0, |(_, port)| port);
        let destination = SocketAddr::new(datagram.destination, to);
        let space = service.port().map(|(space, _)| space);
        let listening = Listening::beside(space, destination, ports);
        // Where the other end is on this host too, both tell of the connection by the same addresses.
        let named =
            header.map(|header| (header.addresses.source(), header.addresses.destination()));
        let named =
            named.filter(|(from, to)| [*from, *to].into_iter().all(|it| self.is_of_this_host(it)));
        let (source, asked) = named.unwrap_or((datagram.source, datagram.destination));
        let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(asked, to));
        self.note(&ConnectionRecord {
            nearest: listening.nearest,
            listens_at: listening.listens_at,
            other_space: listening.other_space,
            ..record(fault, code, (source, destination))
        });
    }

    fn is_of_this_host(&self, ip: IpAddr) -> bool {
        self.device.port().is_here(&gid(ip)) || routes::is_local(ip)
    }

    fn note(&self, record: &ConnectionRecord) {
        self.device.process().note_unconnected(record);
    }
}

/// Notes everything known about a connection that does not come about now.
fn record(
    fault: ConnectionFault,
    code: u32,
    (source, destination): (SocketAddr, SocketAddr),
) -> ConnectionRecord {
    ConnectionRecord {
        time: clock::wall(),
        fault,
        code,
        source,
        destination,
        nearest: 0,
        listens_at: None,
        other_space: None,
        cause: None,
        said: Name::new(""),
    }
}

/// The listeners near an address and port.
#[derive(Default)]
struct Listening {
    /// If nobody listens on the port: the port with its bytes swapped if somebody listens there, else the nearest one.
    /// Zero if there is none.
    nearest: u16,
    /// If somebody listens on the port, but not at the address asked for: one address where they do.
    listens_at: Option<IpAddr>,
    /// If nobody listens on the port: another port space in which somebody takes requests for that address and port.
    other_space: Option<PortSpace>,
}

impl Listening {
    /// Of the same port space, or of another one with the same port.
    fn beside(space: Option<PortSpace>, asked: SocketAddr, ports: &SharedPorts) -> Self {
        let Some(space) = space else { return Self::default() };
        let all = ports.table.lock().map(|mut table| table.all_ports()).unwrap_or_default();
        let listens = all.iter().filter(|it| it.listens && it.claim.space == space);
        let listens: Vec<Claim> = listens.map(|it| it.claim).collect();
        let (port, swapped) = (asked.port(), asked.port().swap_bytes());
        let mut on_port = listens.iter().filter(|it| it.address.port() == port).peekable();
        if let Some(first) = on_port.peek().map(|it| it.address.ip()) {
            let nobody = !on_port.any(|it| it.takes(asked.ip(), true));
            let listens_at = nobody.then_some(first);
            return Self { nearest: 0, listens_at, other_space: None };
        }
        let takes = |it: &&ClaimedPort| {
            it.listens && it.claim.address.port() == port && it.claim.takes(asked.ip(), true)
        };
        let other_space = all.iter().find(takes).map(|it| it.claim.space);
        let others = listens.iter().map(|it| it.address.port());
        let nearest = others.min_by_key(|it| (*it != swapped, it.abs_diff(port)));
        Self { nearest: nearest.unwrap_or(0), listens_at: None, other_space }
    }
}
