//! The machine and the process, as a device needs them: memory and copying, the memory and the registry that processes
//! share, the addresses, the clocks.
//!
//! | module | holds |
//! |---|---|
//! | [`addresses`] | the addresses of this network namespace: the GID table |
//! | [`callers`] | who called this library: return addresses |
//! | [`catalog`] | the objects of a process that its keys and queue pairs do not show |
//! | [`clock`] | the clocks of the machine |
//! | [`descriptor`] | descriptors that are kept have high numbers |
//! | [`environment`] | the variables of the environment, where they may be obeyed |
//! | [`failure`] | a panic becomes an error of the device |
//! | [`file_limit`] | files that must not grow without end |
//! | [`fork`] | tells devices when the process forks or exits |
//! | `guid` | the numbers that tell this host, and its device, from others |
//! | `held_back` | WRITEs whose data a rehearsal holds back |
//! | [`latency`] | how long requests took |
//! | [`lock`] | a lock for a handful of instructions |
//! | [`log`] | events as lines on standard error, if you ask with `TRANSOM_LOG` |
//! | [`memory`] | copies that end in an error, not a crash, when memory is gone |
//! | [`object_counts`] | how many objects each process has |
//! | [`one_step`] | atomics on private memory, one after the other |
//! | [`port_counters`] | the counters of the port, under the kernel's names |
//! | [`ThisProcess`] | this process among the others of its user |
//! | [`probes`] | probes for bpftrace, perf and gdb |
//! | [`registered`] | how much memory each process has registered |
//! | [`registry`] | the processes of this user that run a device, their refusals, their packet counters |
//! | [`rehearsal`] | the rehearsal that this process is part of: what is provoked, and when |
//! | [`sanitizers`] | what AddressSanitizer and its kin are told of what the device does |
//! | [`segment`] | the memory one process shares with the others |
//! | `say` | messages that a person must get unasked, on standard error, without trouble for the program |
//! | `shared_mapping` | mappings of files that processes share |
//! | `signals` | calls of this library that must not send the program a signal |
//! | [`sums`] | what all processes have carried together |
//! | [`threads`] | what the kernel says of threads |
//! | [`tools`] | which tools look at the work of this process |
//! | [`trace`] | the last events of a process, for those who want them |
//! | [`traffic`] | what queue pairs have carried |
//! | [`trust`] | checks that nobody else decides what is at a path |
//! | [`wait`] | waiting for descriptors, however few the process may have |
//! | [`wanted`] | what others want to see of a process |
//! | [`Watched`] | a process that is watched |

#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod addresses;
pub mod callers;
pub mod catalog;
pub mod clock;
pub mod descriptor;
pub mod environment;
pub mod failure;
pub mod file_limit;
pub mod fork;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod guid;
mod handlers;
mod held_back;
pub mod latency;
pub mod lock;
pub mod log;
pub mod memory;
pub mod object_counts;
pub mod one_step;
pub mod port_counters;
pub mod probes;
mod process;
pub mod registered;
pub mod registry;
pub mod rehearsal;
pub mod sanitizers;
mod say;
pub mod segment;
mod shared_mapping;
mod signals;
pub mod sums;
mod this_process;
pub mod threads;
pub mod tools;
pub mod trace;
pub mod traffic;
pub mod trust;
mod valgrind;
pub mod wait;
pub mod wanted;
mod watched;

pub use guid::{node_guid, system_image_guid};
pub use held_back::{Accessed, Held, HeldBackHere};
pub use process::{
    Place, ThisProcess, Unchanged, note_write, watch_refusals, watch_writes, watch_writes_at_once,
    watched_bypass,
};
pub use say::{leave_the_hint_out, say, say_to_a_reader};
pub use watched::Watched;
