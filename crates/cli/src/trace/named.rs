//! The words for what events have as numbers.

use transom_abi::rdma_cm_event_name;
use transom_device::Access;
use transom_device::execution::{Awaited, Tally};
use transom_device::operation::Operation;
use transom_device::protection::{Kind, Reason};
use transom_device::qp::QpState;
use transom_device::queue::Status;
use transom_system::registry::status_name;

/// The operation of a request.
pub(super) fn operation(code: u8) -> &'static str {
    match Operation::from_code(code) {
        Some(Operation::CompareSwap) => "Compare-and-swap",
        Some(Operation::FetchAdd) => "Fetch-and-add",
        Some(operation) => operation.needs().name,
        None => "Unsupported operation",
    }
}

/// The operation that was refused, as `transom explain` calls it.
pub(super) fn refused(code: u16) -> &'static str {
    let operation = u8::try_from(code).ok().and_then(Operation::from_code);
    operation.map_or("unsupported", |operation| operation.needs().label)
}

/// The status of a completion.
pub(super) fn status(code: u16) -> &'static str {
    u8::try_from(code).ok().and_then(Status::from_code).map_or("unknown", status_name)
}

/// What the next request of a send queue waits for.
pub(super) fn awaited(code: u8) -> &'static str {
    match Awaited::from_code(code) {
        Some(Awaited::Time) => "waits for the time of its next attempt",
        Some(Awaited::State) => "waits: the state of the queue pair lets nothing begin",
        Some(Awaited::Fence) => "waits behind its fence",
        Some(Awaited::Reads) => "waits: as many READs and atomics are under way as may be",
        Some(Awaited::Turn) => "waits for those before it",
        Some(Awaited::Window) => "waits for the window",
        Some(Awaited::Room) => "waits for room at its peer or in the socket",
        None => "waits",
    }
}

/// Something that is counted, if it is worth a mark: the rest shows otherwise.
pub(super) fn counted(code: u8) -> Option<&'static str> {
    Some(match Tally::from_code(code)? {
        Tally::NotReady => "asked to wait: the peer has no receive",
        Tally::Timeout => "no answer in time, so it goes again",
        Tally::SequenceError => "the peer missed a packet, so it goes again",
        Tally::ImpliedSequenceError => "an answer is missing, so it goes again",
        Tally::NoReceive => "a message found no receive",
        Tally::Duplicate => "a packet came again",
        Tally::OutOfSequence => "a packet came too early",
        Tally::RetryExceeded => "no answer, however often it was sent",
        Tally::NotReadyExceeded => "the peer had no receive, however often it was asked",
        Tally::InvalidatedByPeer => "a peer invalidated a key",
        _ => return None,
    })
}

/// A state of a queue pair.
pub(super) fn state(code: u8) -> &'static str {
    match QpState::new(code.into()) {
        Some(QpState::Reset) => "RESET",
        Some(QpState::Init) => "INIT",
        Some(QpState::Rtr) => "RTR",
        Some(QpState::Rts) => "RTS",
        Some(QpState::Sqd) => "SQD",
        Some(QpState::Sqe) => "SQE",
        Some(QpState::Error) => "ERR",
        None => "unknown state",
    }
}

/// An event of the connection manager.
pub(super) fn id_event(code: u8) -> &'static str {
    rdma_cm_event_name(code.into()).to_str().unwrap_or_default()
}

/// The kind of an object with a key.
pub(super) fn kind(code: u8) -> &'static str {
    const NAMES: [(Kind, &str); 5] = [
        (Kind::Region, "region"),
        (Kind::Null, "null region"),
        (Kind::Window1, "type 1 window"),
        (Kind::Window2A, "type 2 window"),
        (Kind::Window2B, "type 2 window"),
    ];
    let found = NAMES.iter().find(|(kind, _)| *kind as u8 == code);
    found.map_or("object", |(_, name)| name)
}

/// The rights that an object grants.
pub(super) fn rights(bits: u64) -> String {
    Access::from_bits_truncate(bits as u32).to_string()
}

/// Why something was refused, with the rule, if nobody has the sentence any more.
pub(super) fn reason(code: u8, operation: u16) -> String {
    let operation = u8::try_from(operation).ok().and_then(Operation::from_code);
    match (Reason::from_code(code), operation) {
        (Some(reason), Some(operation)) => format!("{reason} (rule {})", reason.rule(operation)),
        (Some(reason), None) => reason.to_string(),
        (None, _) => "refused".to_owned(),
    }
}
