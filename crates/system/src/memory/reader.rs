//! Reads memory of this process that may be gone, for a tool that looks at much of it.
//!
//! The kernel copies into a pipe, and out of it again. With the look whether the pipe is still ours, one place takes as
//! long as by `process_vm_readv`, which looks a process up and pins pages. Each place more takes a tenth of what it takes
//! there.

use std::io;

use parking_lot::Mutex;
use transom_thread::uncancelled;

use super::pipe::{PLACES, ROOM, Round};
use super::{Copier, Readable, Source, find_here};
use crate::fork::Owner;
use crate::sanitizers;

/// Memory of the program, by its place or address, and where its bytes go.
#[derive(Debug)]
pub struct Part<'a> {
    place: u64,
    bytes: &'a mut [u8],
    /// All of it was read.
    pub is_read: bool,
}

impl<'a> Part<'a> {
    /// As many bytes at a place.
    pub fn new(place: u64, bytes: &'a mut [u8]) -> Self {
        Self { place, bytes, is_read: false }
    }
}

/// Reads memory of the process that made it.
#[derive(Debug)]
pub struct Reader {
    copier: Copier,
    /// Empty between two readings. None if there can be none.
    pipe: Mutex<Option<Round>>,
    owner: Owner,
}

impl Reader {
    /// A reader, or why memory that is gone could not be told.
    pub fn new() -> io::Result<Self> {
        let (copier, owner) = (Copier::best()?, Owner::this());
        // A sanitizer would report bytes that the program has not written yet, as if it wrote them to a file.
        let pipe = if sanitizers::are_told() { None } else { Round::new() };
        Ok(Self { copier, pipe: Mutex::new(pipe), owner })
    }

    /// Whether it could read all of this memory.
    pub fn read(&self, place: u64, bytes: &mut [u8]) -> bool {
        let mut parts = [Part::new(place, bytes)];
        self.read_all(&mut parts);
        parts[0].is_read
    }

    /// Reads shared memory, which takes no system call. Of other memory it reads nothing, and says no.
    #[inline]
    pub fn read_shared(&self, place: u64, bytes: &mut [u8]) -> bool {
        let length = bytes.len() as u64;
        find_here(place, length).is_some_and(|first| {
            // SAFETY: as in `Side::resolved`.
            let from = unsafe { Readable::shared(first.as_ptr(), length) };
            self.copier.copy(bytes.into(), Source::Own(from), length).is_ok()
        })
    }

    /// Whether shared memory has this content. Of other memory it says no.
    #[inline]
    pub fn is_shared_with(&self, place: u64, content: &[u8]) -> bool {
        if let Some(room) = [0; 32].get_mut(..content.len()) {
            return self.read_shared(place, room) && room == content;
        }
        let mut room = [0; 1024];
        let mut places = (place..).step_by(room.len());
        content.chunks(room.len()).all(|content| {
            let now = &mut room[..content.len()];
            places.next().is_some_and(|place| self.read_shared(place, now)) && now == content
        })
    }

    /// Reads these parts.
    pub fn read_all(&self, parts: &mut [Part<'_>]) {
        let mut private = Vec::with_capacity(parts.len());
        for part in parts {
            // Shared memory takes no call.
            match find_here(part.place, part.bytes.len() as u64) {
                Some(_) => self.copy(part),
                None => private.push(part),
            }
        }
        let mut rest = &mut *private;
        while !rest.is_empty() {
            let (group, others) = rest.split_at_mut(fitting(rest));
            self.read_group(group);
            rest = others;
        }
    }

    /// Reads parts that fit into the pipe together, or a single one.
    fn read_group(&self, group: &mut [&mut Part<'_>]) {
        if !self.read_by_pipe(group) {
            group.iter_mut().for_each(|part| self.copy(part));
        }
    }

    fn read_by_pipe(&self, group: &mut [&mut Part<'_>]) -> bool {
        // A forked child has its parent's pipe.
        if group[0].bytes.len() as u64 > ROOM || self.owner.is_another() {
            return false;
        }
        // Nobody waits for another thread, whose memory may come only when it is asked for.
        let Some(mut kept) = self.pipe.try_lock() else { return false };
        let Some(pipe) = &*kept else { return false };
        let is_there = pipe.is_there();
        if is_there && pipe.gather(group.iter_mut().map(|part| (part.place, &mut *part.bytes))) {
            group.iter_mut().for_each(|part| part.is_read = true);
            return true;
        }
        uncancelled(|| {
            // It may hold bytes. It goes before the next one comes, which may have its number.
            match (is_there, kept.take()) {
                (true, old) => drop(old),
                (false, old) => old.into_iter().for_each(Round::forget),
            }
            *kept = Round::new();
        });
        false
    }

    fn copy(&self, part: &mut Part<'_>) {
        let (from, length) = (Source::Program(part.place), part.bytes.len() as u64);
        part.is_read = self.copier.copy((&mut *part.bytes).into(), from, length).is_ok();
    }
}

/// How many of the first parts fit into the pipe together: one at least.
fn fitting(parts: &[&mut Part<'_>]) -> usize {
    let mut length = 0;
    let fits = |part: &&&mut Part<'_>| {
        length += part.bytes.len() as u64;
        length <= ROOM
    };
    parts.iter().take(PLACES).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn readers() -> [Reader; 2] {
        let without = Reader { pipe: Mutex::new(None), ..Reader::new().unwrap() };
        [Reader::new().unwrap(), without]
    }

    /// Nothing is at this address.
    const GONE: u64 = 4096;

    #[test]
    fn many_parts_are_read_and_those_that_are_gone_are_told() {
        for reader in readers() {
            let from: Vec<u8> = (0..300_000_u32).map(|i| (i / 7) as u8).collect();
            let at = |offset: usize| from[offset..].as_ptr() as u64;
            // More than a call takes, and more than the pipe does; the last is longer than the pipe.
            let lengths = [8; 300].into_iter().chain([4096; 40]).chain([0, 100_000]);
            let mut places: Vec<(u64, Vec<u8>)> =
                lengths.enumerate().map(|(nth, length)| (at(nth * 500), vec![0; length])).collect();
            for gone in [3, 7, 320] {
                places[gone].0 = GONE;
            }
            let mut parts: Vec<_> =
                places.iter_mut().map(|(place, bytes)| Part::new(*place, bytes)).collect();
            reader.read_all(&mut parts);
            let read: Vec<_> = parts.iter().map(|part| part.is_read).collect();
            for (nth, ((place, bytes), is_read)) in places.iter().zip(read).enumerate() {
                assert_eq!(is_read, *place != GONE, "{nth} {reader:?}");
                if is_read {
                    assert!(*bytes == from[nth * 500..][..bytes.len()], "{nth} {reader:?}");
                }
            }
            // And again: nothing is left in the pipe.
            let mut bytes = [0; 16];
            assert!(reader.read(at(100), &mut bytes) && bytes == from[100..116], "{reader:?}");
            assert!(!reader.read(GONE, &mut bytes), "{reader:?}");
        }
    }

    #[test]
    fn a_pipe_that_the_program_has_closed_touches_no_other_file() {
        let reader = Reader::new().unwrap();
        let from = [7_u8; 16];
        let mut bytes = [0; 16];
        let number = reader.pipe.lock().as_ref().expect("a pipe").number();
        // Another pipe of the program's gets its number.
        let (read, write) = io::pipe().unwrap();
        // SAFETY: the reader's descriptor goes, as a program may have it do.
        assert_eq!(unsafe { libc::dup2(write.as_raw_fd(), number) }, number);
        drop(write);
        assert!(reader.read(from.as_ptr() as u64, &mut bytes) && bytes == from);
        assert!(reader.read(from.as_ptr() as u64, &mut bytes));
        let mut waiting = 0;
        // SAFETY: it asks how much there is to read.
        unsafe { libc::ioctl(read.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
        assert_eq!(waiting, 0, "nothing was written to it");
        // SAFETY: it asks for flags. The program's file is still open.
        assert_ne!(unsafe { libc::fcntl(number, libc::F_GETFD) }, -1);
        // SAFETY: the test's own, from above.
        unsafe { libc::close(number) };
    }

    #[test]
    fn a_range_that_ends_in_nothing_is_not_read() {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        let size = crate::memory::page_size() as usize;
        // SAFETY: a mapping of this test's own, of which only the first page is read.
        let first = unsafe {
            let first = mmap_anonymous(
                std::ptr::null_mut(),
                2 * size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            );
            let first = first.unwrap().cast::<u8>();
            munmap(first.add(size).cast(), size).unwrap();
            first as u64
        };
        for reader in readers() {
            let mut bytes = [[1; 16]; 3];
            let [there, across, behind] = &mut bytes;
            let end = first + size as u64;
            let mut parts = [(end - 16, there), (end - 8, across), (first, behind)]
                .map(|(place, bytes)| Part::new(place, bytes));
            reader.read_all(&mut parts);
            assert_eq!(parts.map(|part| part.is_read), [true, false, true], "{reader:?}");
            assert_eq!((bytes[0], bytes[2]), ([0; 16], [0; 16]));
        }
        // SAFETY: the page that is left, which nobody uses any more.
        unsafe { munmap(first as *mut _, size) }.unwrap();
    }
}
