//! The end that receives, and the packets that it gets.

use std::ops::Range;

use transom_device::Access;
use transom_device::execution::{Receives, RequesterLimits};
use transom_device::protection::Key;
use transom_device::qp::{QpNumber, Service};
use transom_simulation::endpoint::Attributes;
use transom_simulation::environment::MARGINS;
pub(crate) use transom_simulation::environment::{BASE, SRQ};
use transom_simulation::host::Host;
pub(crate) use transom_simulation::host::ROUTE;
pub(crate) use transom_simulation::packet::OwnedPacket;
use transom_wire::Psn;
use transom_wire::packet::{Ending, Operation as Op, Packet, Reth, Transport};

/// Bytes of memory, in which everything lies.
pub(crate) const MEMORY: usize = 1 << 16;
/// The part that the region with all rights covers; on both sides of it nobody may write.
pub(crate) const REGION: Range<u64> = BASE + MARGINS[0]..BASE + MEMORY as u64 - MARGINS[1];
/// The path MTU.
pub(crate) const MTU: usize = 256;
/// The number of the first packet, close to where numbers wrap.
pub(crate) const FIRST: u32 = 0xff_fffc;
/// The Q_Key of datagrams.
pub(crate) const QKEY: u32 = 0x1111_1111;
/// The queue pair's number.
const NUMBER: u32 = 0x1_0003;

/// A SEND of one packet.
pub(crate) const SEND: Op = Op::SendOnly(Ending::Plain);

/// A target of this service that expects [`FIRST`].
pub(crate) fn target_of(service: Service) -> Host {
    target_with(service, 16, 4)
}

/// The same with room for so many receives, READs and atomics.
pub(crate) fn target_with(service: Service, receives: usize, max_dest_rd_atomic: u8) -> Host {
    let receives = match service {
        Service::XrcTarget => Receives::Named,
        _ => Receives::Own { size: receives, max_sge: 2 },
    };
    let attributes = Attributes {
        service,
        qp_num: QpNumber::from_bits(NUMBER),
        dest_qp_num: QpNumber::from_bits(0x2_0007),
        path_mtu: MTU as u64,
        sq_psn: 0,
        rq_psn: FIRST,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        min_rnr_timer: 12,
        max_rd_atomic: 0,
        max_dest_rd_atomic,
        qp_access_flags: Access::REMOTE | Access::FLUSH_GLOBAL,
        pd: 7,
        qkey: QKEY,
        send: RequesterLimits { size: 1, max_sge: 0, inline_room: 0, signal_all: true },
        receives,
        max_recv_sge: 2,
        burst: 64,
        window: 0,
    };
    Host::new(&attributes, MEMORY)
}

/// A packet of a reliable connection, the one `ahead` of the first; it asks for an acknowledgement.
pub(crate) fn packet(ahead: u32, operation: Op, payload: &[u8]) -> Packet<'_> {
    let psn = Psn::new(FIRST).plus(ahead);
    Packet { ack_request: true, payload, ..Packet::new(Transport::Rc, operation, NUMBER, psn) }
}

/// The same without asking for an acknowledgement.
pub(crate) fn unasked(ahead: u32, operation: Op, payload: &[u8]) -> Packet<'_> {
    Packet { ack_request: false, ..packet(ahead, operation, payload) }
}

/// A range for a WRITE, READ or FLUSH.
pub(crate) fn reth(address: u64, key: Key, length: usize) -> Reth {
    Reth { address, key: key.0, length: length as u32 }
}
