//! The workloads that two processes measure: each is one function, for both ends.

mod allocations;
mod messages;
mod one_sided;
mod sockets;
mod system;
mod windows;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::failure::Result;

/// What both ends are to do so often.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) count: usize,
}

/// A workload. What comes of it is the nanoseconds of each operation, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Task {
    /// A WRITE, from posting to the polled completion.
    Write { size: usize },
    /// A READ, likewise.
    Read { size: usize },
    /// A fetch-and-add, likewise.
    FetchAndAdd,
    /// WRITEs to and fro: each end waits for the other's by looking at its memory. One way.
    WriteAndBack { size: usize },
    /// WRITEs one after the other, as many under way as queue pairs hold.
    WriteStream { size: usize, queue_pairs: usize },
    /// SENDs to and fro, one way; who waits polls, or sleeps until there is an event.
    SendAndBack { size: usize, asleep: bool },
    /// SENDs one after the other, as many under way as a queue pair holds.
    SendStream { size: usize },
    /// A bind of so many bytes to a window of type 2, and the LOCAL_INV that ends it.
    Bind { length: usize },
    /// Makes windows until there are so many: bytes of the table that they take, each.
    Windows { live: usize },
    /// Registers so many bytes, and ends that.
    Register { length: usize },
    /// `process_vm_writev` or `process_vm_readv` of as many bytes between the two processes.
    KernelCopy { write: bool, size: usize },
    /// `memcpy` between the buffers of one end, which are of the same memory as those of operations.
    Memcpy { size: usize },
    /// `posix_memalign` of so many bytes to a page, each page touched, and `free`.
    Allocate { size: usize },
    /// `malloc` of so many bytes, and `free`.
    Malloc { size: usize },
    /// A fork with so many bytes aligned to a page in use, the end of the child, and each page touched again.
    Fork { length: usize },
    /// `mlock` and `munlock` of as many bytes.
    Lock { length: usize },
    /// One process wakes the other by `eventfd(2)`, and is woken by it. One way.
    EventFd,
    /// Bytes to and fro over one TCP connection, both ends asking again and again. One way.
    TcpAndBack { size: usize },
    /// As many bytes one after the other over one TCP connection.
    TcpStream { size: usize },
    /// Datagrams to and fro, both ends asking again and again: one as long as a WRITE of 8 bytes, and one
    /// with it as long as an acknowledgement. One way. By connected sockets, or by such as RoCEv2 needs.
    UdpAndBack { peer: bool },
    /// The datagrams of WRITEs of as many bytes, one after the other, with nothing in them.
    UdpStream { size: usize },
}

impl Task {
    /// Does it so often, with the other end, which is told the same. What comes of it is the near end's to
    /// say.
    pub(super) fn carry_out(self, process: &mut Process, count: usize) -> Result<f64> {
        match self {
            Self::Write { size } => one_sided::write(process, size, count),
            Self::Read { size } => one_sided::read(process, size, count),
            Self::FetchAndAdd => one_sided::fetch_and_add(process, count),
            Self::WriteAndBack { size } => one_sided::write_and_back(process, size, count),
            Self::WriteStream { size, queue_pairs } => {
                one_sided::write_stream(process, size, queue_pairs, count)
            }
            Self::SendAndBack { size, asleep } => {
                messages::send_and_back(process, size, asleep, count)
            }
            Self::SendStream { size } => messages::send_stream(process, size, count),
            Self::Bind { length } => windows::bind_and_invalidate(process, length, count),
            Self::Windows { live } => windows::make(process, live),
            Self::Register { length } => windows::register_and_deregister(process, length, count),
            Self::KernelCopy { write, size } => system::kernel_copy(process, write, size, count),
            Self::Memcpy { size } => system::memcpy(process, size, count),
            Self::Allocate { size } => allocations::allocate(process, size, count),
            Self::Malloc { size } => allocations::malloc(process, size, count),
            Self::Fork { length } => allocations::fork(process, length, count),
            Self::Lock { length } => system::lock(process, length, count),
            Self::EventFd => system::eventfd(process, count),
            Self::TcpAndBack { size } => sockets::tcp_and_back(process, size, count),
            Self::TcpStream { size } => sockets::tcp_stream(process, size, count),
            Self::UdpAndBack { peer } => sockets::udp_and_back(process, peer, count),
            Self::UdpStream { size } => sockets::udp_stream(process, size, count),
        }
    }
}

/// Runs that are not counted, so that all processes are awake.
const WARM_UP: usize = 16;

/// Nanoseconds each of `count` runs, after the first.
#[inline]
fn time(count: usize, mut run: impl FnMut(usize) -> Result) -> Result<f64> {
    (0..WARM_UP).try_for_each(&mut run)?;
    let start = Instant::now();
    (WARM_UP..WARM_UP + count).try_for_each(run)?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// The same for the near end alone, while the far one does nothing.
#[inline]
fn time_near(
    process: &Process,
    count: usize,
    mut run: impl FnMut(&Process) -> Result,
) -> Result<f64> {
    if process.is_near() { time(count, |_| run(process)) } else { Ok(0.0) }
}
