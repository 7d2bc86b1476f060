//! The names of operations, as reports have them.

use transom_device::operation::Operation;

/// The name of an operation.
pub(super) fn called_by_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "SEND",
        Operation::RemoteInvalidate => "SEND with invalidate",
        Operation::Write => "WRITE",
        Operation::Read => "READ",
        Operation::CompareSwap => "compare-and-swap",
        Operation::FetchAdd => "fetch-and-add",
        Operation::AtomicWrite => "ATOMIC WRITE",
        Operation::Flush | Operation::FlushPersistent => "FLUSH",
        Operation::Bind => "bind",
        Operation::Invalidate => "LOCAL_INV",
        Operation::LocalRead | Operation::LocalWrite => "request",
    }
}
