//! The workloads of two measuring processes. Each is one function, for both ends.

mod allocations;
mod ancillary;
mod messages;
mod one_sided;
mod sockets;
mod system;
mod windows;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::failure::Result;

pub(super) use sockets::{Echo, Stream};

/// A task for both ends, and how often to do it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) count: usize,
}

/// A workload. Its result is the nanoseconds of each operation, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Task {
    /// A WRITE, from posting to the polled completion.
    Write { size: usize },
    /// A READ, likewise.
    Read { size: usize },
    /// A fetch-and-add, likewise.
    FetchAndAdd,
    /// WRITEs to and fro. Each end polls its memory for the other's WRITE. One way.
    WriteAndBack { size: usize },
    /// WRITEs one after the other, with as many under way as the queue pairs hold.
    WriteStream { size: usize, queue_pairs: usize },
    /// WRITEs of 8 bytes in lists of 16, with as many under way as the queue pairs hold. Each WRITE counts.
    WriteLists { queue_pairs: usize },
    /// SENDs to and fro, one way. The waiting end polls, or sleeps until there is an event.
    SendAndBack { size: usize, asleep: bool },
    /// SENDs one after the other, with as many under way as a queue pair holds.
    SendStream { size: usize },
    /// A bind of this many bytes to a window of type 2, and the LOCAL_INV that ends it.
    Bind { length: usize },
    /// Makes windows until there are this many. Its result is the bytes of the key table for each.
    Windows { live: usize },
    /// Registers this many bytes, and deregisters them.
    Register { length: usize },
    /// `process_vm_writev` or `process_vm_readv` of this many bytes between the two processes.
    KernelCopy { write: bool, size: usize },
    /// `memcpy` between the buffers of one end. Their memory is of the same kind as that of the operations.
    Memcpy { size: usize },
    /// `posix_memalign` of this many bytes to a page, a touch of each page, and `free`.
    Allocate { size: usize },
    /// `malloc` of this many bytes, and `free`.
    Malloc { size: usize },
    /// A fork with this many page-aligned bytes in use, the end of the child, and a touch of each page.
    Fork { length: usize },
    /// `mlock` and `munlock` of this many bytes.
    Lock { length: usize },
    /// One process wakes the other with `eventfd(2)`, and the other wakes it. One way.
    EventFd,
    /// Bytes to and fro over one TCP connection. Both ends poll. One way.
    TcpAndBack { size: usize },
    /// This many bytes one after the other over one TCP connection.
    TcpStream { size: usize },
    /// Datagrams to and fro. Both ends poll. One datagram is as long as a WRITE of 8 bytes, and one with it is as long
    /// as an acknowledgement. One way.
    UdpAndBack(Echo),
    /// The datagrams of WRITEs, one after the other.
    UdpStream(Stream),
    /// Lists of 16 datagrams as long as a WRITE of 8 bytes, each list in one call. Each datagram counts.
    UdpLists,
}

impl Task {
    /// Does it `count` times with the other end, which gets the same task. The near end's result counts.
    pub(super) fn carry_out(self, process: &mut Process, count: usize) -> Result<f64> {
        match self {
            Self::Write { size } => one_sided::write(process, size, count),
            Self::Read { size } => one_sided::read(process, size, count),
            Self::FetchAndAdd => one_sided::fetch_and_add(process, count),
            Self::WriteAndBack { size } => one_sided::write_and_back(process, size, count),
            Self::WriteStream { size, queue_pairs } => {
                one_sided::write_stream(process, size, queue_pairs, count)
            }
            Self::WriteLists { queue_pairs } => one_sided::write_lists(process, queue_pairs, count),
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
            Self::UdpAndBack(echo) => sockets::udp_and_back(process, echo, count),
            Self::UdpStream(stream) => sockets::udp_stream(process, stream, count),
            Self::UdpLists => sockets::udp_lists(process, count),
        }
    }
}

/// The requests of a list, and the datagrams of one.
const LIST: usize = 16;

/// Runs that do not count, so that all processes are awake.
const WARM_UP: usize = 16;

/// Nanoseconds each of `count` runs, after the first.
#[inline]
fn time(count: usize, mut run: impl FnMut(usize) -> Result) -> Result<f64> {
    (0..WARM_UP).try_for_each(&mut run)?;
    let start = Instant::now();
    (WARM_UP..WARM_UP + count).try_for_each(run)?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// The same for the near end alone, while the far end does nothing.
#[inline]
fn time_near(
    process: &Process,
    count: usize,
    mut run: impl FnMut(&Process) -> Result,
) -> Result<f64> {
    if process.is_near() { time(count, |_| run(process)) } else { Ok(0.0) }
}
