//! The counters of the device's port, under the names that the kernel's drivers give them. They are sums over all
//! processes of this user, as those of an adapter are over all that use it.

use transom_device::execution::Tally;

use crate::registry::Dropped;
use crate::sums::Sums;
use crate::traffic::{Amount, Carried, Totals, Way};

/// The headers of a packet that are counted of messages within the host: BTH and ICRC.
const HEADERS: u64 = 12 + 4;

/// A counter: its name, and its value among the sums.
pub type Counter = (&'static str, fn(&Sums) -> u64);

/// `ports/1/counters`: those that node_exporter reads. What cannot happen here stays at zero.
pub const COUNTERS: [Counter; 22] = [
    ("VL15_dropped", |_| 0),
    ("excessive_buffer_overrun_errors", |_| 0),
    ("link_downed", |_| 0),
    ("link_error_recovery", |_| 0),
    ("local_link_integrity_errors", |_| 0),
    ("multicast_rcv_packets", received_by_groups),
    ("multicast_xmit_packets", |sums| sums.carried.all.tally(Tally::GroupSent)),
    ("port_rcv_constraint_errors", |sums| sums.packets.dropped(Dropped::OtherPartition)),
    ("port_rcv_data", |sums| received(sums).octets / 4),
    ("port_rcv_discards", discarded),
    ("port_rcv_errors", damaged),
    ("port_rcv_packets", |sums| received(sums).packets),
    ("port_rcv_remote_physical_errors", |_| 0),
    ("port_rcv_switch_relay_errors", |_| 0),
    ("port_xmit_constraint_errors", |_| 0),
    ("port_xmit_data", |sums| sent(sums).octets / 4),
    ("port_xmit_discards", |sums| sums.packets.dropped(Dropped::Unreachable)),
    ("port_xmit_packets", |sums| sent(sums).packets),
    ("port_xmit_wait", |sums| sums.packets.no_room),
    ("symbol_error", |_| 0),
    ("unicast_rcv_packets", |sums| received(sums).packets.saturating_sub(received_by_groups(sums))),
    ("unicast_xmit_packets", |sums| {
        sent(sums).packets.saturating_sub(sums.carried.all.tally(Tally::GroupSent))
    }),
];

/// `ports/1/hw_counters`: those of mlx5 that node_exporter reads, as far as they have a meaning here, then those of
/// rxe.
pub const HW_COUNTERS: [Counter; 37] = [
    ("duplicate_request", |sums| sums.carried.all.tally(Tally::Duplicate)),
    ("implied_nak_seq_err", |sums| sums.carried.all.tally(Tally::ImpliedSequenceError)),
    // How old the values may be, in milliseconds.
    ("lifespan", |_| 0),
    ("local_ack_timeout_err", |sums| sums.carried.all.tally(Tally::Timeout)),
    ("np_cnp_sent", |sums| sums.packets.notifications_sent),
    ("np_ecn_marked_roce_packets", |sums| sums.packets.marked),
    ("out_of_buffer", |sums| sums.carried.all.tally(Tally::NoReceive)),
    ("out_of_sequence", |sums| sums.carried.all.tally(Tally::OutOfSequence)),
    ("packet_seq_err", |sums| sums.carried.all.tally(Tally::SequenceError)),
    ("req_cqe_error", |sums| sums.carried.all.tally(Tally::SendFailed)),
    ("req_cqe_flush_error", |sums| sums.carried.all.tally(Tally::SendFlushed)),
    ("req_remote_access_errors", |sums| sums.carried.all.tally(Tally::RemoteAccess)),
    ("req_remote_invalid_request", |sums| sums.carried.all.tally(Tally::RemoteInvalid)),
    ("resp_cqe_error", |sums| sums.carried.all.tally(Tally::ReceiveFailed)),
    ("resp_cqe_flush_error", |sums| sums.carried.all.tally(Tally::ReceiveFlushed)),
    ("resp_local_length_error", |sums| sums.carried.all.tally(Tally::LengthError)),
    ("resp_remote_access_errors", |sums| sums.carried.all.tally(Tally::AccessRefused)),
    ("rnr_nak_retry_err", |sums| sums.carried.all.tally(Tally::NotReady)),
    ("rp_cnp_handled", |sums| {
        sums.packets.notifications_received.saturating_sub(sums.packets.notifications_ignored)
    }),
    ("rp_cnp_ignored", |sums| sums.packets.notifications_ignored),
    ("rx_atomic_requests", |sums| arrived(sums, Carried::Atomic)),
    ("rx_icrc_encapsulated", |sums| sums.packets.dropped(Dropped::WrongIcrc)),
    ("rx_read_requests", |sums| arrived(sums, Carried::Read)),
    ("rx_write_requests", |sums| arrived(sums, Carried::Write)),
    ("completer_retry_err", repeated),
    ("link_downed", |_| 0),
    ("out_of_seq_request", |sums| sums.carried.all.tally(Tally::OutOfSequence)),
    ("rcvd_pkts", |sums| received(sums).packets),
    ("rcvd_rnr_err", |sums| sums.carried.all.tally(Tally::NotReady)),
    ("rcvd_seq_err", |sums| sums.carried.all.tally(Tally::SequenceError)),
    ("rdma_recvs", |sums| arrived(sums, Carried::Send)),
    ("rdma_sends", |sums| posted(sums, Carried::Send)),
    ("retry_exceeded_err", |sums| sums.carried.all.tally(Tally::RetryExceeded)),
    ("retry_rnr_exceeded_err", |sums| sums.carried.all.tally(Tally::NotReadyExceeded)),
    ("send_err", |sums| sums.packets.dropped(Dropped::Unreachable)),
    ("send_rnr_err", |sums| sums.carried.all.tally(Tally::NoReceive)),
    ("sent_pkts", |sums| sent(sums).packets),
];

/// The counters of [`HW_COUNTERS`] that have a meaning for one queue pair, by what it has carried. Packets are counted by
/// process only.
pub fn of_queue_pair(carried: Totals) -> impl Iterator<Item = (&'static str, u64)> {
    const OF_PORT: [&str; 10] = [
        "lifespan",
        "np_cnp_sent",
        "np_ecn_marked_roce_packets",
        "rp_cnp_handled",
        "rp_cnp_ignored",
        "rx_icrc_encapsulated",
        "link_downed",
        "rcvd_pkts",
        "sent_pkts",
        "send_err",
    ];
    let mut sums = Sums::default();
    sums.carried.all = carried;
    let counters = HW_COUNTERS.iter().filter(|(name, _)| !OF_PORT.contains(name));
    counters.map(move |(name, value)| (*name, value(&sums)))
}

/// Packets, and the bytes in them.
struct Counted {
    packets: u64,
    octets: u64,
}

/// Everything that left: over the wire, and the messages to processes of this host with the answers of these.
fn sent(sums: &Sums) -> Counted {
    let all = &sums.carried.all;
    let requests = requests(|kind| all.sent(Way::Host, kind));
    let answers = answers(|kind| all.received(Way::Host, kind));
    Counted {
        packets: sum([sums.packets.sent, requests.packets, answers.packets]),
        octets: sum([sums.packets.bytes_sent, requests.octets, answers.octets]),
    }
}

/// Everything that came.
fn received(sums: &Sums) -> Counted {
    let all = &sums.carried.all;
    let requests = requests(|kind| all.received(Way::Host, kind));
    let answers = answers(|kind| all.sent(Way::Host, kind));
    Counted {
        packets: sum([sums.packets.received, requests.packets, answers.packets]),
        octets: sum([sums.packets.bytes_received, requests.octets, answers.octets]),
    }
}

/// Datagrams to groups: each copy within the host, and each packet on the wire, however many members take it.
fn received_by_groups(sums: &Sums) -> u64 {
    sum([sums.carried.all.tally(Tally::GroupReceived), sums.packets.received_by_groups])
}

/// The packets that ask. Those of a READ or an atomic bring no data.
fn requests(of: impl Fn(Carried) -> Amount) -> Counted {
    let [send, write] = [of(Carried::Send), of(Carried::Write)];
    let short = [Carried::Read, Carried::Atomic, Carried::Flush];
    let short = sum(short.map(|kind| of(kind).messages));
    let packets = sum([send.packets, write.packets, short]);
    Counted { packets, octets: sum([send.bytes, write.bytes, packets.wrapping_mul(HEADERS)]) }
}

/// The packets that answer with something. On a link within the host nothing is acknowledged.
fn answers(of: impl Fn(Carried) -> Amount) -> Counted {
    let [read, atomic] = [of(Carried::Read), of(Carried::Atomic)];
    let packets = sum([read.packets, atomic.packets, of(Carried::Flush).messages]);
    Counted { packets, octets: sum([read.bytes, atomic.bytes, packets.wrapping_mul(HEADERS)]) }
}

/// Requests of a kind that were carried out for peers.
fn arrived(sums: &Sums, kind: Carried) -> u64 {
    sum(Way::ALL.map(|way| sums.carried.all.received(way, kind).messages))
}

/// Requests of a kind that ended well for the programs here.
fn posted(sums: &Sums, kind: Carried) -> u64 {
    sum(Way::ALL.map(|way| sums.carried.all.sent(way, kind).messages))
}

/// How often requests went out again.
fn repeated(sums: &Sums) -> u64 {
    let why = [Tally::Timeout, Tally::SequenceError, Tally::ImpliedSequenceError, Tally::NotReady];
    sum(why.map(|why| sums.carried.all.tally(why)))
}

/// Packets that were no packets of anybody.
fn damaged(sums: &Sums) -> u64 {
    let why = [Dropped::WrongIcrc, Dropped::Malformed, Dropped::Cut];
    sum(why.map(|why| sums.packets.dropped(why)))
}

/// Packets that were in order, but that nobody took.
fn discarded(sums: &Sums) -> u64 {
    let why = [
        Dropped::NoQueuePair,
        Dropped::OtherService,
        Dropped::OtherAddress,
        Dropped::Overflow,
        Dropped::NobodyThere,
        Dropped::WrongDestination,
    ];
    sum(why.map(|why| sums.packets.dropped(why)))
}

/// Adds up. Other processes wrote these values, so they may be anything.
fn sum<const N: usize>(values: [u64; N]) -> u64 {
    values.into_iter().fold(0, u64::wrapping_add)
}
