//! Management datagrams between processes of this host: queue pair 1 gets them without a network.
//!
//! Each process that takes them has a named pipe in the registry's directory, which no other user can enter. A sender
//! writes a whole datagram to that pipe. If the pipe is full, the datagram waits at its sender for a while; then it is
//! lost, as on a network.
//!
//! A pipe has the size that the system gives it. The room of all pipes of an ordinary user is limited (`pipe(7)`,
//! `pipe-user-pages-soft`). Beyond that, every program of that user gets pipes of two pages.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use transom_system::addresses::gid;
use transom_system::registry::Registry;
use transom_wire::cm::MAD_BYTES;

/// How many notes may wait for room. More are lost.
const MOST_WAITING: usize = 4096;
/// How long a note waits, in nanoseconds. A process that is only busy takes it by then.
const NOTE_TIMEOUT: u64 = 1_000_000_000;
/// How long until waiting notes are tried again, in nanoseconds.
const AGAIN: u64 = 1_000_000;

/// A management datagram on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementDatagram {
    /// Where from.
    pub source: IpAddr,
    /// The destination: an address of this host.
    pub destination: IpAddr,
    /// The MAD.
    pub mad: [u8; MAD_BYTES],
}

/// The message that one process writes to another's pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the other is rare, and neither is kept")]
pub enum Note {
    /// There is one more process that takes management datagrams.
    Newcomer,
    /// A datagram for that process.
    Datagram(ManagementDatagram),
}

impl Note {
    /// A kind, the two addresses and the MAD, in bytes: less than a pipe takes in one piece (`pipe(7)`).
    const BYTES: usize = 1 + 16 + 16 + MAD_BYTES;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        if let Self::Datagram(datagram) = self {
            bytes[0] = 1;
            bytes[1..17].copy_from_slice(&gid(datagram.source));
            bytes[17..33].copy_from_slice(&gid(datagram.destination));
            bytes[33..].copy_from_slice(&datagram.mad);
        }
        bytes
    }

    fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (source, rest) = rest.split_first_chunk::<16>()?;
        let (destination, mad) = rest.split_first_chunk::<16>()?;
        let ip = |gid: [u8; 16]| IpAddr::V6(Ipv6Addr::from(gid)).to_canonical();
        match kind {
            0 => Some(Self::Newcomer),
            1 => Some(Self::Datagram(ManagementDatagram {
                source: ip(*source),
                destination: ip(*destination),
                mad: mad.try_into().ok()?,
            })),
            _ => None,
        }
    }
}

/// A note that found a pipe full.
struct Waiting {
    slot: u8,
    note: Note,
    /// When it is lost.
    until: u64,
}

/// The result of writing a note.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Whole,
    /// The pipe is full, or cannot be opened right now.
    NoRoom,
    /// The process takes none.
    Nowhere,
}

/// Writes a note to the pipe of the process in a slot.
fn write(registry: &Registry, slot: u8, note: &Note) -> Written {
    let pipe = match registry.management_pipe_of(slot) {
        Ok(pipe) => pipe,
        Err(error) if is_nowhere(&error) => return Written::Nowhere,
        // For example, this process has no descriptor left.
        Err(_) => return Written::NoRoom,
    };
    // It is shorter than a pipe takes in one piece, so all of it is written or nothing.
    match rustix::io::write(&pipe, &note.to_bytes()) {
        Err(rustix::io::Errno::AGAIN) => Written::NoRoom,
        _ => Written::Whole,
    }
}

/// Gives a datagram to the process in a slot, from a process without a pipe of its own. False if that process takes
/// none, or has no room.
pub fn give(registry: &Registry, slot: u8, datagram: ManagementDatagram) -> bool {
    write(registry, slot, &Note::Datagram(datagram)) == Written::Whole
}

/// The pipe at which a process gets management datagrams of others, and the notes that it has for their pipes.
pub struct ManagementPipe {
    pipe: OwnedFd,
    registry: &'static Registry,
    /// The oldest first.
    waiting: VecDeque<Waiting>,
}

impl ManagementPipe {
    /// Makes the pipe of the process in a slot.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn open(registry: &'static Registry, slot: u8) -> io::Result<Self> {
        let pipe = registry.make_management_pipe(slot)?;
        Ok(Self { pipe, registry, waiting: VecDeque::new() })
    }

    /// Readable when there is something to take.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Takes the oldest note; `None` if there is none.
    pub fn take(&self) -> Option<Note> {
        let mut bytes = [0; Note::BYTES];
        loop {
            match rustix::io::read(&self.pipe, &mut bytes) {
                // Another process of this user may write anything. If this is no note, the next one may be.
                Ok(Note::BYTES) => match Note::parse(&bytes) {
                    None => {}
                    note => return note,
                },
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Whether the process in a slot takes management datagrams, as far as this process can find out.
    pub fn may_be_at(&self, slot: u8) -> bool {
        !self.registry.management_pipe_of(slot).is_err_and(|error| is_nowhere(&error))
    }

    /// Sends a note to the process in a slot. False if that process takes none.
    pub fn send(&mut self, slot: u8, note: Note, now: u64) -> bool {
        // Notes for one process keep their order.
        let written = match self.waiting.iter().any(|it| it.slot == slot) {
            true => Written::NoRoom,
            false => self.write(slot, &note),
        };
        if written == Written::NoRoom && self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(Waiting { slot, note, until: now.saturating_add(NOTE_TIMEOUT) });
        }
        written != Written::Nowhere
    }

    /// Sends waiting notes, as far as there is room now.
    pub fn send_rest(&mut self, now: u64) {
        let mut full = [false; 256];
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|it| {
            let full = &mut full[usize::from(it.slot)];
            *full = *full || self.write(it.slot, &it.note) == Written::NoRoom;
            *full && now < it.until
        });
        self.waiting = waiting;
    }

    /// When to call [`ManagementPipe::send_rest`].
    pub fn deadline(&self, now: u64) -> Option<u64> {
        (!self.waiting.is_empty()).then(|| now.saturating_add(AGAIN))
    }

    fn write(&self, slot: u8, note: &Note) -> Written {
        write(self.registry, slot, note)
    }
}

/// Whether nobody reads what is written there: the pipe does not exist, or has no reader.
fn is_nowhere(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(number: u8) -> Note {
        let [source, destination] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([127, 0, 0, 1])];
        Note::Datagram(ManagementDatagram { source, destination, mad: [number; MAD_BYTES] })
    }

    /// Uses a pipe as short as the system makes them for a user with many pipes.
    #[test]
    fn what_finds_a_pipe_full_waits_and_keeps_its_order() {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let slot = claim.announcer().slot;
        let mut pipe = ManagementPipe::open(registry, slot).expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&pipe.pipe, 1).expect("shorter is always granted");
        for number in 0..100 {
            assert!(pipe.send(slot, datagram(number), 0));
        }
        assert_eq!(pipe.deadline(0), Some(AGAIN));
        for number in 0..100 {
            let next = pipe.take().or_else(|| {
                pipe.send_rest(0);
                pipe.take()
            });
            assert_eq!(next, Some(datagram(number)));
        }
        assert_eq!((pipe.take(), pipe.deadline(0)), (None, None));

        // A process that reads nothing keeps what its pipe holds.
        for number in 0..100 {
            assert!(pipe.send(slot, datagram(number), 0));
        }
        pipe.send_rest(NOTE_TIMEOUT);
        assert_eq!(pipe.deadline(NOTE_TIMEOUT), None);
        let taken = std::iter::from_fn(|| pipe.take()).count();
        assert!((1..100).contains(&taken), "{taken}");
        drop(claim);
        assert!(!pipe.send(slot, datagram(0), 0));
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let datagram = |source: &str, destination: &str| {
            let mut mad = [0; MAD_BYTES];
            mad.iter_mut().zip(0..).for_each(|(byte, number)| *byte = number as u8);
            let [source, destination] = [source, destination].map(|it| it.parse().unwrap());
            Note::Datagram(ManagementDatagram { source, destination, mad })
        };
        let notes =
            [Note::Newcomer, datagram("10.0.0.1", "127.0.0.1"), datagram("fd00::1", "fd00::2")];
        for note in notes {
            assert_eq!(Note::parse(&note.to_bytes()), Some(note));
        }
        let mut nonsense = notes[1].to_bytes();
        nonsense[0] = 2;
        assert_eq!(Note::parse(&nonsense), None);
    }
}
