//! The processes of this user that run a device, their last refusals, and the fate of their packets.
//!
//! One small file per user and network namespace, in memory, mode 0600 in a directory of mode 0700. Each live process
//! holds a lock on its slot. The kernel drops the lock when the process ends, however it ends, so the remains of a
//! killed process can be recognized and cleaned up.
//!
//! | module | holds |
//! |---|---|
//! | `file` | the file: one slot for each process |
//! | `claim` | taking a slot, and leaving it |
//! | `process` | the processes that are or were there |
//! | [`connections`] | ports and connections of the connection managers |
//! | `directory` | its place, and the removal of those that nobody uses any more |
//! | `lock` | tells which processes are there |
//! | `life` | how a process learns that another has ended |
//! | `presence` | tells others that a process is there, and when it goes |
//! | `runs` | how many devices each run of a program has opened |
//! | `watcher` | the watcher of a run's processes |
//! | `namespaces` | which processes reach each other by the local link |
//! | `holders` | the holders of an object that a program wants to destroy |
//! | `noted` | each process's notes for `transom explain`: the last records |
//! | `record` | an access that was refused, and the sentence it becomes |
//! | `call` | a call that was refused at once, and its sentence |
//! | `unconnected` | a connection that did not come about, and its sentence |
//! | `work` | work that came to nothing, and its sentence |
//! | `named` | numbers in words |
//! | `counters` | the fate of packets |
//! | `left` | what ended processes have counted |

mod call;
mod claim;
pub mod connections;
mod counters;
mod directory;
mod file;
mod holders;
mod left;
mod life;
mod lock;
mod named;
mod namespaces;
mod noted;
mod presence;
mod process;
pub(crate) mod record;
mod runs;
mod unconnected;
mod watcher;
mod work;

use std::io;
use std::sync::OnceLock;

pub use call::{CallFault, CallRecord, CallRefusal, Name, SEND_QUEUE};
pub use claim::Claim;
pub use counters::{Counters, Dropped};
pub use directory::private_file;
pub use file::{DEVICES, Registry};
pub use holders::{Holder, Holders};
pub use life::Life;
pub use noted::Record;
pub use presence::user_of;
pub use process::Process;
pub use record::{Meant, RefusalRecord, Role};
pub use runs::{NotARun, Run};
pub use unconnected::{ConnectionFault, ConnectionRecord, rejections};
pub use watcher::{Announced, Watcher};
pub use work::{Fate, Found, Work, WorkRecord, status_name};

/// The number of this process's network namespace, by which its registry and its devices are told from others.
/// It is that of the first call: a thread may move to another namespace.
pub(crate) fn network_namespace() -> io::Result<u64> {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    match NUMBER.get() {
        Some(number) => Ok(*number),
        None => namespaces::network().map(|number| *NUMBER.get_or_init(|| number)),
    }
}
