//! What `transom explain` tells of connections that did not come about.

use std::net::SocketAddr;
use std::sync::Arc;

use transom_cm::Happened;
use transom_net::management::ManagementDatagram;
use transom_system::clock;
use transom_system::registry::{ConnectionFault, ConnectionRecord, Name};
use transom_wire::cm::{IpHeader, Mad, Message, ServiceId};

use super::ports::SharedPorts;
use crate::device::Device;

/// Requests that are refused are noted no more often than this, in nanoseconds: whoever sends many is not
/// to push out what others want to know, nor to keep this process busy.
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

    /// Notes an event that says so, of an id with these addresses.
    pub(super) fn of_event(
        &self,
        (source, destination): (Option<SocketAddr>, Option<SocketAddr>),
        happened: &Happened,
    ) {
        let (fault, code) = match happened {
            Happened::Rejected { reason, .. } => (ConnectionFault::Rejected, reason.code().into()),
            Happened::Unreachable => (ConnectionFault::Unreachable, 0),
            Happened::NobodyThere { .. } => (ConnectionFault::NobodyThere, 0),
            Happened::NotServed(status) => (ConnectionFault::NotServed, status.code().into()),
            Happened::AddressError(errno) | Happened::RouteError(errno) => {
                (ConnectionFault::NoRoute, errno.0 as u32)
            }
            _ => return,
        };
        let text = happened.private_data().split(|byte| *byte == 0).next().unwrap_or_default();
        let said = Name::new(str::from_utf8(text).unwrap_or_default());
        self.note_between((source, destination), fault, code, said);
    }

    /// Notes that a message of an id with these addresses has found no way, for this errno. It goes again.
    pub(super) fn of_way(&self, ends: (Option<SocketAddr>, Option<SocketAddr>), errno: i32) {
        self.note_between(ends, ConnectionFault::NoRoute, errno as u32, Name::new(""));
    }

    fn note_between(
        &self,
        ends: (Option<SocketAddr>, Option<SocketAddr>),
        fault: ConnectionFault,
        code: u32,
        said: Name<32>,
    ) {
        if let (Some(source), Some(destination)) = ends {
            self.note(fault, code, (source, destination), 0, said);
        }
    }

    /// Notes that a request which came here did not get what it asked for.
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
        let ends =
            (SocketAddr::new(datagram.source, from), SocketAddr::new(datagram.destination, to));
        self.note(fault, code, ends, nearest(service, ports), Name::new(""));
    }

    fn note(
        &self,
        fault: ConnectionFault,
        code: u32,
        (source, destination): (SocketAddr, SocketAddr),
        nearest: u16,
        said: Name<32>,
    ) {
        let time = clock::wall();
        let record = ConnectionRecord { time, fault, code, source, destination, nearest, said };
        self.device.process().note_unconnected(&record);
    }
}

/// The port of the same port space that is nearest to a service's and that somebody listens on; zero if
/// there is none.
fn nearest(service: ServiceId, ports: &SharedPorts) -> u16 {
    let Some((space, port)) = service.port() else { return 0 };
    let all = ports.table.lock().map(|mut table| table.all_ports()).unwrap_or_default();
    let listens = all.iter().filter(|it| it.listens && it.claim.space == space);
    let ports = listens.map(|it| it.claim.address.port());
    ports.min_by_key(|other| other.abs_diff(port)).unwrap_or(0)
}
