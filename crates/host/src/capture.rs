//! Writes what crosses the links to a file that Wireshark reads: `transom run --capture`.
//!
//! The wire link has packets, and they are written as they are. The loopback and local links have none. For their
//! segments `streams` makes the packets that a network would have carried, with PSNs and ICRCs, so you read every link
//! in the same way. A refusal carries its reason as a comment.
//!
//! `transom run` begins the file. The program's processes then append to it, each packet or segment with one write,
//! which the kernel appends whole. The process that sends a request writes the request and its answers. If that process
//! does not write to the same file, the receiving process writes them.

mod ip;
mod observer;
mod pcapng;
mod streams;

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};

use parking_lot::Mutex;
use transom_system::{clock, descriptor, file_limit, say};
use transom_wire::packet::Packet;

pub(crate) use observer::CaptureObserver;
use streams::Streams;

use crate::device::{Direction, Interface};

/// Begins a file and drops its old content. The file gets data of programs, so nobody else may read it.
pub fn begin(path: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    check_owner(&file)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    }
    file_limit::grow(|| file.write_all(&pcapng::header()))
}

/// Refuses another user's file: its owner would read what this program sends. Devices and the like, which are root's,
/// are allowed.
fn check_owner(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    let owner = about.uid();
    if owner == rustix::process::geteuid().as_raw() || owner == 0 && !about.is_file() {
        return Ok(());
    }
    let text = format!("it belongs to user {owner}, who could read what is sent");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether a file begins as a capture does. Another user may control the environment, which names the file. Such a user
/// must not make a program write into any other file of its own user.
fn has_begun(path: &Path) -> io::Result<bool> {
    let header = pcapng::header();
    let mut there = vec![0; header.len()];
    let read = File::open(path)?.read_exact(&mut there);
    Ok(read.is_ok() && there == header)
}

/// A file that this process writes to.
#[derive(Debug)]
pub struct Capture {
    file: File,
    /// Names the file among those of this host.
    identity: u64,
    /// A write has failed, so nothing more is written.
    broken: AtomicBool,
    streams: Mutex<Streams>,
}

impl Capture {
    /// Opens a file that [`begin`] has begun.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        check_owner(&file)?;
        if file.metadata()?.is_file() && !has_begun(path)? {
            return Err(io::Error::other(
                "it is no capture that `transom run --capture` has begun",
            ));
        }
        let file = File::from(descriptor::high(file.into()));
        let about = file.metadata()?;
        // Never zero, which is no file.
        let identity = about.ino() ^ about.dev().rotate_left(32) | 1 << 63;
        let (broken, streams) = Default::default();
        Ok(Self { file, identity, broken, streams })
    }

    /// The same number for every process that writes to this file, and for no other file. Never zero.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Writes down the part of a wire link's packet that UDP carries, from the BTH to the ICRC.
    fn record(
        &self,
        direction: Direction,
        path: &transom_net::Path,
        identification: u16,
        datagram: &[u8],
        comment: Option<&str>,
    ) {
        let mut packet = Vec::with_capacity(datagram.len() + 48);
        if ip::write(path, identification, datagram, &mut packet).is_some() {
            let mut blocks = Vec::with_capacity(packet.len() + 64);
            let interface = Interface::Wire;
            pcapng::packet(&mut blocks, interface, direction, clock::wall(), &packet, comment);
            self.append(&blocks);
        }
    }

    /// Writes down the packets that `make` makes, all in one write, each with its path.
    fn record_packets(
        &self,
        interface: Interface,
        direction: Direction,
        comment: Option<&str>,
        make: impl FnOnce(&mut Streams, &mut dyn FnMut(&transom_net::Path, &Packet<'_>)),
    ) {
        let (time, mut blocks, mut packet) = (clock::wall(), Vec::new(), Vec::new());
        // Held until they are written, so that packets of one connection are in order.
        let mut streams = self.streams.lock();
        make(&mut streams, &mut |path, it| {
            let Some(addresses) = path.icrc(path.port) else { return };
            let mut datagram = vec![0; it.length()];
            let length = it.write(&mut datagram);
            let icrc = addresses.icrc(0, &datagram[..length]);
            datagram[length..].copy_from_slice(&icrc);
            packet.clear();
            if ip::write(path, 0, &datagram, &mut packet).is_some() {
                pcapng::packet(&mut blocks, interface, direction, time, &packet, comment);
            }
        });
        self.append(&blocks);
    }

    /// Appends whole blocks with one write, so that no block of another process comes in between.
    fn append(&self, blocks: &[u8]) {
        if blocks.is_empty() || self.broken.load(Relaxed) {
            return;
        }
        let write = |bytes| file_limit::grow(|| (&self.file).write(bytes));
        let problem = match write(blocks) {
            Ok(written) if written == blocks.len() => return,
            // A write of the rest meets the error that cut this one short.
            Ok(written) => match write(&blocks[written..]) {
                Ok(_) => io::Error::from(io::ErrorKind::StorageFull),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if !self.broken.swap(true, Relaxed) {
            say(format_args!("the capture ends here, its file cannot be written to: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::chown;
    use std::path::PathBuf;

    use super::*;

    /// A file of the test's own. Dropping this value removes it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("transom-capture-{}-{name}", std::process::id());
            Self(Path::new("/tmp").join(name))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn nobody_else_reads_what_has_been_sent() {
        let file = Scratch::new("mode");
        for before in [None, Some(0o644)] {
            if let Some(mode) = before {
                fs::set_permissions(&file.0, Permissions::from_mode(mode)).expect("our own");
            }
            begin(&file.0).expect("it can be written");
            assert_eq!(fs::metadata(&file.0).expect("made").mode() & 0o777, 0o600, "{before:?}");
        }
        Capture::open(&file.0).expect("it has been begun");
        begin(Path::new("/dev/null")).expect("it is no file");
    }

    #[test]
    fn a_file_of_another_user_is_no_capture_of_this_one() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let file = Scratch::new("theirs");
        begin(&file.0).expect("it can be written");
        let before = fs::read(&file.0).expect("it is there");
        chown(&file.0, Some(2002), None).expect("root may");
        for refused in [begin(&file.0), Capture::open(&file.0).map(drop)] {
            let refused = refused.expect_err("it is another's").to_string();
            assert!(refused.contains("belongs to user 2002"), "{refused}");
        }
        assert_eq!(fs::read(&file.0).expect("it is there"), before);
    }

    /// A user who sets a variable for another user's program cannot make it write to that user's files.
    #[test]
    fn what_is_no_capture_is_not_written_to() {
        let file = Scratch::new("other");
        fs::write(&file.0, "something else").expect("our own");
        let refused = Capture::open(&file.0).expect_err("it is no capture").to_string();
        assert!(refused.contains("no capture that `transom run --capture` has begun"), "{refused}");
    }
}
