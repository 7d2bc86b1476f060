//! The kernel's list of this process's mappings.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Updater};
use rustix::mm::ProtFlags;

use crate::descriptor::{self, Identity};
use crate::fork::Owner;

/// The access that a range of this process's memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Part of it is not mapped, or not readable.
    Missing,
    /// All readable, part of it not writable.
    ReadOnly,
    /// All readable and writable.
    Writable,
}

/// A file, as the list names it. Inode numbers repeat on other devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: (u32, u32),
    inode: u64,
}

impl FileId {
    pub(super) fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        Ok(Self { device, inode: stat.st_ino })
    }
}

/// A line of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) start: u64,
    pub(super) end: u64,
    readable: bool,
    writable: bool,
    executable: bool,
    shared: bool,
    pub(super) offset: u64,
    /// The mapped file. `None` for memory without a file.
    file: Option<FileId>,
}

impl Line {
    /// The program's rights there.
    pub(super) fn rights(&self) -> ProtFlags {
        let rights = [
            (self.readable, ProtFlags::READ),
            (self.writable, ProtFlags::WRITE),
            (self.executable, ProtFlags::EXEC),
        ];
        rights.into_iter().filter(|(has, _)| *has).map(|(_, right)| right).collect()
    }

    /// Whether it is a shared mapping of this file.
    pub(super) fn shares(&self, file: FileId) -> bool {
        self.shared && self.file == Some(file)
    }

    /// The part of it from an address on. Other threads may change mappings while the list is read, so a mapping may
    /// have grown over addresses that were seen already.
    fn from(self, address: u64) -> Self {
        let start = self.start.max(address);
        Self { start, offset: self.offset + (start - self.start), ..self }
    }

    fn of(query: &Query) -> Self {
        let device = (query.device[0], query.device[1]);
        Self {
            start: query.start,
            end: query.end,
            readable: query.rights & READABLE != 0,
            writable: query.rights & WRITABLE != 0,
            executable: query.rights & EXECUTABLE != 0,
            shared: query.rights & SHARED != 0,
            offset: query.offset,
            file: (query.inode != 0).then_some(FileId { device, inode: query.inode }),
        }
    }

    /// Reads `start-end rwxp offset device inode name`. The name of a file may be any bytes. It takes no memory.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(6, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(parts.next()?).ok();
        let (start, end) = word()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let rights = word()?.as_bytes();
        let offset = number(word()?)?;
        let (major, minor) = word()?.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = word()?.parse().ok()?;
        Some(Self {
            start,
            end,
            readable: *rights.first()? == b'r',
            writable: *rights.get(1)? == b'w',
            executable: *rights.get(2)? == b'x',
            shared: *rights.get(3)? == b's',
            offset,
            file: (inode != 0).then_some(FileId { device, inode }),
        })
    }
}

/// `struct procmap_query`, since Linux 6.11.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// `PROCMAP_QUERY`.
const QUERY: ioctl::Opcode = ioctl::opcode::read_write::<Query>(b'f', 17);
/// `PROCMAP_QUERY_VMA_READABLE`.
const READABLE: u64 = 1;
/// `PROCMAP_QUERY_VMA_WRITABLE`.
const WRITABLE: u64 = 2;
/// `PROCMAP_QUERY_VMA_EXECUTABLE`.
const EXECUTABLE: u64 = 4;
/// `PROCMAP_QUERY_VMA_SHARED`.
const SHARED: u64 = 8;
/// `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`.
const OR_NEXT: u64 = 0x10;

/// This process's list. It is asked for single mappings, because the list of a large program is long.
#[derive(Debug, Default)]
pub struct Maps {
    /// Kept, because opening it takes six times as long as asking.
    kept: OnceLock<(Owner, Identity, List)>,
}

impl Maps {
    /// Looks up a range in the list (rules MR-20, MR-21).
    ///
    /// # Errors
    ///
    /// There is no `/proc`.
    pub fn mapping(&self, address: u64, length: u64) -> io::Result<Mapping> {
        let (mut covered, end, mut result) = (address, address + length, Mapping::Writable);
        self.each(address..end, |line| {
            if line.start > covered || !line.readable {
                return false;
            }
            if !line.writable {
                result = Mapping::ReadOnly;
            }
            covered = line.end;
            true
        })?;
        Ok(if covered < end { Mapping::Missing } else { result })
    }

    /// Calls `see` for each line that has part of a range, until `see` returns false: in the order of addresses, and
    /// for no address twice. It takes no memory.
    pub(super) fn each(
        &self,
        range: Range<u64>,
        see: impl FnMut(&Line) -> bool,
    ) -> Result<(), Errno> {
        self.ask(|list| match list.at(range.start, OR_NEXT) {
            // Before Linux 6.11, or if the question is forbidden.
            Err(_) => list.read(&range, see),
            Ok(first) => list.go_on(first, &range, see),
        })
    }

    /// Whether all of a range is mapped, and `holds` is true of each mapping. It takes no memory.
    pub(super) fn all(&self, range: Range<u64>, holds: impl Fn(&Line) -> bool) -> bool {
        let (mut from, end) = (range.start, range.end);
        let seen = self.each(range, |line| {
            let goes_on = line.start <= from && holds(line);
            from = if goes_on { line.end } else { from };
            goes_on && from < end
        });
        seen.is_ok() && from >= end
    }

    /// Whether all of a range is mapped, and by nobody else.
    pub fn is_private(&self, address: u64, length: u64) -> bool {
        self.all(address..address.saturating_add(length), |line| !line.shared)
    }

    /// Opens the list now, if possible. Otherwise a program that counts its descriptors could find one more later.
    pub(super) fn open(&self) {
        let _ = self.ask(|_| Ok(()));
    }

    fn ask<T>(&self, ask: impl FnOnce(&List) -> Result<T, Errno>) -> Result<T, Errno> {
        if self.kept.get().is_none() {
            let list = List::open(PROCESS)?;
            if !list.is_empty() {
                let identity = Identity::of(&list.0).map_err(|_| Errno::BADF)?;
                let _ = self.kept.set((Owner::this(), identity, list));
            }
        }
        match self.kept.get() {
            Some((owner, identity, list)) if !owner.is_another() && identity.is_behind(&list.0) => {
                ask(list)
            }
            // A forked child has its parent's list, which answers for the parent. The program may have closed this one.
            // And the process's list is empty if the program's first thread had ended before it was opened. A thread's
            // list ends with the thread.
            _ => ask(&List::open(THREAD)?),
        }
    }
}

/// The list of this process, by its first thread, and by the thread that asks.
const PROCESS: &str = "/proc/self/maps";
const THREAD: &str = "/proc/thread-self/maps";

/// The list, open.
#[derive(Debug)]
struct List(OwnedFd);

impl List {
    fn open(path: &str) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(descriptor::high).map(Self)
    }

    fn is_empty(&self) -> bool {
        rustix::io::pread(&self.0, &mut [0], 0) == Ok(0)
    }

    /// The mapping at an address, or the next one if `flags` say so. `None` if there is none.
    fn at(&self, address: u64, flags: u64) -> Result<Option<Query>, Errno> {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, address, flags, ..Query::default() };
        // SAFETY: the struct is the one that the command takes, and names no memory.
        match unsafe { ioctl::ioctl(&self.0, Updater::<QUERY, _>::new(&mut query)) } {
            Ok(()) => Ok(Some(query)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Shows the first mapping of a range, and asks for the ones behind it.
    fn go_on(
        &self,
        mut found: Option<Query>,
        range: &Range<u64>,
        mut see: impl FnMut(&Line) -> bool,
    ) -> Result<(), Errno> {
        let mut seen = 0;
        while let Some(query) = found.filter(|query| query.start < range.end) {
            if !see(&Line::of(&query).from(seen)) || query.end >= range.end {
                break;
            }
            seen = query.end;
            found = self.at(seen, OR_NEXT)?;
        }
        Ok(())
    }

    /// Reads the list, if the kernel cannot be asked.
    fn read(&self, range: &Range<u64>, mut see: impl FnMut(&Line) -> bool) -> Result<(), Errno> {
        // Longer than any line with a usual path. At a longer line the reading ends.
        let mut text = [0_u8; 8 << 10];
        let (mut length, mut at, mut seen) = (0, 0, 0);
        loop {
            let read = rustix::io::pread(&self.0, &mut text[length..], at)?;
            length += read;
            at += read as u64;
            if read == 0 {
                return Ok(());
            }
            let mut lines = text[..length].split_inclusive(|byte| *byte == b'\n').peekable();
            let mut done = 0;
            while let Some(line) = lines.next_if(|line| line.ends_with(b"\n")) {
                done += line.len();
                let Some(line) = Line::parse(line.trim_ascii_end()) else { continue };
                if line.end <= seen {
                    continue;
                }
                let end = line.end;
                let line = line.from(std::mem::replace(&mut seen, end));
                if line.start >= range.end || line.end > range.start && !see(&line) {
                    return Ok(());
                }
            }
            text.copy_within(done..length, 0);
            length -= done;
        }
    }
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn mappings_are_seen_with_their_rights() {
        let maps = Maps::default();
        let mapping = |address, length| maps.mapping(address, length).unwrap();
        let writable = vec![0_u8; 100_000];
        let address = writable.as_ptr() as u64;
        assert_eq!(mapping(address, 100_000), Mapping::Writable);
        let code = mappings_are_seen_with_their_rights as fn() as usize as u64;
        assert_eq!(mapping(code, 1), Mapping::ReadOnly);
        assert_eq!(mapping(4096, 10), Mapping::Missing);
    }

    /// Also if the kernel cannot be asked.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such list")]
    fn memory_of_a_file_is_seen_whatever_its_name() {
        let name = std::ffi::OsStr::from_bytes(b"transom-maps-\xff\xe9 name");
        let path = Path::new("/tmp").join(format!("transom-maps-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(name), "content").unwrap();
        let file = std::fs::File::open(path.join(name)).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        let (length, kind) = (4096, libc::MAP_PRIVATE);
        // SAFETY: a fresh mapping where the kernel finds room.
        let page =
            unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, kind, file.as_raw_fd(), 0) };
        let end = page as u64 + length as u64;
        assert_eq!(Maps::default().mapping(page as u64, length as u64).unwrap(), Mapping::ReadOnly);
        let list = List::open(PROCESS).unwrap();
        let mut seen = Vec::new();
        list.read(&(page as u64..end), |line| {
            seen.push(line.clone());
            true
        })
        .unwrap();
        assert!(seen.iter().all(|line| line.readable && !line.writable && line.file.is_some()));
        assert!(seen[0].start <= page as u64 && seen[seen.len() - 1].end >= end);
        // SAFETY: this test's own.
        unsafe { libc::munmap(page, length) };
    }

    /// Over ranges from each mapping of this process into the next ones.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such list")]
    fn asking_and_reading_say_the_same() {
        const PAGE: u64 = 4096;
        let list = List::open(PROCESS).unwrap();
        if list.at(4096, OR_NEXT).err() == Some(Errno::NOTTY) {
            return println!("skipped: an older kernel cannot be asked");
        }
        let read = |range: &Range<u64>| {
            let mut found = Vec::new();
            let seen = list.read(range, |line| {
                found.push(line.clone());
                true
            });
            seen.map(|()| found).unwrap()
        };
        let asked = |range: &Range<u64>| {
            let mut found = Vec::new();
            let seen = list.go_on(list.at(range.start, OR_NEXT).unwrap(), range, |line| {
                found.push(line.clone());
                true
            });
            seen.map(|()| found).unwrap()
        };
        let mut all = read(&(0..1 << 48));
        all.retain(|line| (line.end - 1) >> 48 == 0);
        // Mappings at the ends grow and shrink, and another test may make others meanwhile.
        let agree = |from: u64, to: u64| (0..100).any(|_| asked(&(from..to)) == read(&(from..to)));
        for three in all.windows(3) {
            let [first, _, last] = three else { unreachable!() };
            for (from, to) in [
                (first.start, first.end),
                (first.end - PAGE, last.start + 1),
                (first.start, last.end),
                (first.end, first.end + 1),
            ] {
                assert!(agree(from, to), "{from:x} to {to:x}");
            }
        }
    }

    /// Another thread splits one mapping into many, and joins them again.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such list")]
    fn no_address_is_seen_twice_while_mappings_change() {
        const PAGES: usize = 64;
        let (page, kind) =
            (super::super::page_size() as usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let length = PAGES * page;
        // SAFETY: a fresh mapping where the kernel finds room.
        let first = unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, kind, -1, 0) };
        let range = first as u64..first as u64 + length as u64;
        let list = List::open(PROCESS).unwrap();
        let can_ask = list.at(4096, OR_NEXT).is_ok();
        let done = AtomicBool::new(false);
        let change = |first: u64, length: usize, rights| {
            // SAFETY: this test's mapping, which nobody touches.
            unsafe { libc::mprotect(first as *mut _, length, rights) };
        };
        let mut wrong = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let odd = range.clone().step_by(2 * page);
                    odd.for_each(|at| change(at, page, libc::PROT_NONE));
                    change(range.start, length, libc::PROT_READ);
                }
            });
            for asks in [false, can_ask].repeat(3000) {
                let mut end = 0;
                let see = |line: &Line| {
                    if line.start < end || line.start >= line.end {
                        wrong.push((asks, end, line.clone()));
                    }
                    end = line.end;
                    true
                };
                let seen = match asks {
                    true => {
                        list.at(range.start, OR_NEXT).and_then(|it| list.go_on(it, &range, see))
                    }
                    false => list.read(&range, see),
                };
                if seen.is_err() || end < range.end {
                    wrong.push((asks, end, Line::default()));
                }
            }
            done.store(true, Relaxed);
        });
        assert!(wrong.is_empty(), "{wrong:x?}");
        // SAFETY: this test's own.
        unsafe { libc::munmap(first, length) };
    }

    /// A child that is made without the C library has its parent's descriptor of the list.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such list")]
    fn a_child_asks_about_itself() {
        let (maps, length) = (Maps::default(), 4096);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping where the kernel finds room.
        let page = unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, kind, -1, 0) };
        let mapping = || maps.mapping(page as u64, length as u64).ok();
        assert_eq!(mapping(), Some(Mapping::ReadOnly));
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: this test's page, and the end of the child.
            unsafe {
                libc::munmap(page, length);
                libc::_exit(if mapping() == Some(Mapping::Missing) { 7 } else { 1 });
            }
        }
        let mut status = 0;
        // SAFETY: the status, and the page, are this test's own.
        unsafe {
            assert_eq!(libc::waitpid(child as i32, &mut status, 0), child as i32);
            libc::munmap(page, length);
        }
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
}
