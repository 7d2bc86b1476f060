//! Our sentence above a sanitizer's report, because the sanitizer does not know the device's work.

use std::fmt::Write as _;

use transom_device::operation::Operation;

use super::posts;
use super::{Access, Half, Runtimes, Work};
use crate::callers::Callers;
use crate::say::write_line;

/// A problem with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is not the program's, or no longer.
    Poisoned,
    /// The program has not written it.
    Undefined,
}

/// Prints the sentence: the device is about to do this.
#[cold]
pub(super) fn tell(
    runtimes: &Runtimes,
    what: What,
    work: Option<&Work>,
    access: Access,
    address: u64,
    length: u64,
) {
    let (verb, wrong) = match (access, what) {
        (Access::Read, What::Poisoned) => ("reads", "not all are the program's to use"),
        (Access::Write, What::Poisoned) => ("writes", "not all are the program's to use"),
        (_, What::Undefined) => ("sends", "the program has not written all of them"),
    };
    let mut who = String::new();
    match work {
        None => who.push_str("a verb"),
        Some(work) => describe(&mut who, runtimes, work, access, address),
    }
    write_line(format_args!("transom: {who} {verb} {length} bytes at {address:#x}: {wrong}"));
}

/// Describes the half that is at work, and its work request.
fn describe(to: &mut String, runtimes: &Runtimes, work: &Work, access: Access, address: u64) {
    let Work { qp, half, peer, operation, .. } = *work;
    let posted = (!work.is_remote(access)).then(|| posts::find(half, address)).flatten();
    let name = match (&posted, operation, access) {
        (Some((posted, _)), ..) => posted.name,
        (None, Some(operation), _) => word(operation),
        (None, None, Access::Read) if half == Half::Receive => "READ",
        (None, None, _) if half == Half::Receive => "WRITE",
        (None, None, _) => "work request",
    };
    let _ = match half {
        Half::Send => write!(to, "the {name} of queue pair {qp:#08x}"),
        Half::Receive if work.is_remote(access) => {
            write!(to, "the {name} of queue pair {peer:#08x} by way of {qp:#08x}")
        }
        Half::Receive => {
            write!(to, "the {name} of queue pair {qp:#08x} for a message of {peer:#08x}")
        }
    };
    if let Some((posted, calls)) = posted {
        let _ = write!(to, " (wr_id {}{})", posted.wr_id, posted_where(runtimes, &calls));
    }
}

/// The place of the post: the innermost function that is no inline function of the headers.
fn posted_where(runtimes: &Runtimes, calls: &Callers) -> String {
    let mut places = calls.iter().flat_map(|pc| runtimes.places(*pc));
    let is_own = |place: &str| place.contains("verbs.h ") || place.contains("transom_");
    let Some(place) = places.find(|place| !is_own(place)) else { return String::new() };
    let mut parts = place.split(' ');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(function), Some(file), Some(line)) if line != "0" => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!(", posted by {function} at {file}:{line}")
        }
        (Some(function), ..) => format!(", posted by {function}"),
        _ => String::new(),
    }
}

const fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "receive",
        Operation::Write => "WRITE",
        Operation::Read => "READ",
        Operation::CompareSwap => "compare and swap",
        Operation::FetchAdd => "fetch and add",
        Operation::AtomicWrite => "ATOMIC WRITE",
        Operation::Flush | Operation::FlushPersistent => "FLUSH",
        Operation::RemoteInvalidate
        | Operation::LocalRead
        | Operation::LocalWrite
        | Operation::Bind
        | Operation::Invalidate => "work request",
    }
}
