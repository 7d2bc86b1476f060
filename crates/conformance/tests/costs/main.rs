//! What the hot paths cost, in numbers that do not depend on the machine: the system calls of each step
//! of an operation, exactly; its instructions, within a few hundredths of those recorded in
//! `spec/costs.md`; and its allocations, of which there are none.
//!
//! A program of its own, for it counts every allocation.

mod allocations;
#[cfg(target_arch = "x86_64")]
mod counts;
#[cfg(target_arch = "x86_64")]
mod record;
#[cfg(target_arch = "x86_64")]
mod trace;
mod workloads;
