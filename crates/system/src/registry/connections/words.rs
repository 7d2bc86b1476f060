//! Encodes ports and connections as the words of an entry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use transom_cm::{Claim, Record};
use transom_device::protection::Announcer;
use transom_wire::cm::{CommId, PortSpace, Qpn, Rejected};

use super::{ClaimedPort, Connection, WORDS};

const IS_V6: u64 = 1;
const V6_ONLY: u64 = 2;
const REUSE: u64 = 4;
pub(super) const LISTENS: u64 = 8;

pub(super) fn port_words(claim: &Claim, listens: bool) -> [u64; WORDS] {
    let bit = |bit, set| if set { bit } else { 0 };
    let port = u64::from(claim.address.port());
    let [high, low] = halves(claim.address.ip());
    let flags = bit(IS_V6, claim.address.is_ipv6())
        | bit(V6_ONLY, claim.v6_only)
        | bit(REUSE, claim.reuse)
        | bit(LISTENS, listens);
    let what = u64::from(claim.id.0) | port << 32 | u64::from(claim.space.code()) << 48;
    [what, flags, high, low, 0, 0, 0, 0]
}

pub(super) fn claimed(owner: Announcer, words: &[u64; WORDS]) -> Option<ClaimedPort> {
    let [what, flags, high, low, ..] = *words;
    let address = SocketAddr::new(ip(flags & IS_V6 != 0, [high, low]), (what >> 32) as u16);
    let claim = Claim {
        id: CommId(what as u32),
        space: PortSpace::from_code((what >> 48) as u16)?,
        address,
        v6_only: flags & V6_ONLY != 0,
        reuse: flags & REUSE != 0,
    };
    Some(ClaimedPort { claim, listens: flags & LISTENS != 0, owner })
}

pub(super) fn connection_words(of: &Connection) -> [u64; WORDS] {
    let Connection { record, ports } = of;
    let rejected = match record.rejected {
        None => 0,
        Some(Rejected::Req) => 1,
        Some(Rejected::Rep) => 2,
        Some(Rejected::Other) => 3,
    };
    let [source, destination] = [record.source, record.destination].map(halves);
    [
        u64::from(record.id.0) | u64::from(record.peer_id.0) << 32,
        u64::from(record.peer_qpn.get())
            | u64::from(record.traffic_class) << 24
            | rejected << 32
            | u64::from(record.source.is_ipv6()) << 40,
        record.transaction,
        source[0],
        source[1],
        destination[0],
        destination[1],
        u64::from(ports.0) | u64::from(ports.1) << 16,
    ]
}

pub(super) fn connection(words: &[u64; WORDS]) -> Option<Connection> {
    let [ids, small, transaction, source0, source1, destination0, destination1, ports] = *words;
    let is_v6 = small >> 40 & 1 == 1;
    let rejected = match small >> 32 & 0xff {
        0 => None,
        1 => Some(Rejected::Req),
        2 => Some(Rejected::Rep),
        3 => Some(Rejected::Other),
        _ => return None,
    };
    let record = Record {
        id: CommId(ids as u32),
        peer_id: CommId((ids >> 32) as u32),
        peer_qpn: Qpn::low(small as u32),
        transaction,
        rejected,
        source: ip(is_v6, [source0, source1]),
        destination: ip(is_v6, [destination0, destination1]),
        traffic_class: (small >> 24) as u8,
    };
    Some(Connection { record, ports: (ports as u16, (ports >> 16) as u16) })
}

/// The words of an entry, for the fuzz target. An entry that parses must encode to the same words.
#[cfg(debug_assertions)]
pub(crate) fn fuzz(words: &[u64; WORDS]) {
    let owner = Announcer { slot: 1, generation: 1 };
    if let Some(port) = claimed(owner, words) {
        let again = port_words(&port.claim, port.listens);
        assert_eq!(claimed(owner, &again), Some(port));
    }
    if let Some(kept) = connection(words) {
        assert_eq!(connection(&connection_words(&kept)), Some(kept));
    }
}

pub(super) fn halves(ip: IpAddr) -> [u64; 2] {
    let bits = match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

pub(super) fn ip(is_v6: bool, [high, low]: [u64; 2]) -> IpAddr {
    match is_v6 {
        true => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        false => Ipv4Addr::from_bits(low as u32).into(),
    }
}
