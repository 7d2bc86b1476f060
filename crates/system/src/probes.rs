//! Probes for programs that know nothing of Transom: bpftrace, perf, gdb, SystemTap. They find them in the notes of the
//! library (`.note.stapsdt`). docs/see.md lists them and their arguments.
//!
//! Those who attach count up a *semaphore*, a number of 16 bits that a note names. Here it is one for all probes, the
//! upper half of the word of [`tools`](crate::tools). So the process looks at nothing more while nobody is attached.

use std::ffi::{CStr, CString};

use transom_device::execution::Tally;
use transom_device::operation::{Opcode, Operation};
use transom_device::protection::{Kind, Reason};

use crate::tools::ON;
use crate::trace::{Event, What};

/// The upper half of the word is its last two bytes.
const _: () = assert!(cfg!(target_endian = "little"));

/// The crate's own macro for probes with a semaphore makes one for each. This is what it expands to. `sdt!` is no part
/// of what the crate promises to keep, so `Cargo.toml` asks for this version and no other.
macro_rules! probe {
    ($name:ident $(, $argument:expr)* $(,)?) => {
        {
            probe::sdt!([sym "{}+2" ON], transom, $name, $($argument,)*);
        }
    };
}

/// A request is about to be posted, as this event has it. The event itself comes later: many a request has been carried
/// out by then.
#[cold]
#[inline(never)]
pub fn post(event: &Event) {
    let &Event { qp, peer, key, number, address, length, .. } = event;
    probe!(post, qp, number, opcode(event), length, peer, key, address);
}

/// Passes an event to those who are attached to its probe, if it has one.
#[cold]
#[inline(never)]
pub(crate) fn pass(event: &Event) {
    let &Event { what, code, more, qp, peer, key, number, address, length, detail, .. } = event;
    match what {
        What::CarriedOut | What::Ended => {
            probe!(completion, qp, number, opcode(event), more, length, peer);
        }
        // Its code is the opcode, as it stands in a completion.
        What::Received => probe!(receive, qp, number, code, more, length, peer),
        What::Refused => {
            let operation = u8::try_from(more).ok().and_then(Operation::from_code);
            let rule = Reason::from_code(code).zip(operation).map(|(why, what)| why.rule(what));
            let rule = CString::new(rule.unwrap_or_default()).unwrap_or_default();
            probe!(refusal, qp, rule.as_ptr(), key, address, length, peer);
        }
        What::Opened if [Kind::Region as u8, Kind::Null as u8].contains(&code) => {
            probe!(register, key, address, length, detail as u32);
        }
        What::Opened => probe!(bind, key, address, length, detail as u32, qp),
        What::Closed => probe!(revoke, key),
        What::Counted => {
            if let Some(why) = Tally::from_code(code).and_then(why_again) {
                probe!(retransmission, qp, why.as_ptr(), length, peer);
            }
        }
        What::Changed => probe!(connection, qp, code, peer),
        What::Posted
        | What::Sent
        | What::Came
        | What::Touched
        | What::Reached
        | What::ReceivePosted
        | What::Waits
        | What::Connects
        | What::Managed => {}
    }
}

/// How a completion names the operation of a request.
fn opcode(event: &Event) -> u8 {
    let operation = Operation::from_code(event.code);
    operation.and_then(|it| it.needs().completion).map_or(0, Opcode::code)
}

/// Why requests are sent again when this is counted.
fn why_again(tally: Tally) -> Option<&'static CStr> {
    match tally {
        Tally::Timeout => Some(c"timeout"),
        Tally::SequenceError => Some(c"sequence error"),
        Tally::ImpliedSequenceError => Some(c"implied sequence error"),
        Tally::NotReady => Some(c"not ready"),
        _ => None,
    }
}
