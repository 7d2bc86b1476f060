//! The end that sends, over packets or messages, and the answers that it gets.

use transom_device::Access;
use transom_device::execution::{Receives, RequesterLimits};
use transom_device::protection::Key;
use transom_device::qp::{QpNumber, Service};
use transom_device::queue::{Body, SendOp};
use transom_simulation::endpoint::Attributes;
use transom_simulation::environment::{BASE, MARGINS};
use transom_simulation::host::Host;
use transom_wire::Psn;
use transom_wire::packet::{Aeth, Operation, Packet, Transport};

/// The path MTU.
pub(crate) const MTU: u64 = 1024;
/// Packets of a burst.
pub(crate) const BURST: usize = 16;
/// Bytes of the local region.
pub(crate) const MEMORY: u64 = 1 << 20;
/// The address of the first of them; there all local buffers begin.
pub(crate) const LOCAL: u64 = BASE + MARGINS[0];
/// How long an answer may take, with the timeout that [`origin_of`] sets.
pub(crate) const TIMEOUT: u64 = 4_096 << 10;
/// The queue pair's number.
pub(crate) const NUMBER: u32 = 0x2_0001;
/// Its protection domain.
pub(crate) const PD: u32 = 1;

/// A SEND.
pub(crate) const SEND: SendOp = SendOp::Message(Body::Send);
/// A WRITE.
pub(crate) const WRITE: SendOp =
    SendOp::Message(Body::Write { address: 0x1000, key: Key(5), immediate: None });
/// A READ.
pub(crate) const READ: SendOp = SendOp::Message(Body::Read { address: 0x1000, key: Key(5) });
/// A fetch-and-add.
pub(crate) const ADD: SendOp =
    SendOp::Message(Body::FetchAdd { address: 0x1000, key: Key(5), add: 1 });

/// An origin over packets, the first of which has number 100.
pub(crate) fn origin_over_packets() -> Host {
    origin_of(Service::Rc, 100)
}

/// An origin over messages, the first of which has number 100.
pub(crate) fn origin_over_messages() -> Host {
    let mut origin = origin_over_packets();
    origin.qp.requester.connection.link.mtu = None;
    origin
}

/// An origin of a service whose first packet has this number.
pub(crate) fn origin_of(service: Service, first: u32) -> Host {
    let attributes = Attributes {
        service,
        qp_num: QpNumber::from_bits(NUMBER),
        dest_qp_num: QpNumber::from_bits(0x1_0002),
        path_mtu: MTU,
        sq_psn: first,
        rq_psn: 0,
        timeout: 10,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 0,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 0,
        qp_access_flags: Access::empty(),
        pd: PD,
        qkey: 0,
        send: RequesterLimits { size: 64, max_sge: 2, inline_room: 0, signal_all: true },
        receives: Receives::Nowhere,
        max_recv_sge: 0,
        burst: BURST as u64,
        window: 1 << 20,
    };
    Host::new(&attributes, (MARGINS[0] + MEMORY + MARGINS[1]) as usize)
}

/// An answer to the origin.
pub(crate) fn answer(psn: u32, operation: Operation) -> Packet<'static> {
    Packet::new(Transport::Rc, operation, NUMBER, Psn::new(psn))
}

/// An AETH that says how far messages have come not at all.
pub(crate) fn aeth(byte: u8) -> Aeth {
    Aeth { byte, msn: 0 }
}

/// The answer to a READ that begins with this number.
pub(crate) fn responses(first: u32, data: &[u8]) -> Vec<Packet<'_>> {
    let count = data.len().div_ceil(MTU as usize).max(1);
    (0..count)
        .map(|number| {
            let acknowledged = aeth(0x1f);
            let operation = match (number == 0, number + 1 == count) {
                (true, true) => Operation::ReadResponseOnly(acknowledged),
                (true, false) => Operation::ReadResponseFirst(acknowledged),
                (false, true) => Operation::ReadResponseLast(acknowledged),
                (false, false) => Operation::ReadResponseMiddle,
            };
            let payload = data.chunks(MTU as usize).nth(number).unwrap_or_default();
            Packet { payload, ..answer(first.wrapping_add(number as u32), operation) }
        })
        .collect()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}
