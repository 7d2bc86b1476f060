//! By what the processes of a run have ended, although others wait for them.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, bind, recvmsg};
use transom_system::rehearsal::ends;

/// The signals that tell of a mistake of the process itself.
const OF_MISTAKES: [i32; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// The signal by which a program has died, as itself or a shell tells: it exits with 128 and the number then.
pub(super) fn died_by(status: ExitStatus) -> Option<i32> {
    let told = || status.code().map(|code| code - 128);
    status.signal().or_else(told).filter(|signal| OF_MISTAKES.contains(signal))
}

/// The processes of a run that have joined the rehearsal.
pub(super) struct Ends {
    socket: OwnedFd,
    /// Those that have not ended as far as is known: the number in the run, and the descriptor.
    living: Vec<(u32, OwnedFd)>,
    ended: Vec<(u32, ExitStatus)>,
}

impl Ends {
    /// Has the processes send descriptors of themselves to this directory.
    pub(super) fn listen(directory: &Path) -> io::Result<Self> {
        let ((_directory, address), socket) = (ends::address(directory)?, ends::socket()?);
        bind(&socket, &address)?;
        Ok(Self { socket, living: Vec::new(), ended: Vec::new() })
    }

    /// Readable when one has been sent.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes what was sent so far.
    pub(super) fn take_in(&mut self) {
        while let Ok((number, process)) = self.receive() {
            self.living.push((number, process));
        }
        for (number, process) in std::mem::take(&mut self.living) {
            match status(process.as_fd()) {
                Some(status) => self.ended.push((number, status)),
                None => self.living.push((number, process)),
            }
        }
    }

    fn receive(&self) -> io::Result<(u32, OwnedFd)> {
        let mut number = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(&self.socket, &mut [IoSliceMut::new(&mut number)], &mut message, flags)?;
        let sent = message.drain().find_map(|it| match it {
            RecvAncillaryMessage::ScmRights(mut all) => all.next(),
            _ => None,
        });
        let process = sent.ok_or(io::ErrorKind::InvalidData)?;
        Ok((u32::from_ne_bytes(number), process))
    }

    /// The processes that have died of a mistake, and the signals. All have been waited for.
    pub(super) fn died(mut self) -> Vec<(u32, i32)> {
        self.take_in();
        self.ended.sort_by_key(|(number, _)| *number);
        let died = |(number, status): (u32, ExitStatus)| {
            let signal = status.signal().filter(|signal| OF_MISTAKES.contains(signal));
            signal.map(|signal| (number, signal))
        };
        self.ended.into_iter().filter_map(died).collect()
    }
}

/// What the kernel tells of a process (`struct pidfd_info` of `linux/pidfd.h`).
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    group: u64,
    numbers: [u32; 11],
    status: i32,
}

/// The bit of the mask for the status.
const STATUS: u64 = 1 << 3;
/// `PIDFD_GET_INFO`: `_IOWR(0xff, 11, struct pidfd_info)`.
const GET_INFO: libc::c_ulong = 0xc000_ff0b | (size_of::<Info>() as libc::c_ulong) << 16;

/// How a process has ended. None before its parent has waited for it, and before Linux 6.15.
fn status(process: BorrowedFd<'_>) -> Option<ExitStatus> {
    let mut info = Info { mask: STATUS, ..Info::default() };
    // SAFETY: the struct is this call's own, and has the size that the request names.
    let answer = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (answer == 0 && info.mask & STATUS != 0).then(|| ExitStatus::from_raw(info.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: REH-40
    #[test]
    fn a_shell_tells_of_a_signal_by_its_status() {
        let exited = |code: i32| died_by(ExitStatus::from_raw(code << 8));
        assert_eq!([139, 134, 143, 2, 0].map(exited), [Some(11), Some(6), None, None, None]);
        let killed = |signal| died_by(ExitStatus::from_raw(signal));
        assert_eq!([7, 9, 15].map(killed), [Some(7), None, None]);
    }
}
