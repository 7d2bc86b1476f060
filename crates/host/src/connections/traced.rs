//! What is recorded of the ids of the connection manager, for those who want the events of this process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use transom_cm::{Engine, Happened};
use transom_system::ThisProcess;
use transom_system::trace::{self, Event, What};
use transom_wire::cm::CommId;

/// A program has asked for a connection.
#[cold]
pub(super) fn connects(process: &ThisProcess, engine: &Engine, id: CommId, qp: u32) {
    let common = common(engine.source(id), engine.destination(id));
    process.record(Event { qp, detail: common, ..about(engine, What::Connects, id) });
}

/// Something has happened to an id.
#[cold]
pub(super) fn happened(process: &ThisProcess, engine: &Engine, id: CommId, happened: &Happened) {
    let mut event = about(engine, What::Managed, id);
    event.code = u8::try_from(happened.code()).unwrap_or(u8::MAX);
    event.more = (happened.status() as i16).cast_unsigned();
    match happened {
        Happened::ConnectRequest { listener, offer, .. } => {
            event.number |= u64::from(listener.0);
            event.peer = offer.map_or(0, |offer| offer.qpn.get());
            event.detail = common(engine.destination(id), engine.source(id));
        }
        Happened::ConnectResponse { offer, .. } => event.peer = offer.qpn.get(),
        Happened::Resolved { qpn, .. } => event.peer = qpn.get(),
        _ => {}
    }
    process.record(event);
}

fn about(engine: &Engine, what: What, id: CommId) -> Event {
    let (source, destination) = (engine.source(id), engine.destination(id));
    let port = |end: Option<SocketAddr>| u64::from(end.map_or(0, |end| end.port()));
    let address = destination.map_or(Ipv6Addr::UNSPECIFIED, |end| in_ipv6(end.ip())).to_bits();
    Event {
        key: id.0,
        number: port(source) << 48 | port(destination) << 32,
        address: (address >> 64) as u64,
        length: address as u64,
        ..Event::of(what)
    }
}

/// What both ends know of a request, by its two addresses and ports. 0 if it has none. Both ends must make the same of
/// it, whatever compiler each was built by.
fn common(asks: Option<SocketAddr>, asked: Option<SocketAddr>) -> u64 {
    let (Some(asks), Some(asked)) = (asks, asked) else { return 0 };
    let words = |end: SocketAddr| {
        let address = in_ipv6(end.ip()).to_bits();
        [(address >> 64) as u64, address as u64, end.port().into()]
    };
    trace::flow(words(asks).into_iter().chain(words(asked)))
}

fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
