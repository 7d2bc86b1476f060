//! Management datagrams between processes of this host: what queue pair 1 gets, without a network.
//!
//! Each process that takes them has a pipe with a name, in the registry's directory, which nobody else can
//! enter; whoever has one for it writes it there whole. A pipe that is full loses it, as a network would.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use transom_system::addresses::gid;
use transom_system::registry::Registry;
use transom_wire::cm::MAD_BYTES;

/// What the pipe holds if the system grants it: 3,000 datagrams.
const PIPE: usize = 1 << 20;

/// A management datagram on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementDatagram {
    /// Where from.
    pub source: IpAddr,
    /// Where to: an address of this host.
    pub destination: IpAddr,
    /// The MAD.
    pub mad: [u8; MAD_BYTES],
}

/// What one process writes to another's pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the other is rare, and neither is kept")]
pub enum Note {
    /// There is one more process that takes management datagrams.
    Newcomer,
    /// A datagram for that process.
    Datagram(ManagementDatagram),
}

impl Note {
    /// A kind, the two addresses, the MAD: less than what a pipe takes in one piece (`pipe(7)`).
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

/// The pipe at which a process gets management datagrams of others.
pub struct ManagementPipe {
    pipe: OwnedFd,
    registry: &'static Registry,
}

impl ManagementPipe {
    /// Makes the pipe of the process in a slot.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(registry: &'static Registry, slot: u8) -> io::Result<Self> {
        let pipe = registry.make_management_pipe(slot)?;
        // Where it is not granted the pipe holds a sixteenth of it.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
        Ok(Self { pipe, registry })
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
                // What another process of this user wrote need be none; then the next may be.
                Ok(Note::BYTES) => match Note::parse(&bytes) {
                    None => {}
                    note => return note,
                },
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Whether the process in a slot takes management datagrams.
    pub fn is_at(&self, slot: u8) -> bool {
        self.registry.management_pipe_of(slot).is_ok()
    }

    /// Writes a note to the process in a slot; false if that takes none. One that has no room loses it.
    pub fn send(&self, slot: u8, note: &Note) -> bool {
        let Ok(pipe) = self.registry.management_pipe_of(slot) else { return false };
        // Shorter than what a pipe takes in one piece: all of it or nothing.
        let _ = rustix::io::write(&pipe, &note.to_bytes());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
