//! The kernel's list of this process's mappings.

use std::io::{self, BufRead};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Updater};
use rustix::mm::ProtFlags;

use crate::fork::Owner;

/// What a range of this process's memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Part of it is not mapped, or not readable.
    Missing,
    /// All readable, part of it not writable.
    ReadOnly,
    /// All readable and writable.
    Writable,
}

/// A file, as the list names it: numbers of inodes repeat on other devices.
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
    /// What is mapped; none for memory that is no file's.
    file: Option<FileId>,
    /// It has a name that says what it is for, and that is neither the heap nor the program's choice.
    special: bool,
    /// What lies right before it cannot be touched: so do stacks begin.
    pub(super) follows_guard: bool,
}

impl Line {
    /// What the program may do there.
    pub(super) fn rights(&self) -> ProtFlags {
        let rights = [
            (self.readable, ProtFlags::READ),
            (self.writable, ProtFlags::WRITE),
            (self.executable, ProtFlags::EXEC),
        ];
        rights.into_iter().filter(|(has, _)| *has).map(|(_, right)| right).collect()
    }

    /// Whether it is ordinary private memory, which the program may read and write, and no more.
    pub(super) fn is_private_memory(&self) -> bool {
        self.has_private_memory() && !self.executable && !self.special
    }

    fn has_private_memory(&self) -> bool {
        self.readable && self.writable && !self.shared && self.file.is_none()
    }

    /// As the next of all lines; the one before it that cannot be touched ends at `guard`.
    fn behind(mut self, guard: &mut u64) -> Self {
        self.follows_guard = *guard == self.start;
        if !self.readable && !self.writable {
            *guard = self.end;
        }
        self
    }

    /// Whether it is a mapping of a file that is shared with others who map it.
    pub(super) fn shares(&self, file: FileId) -> bool {
        self.shared && self.file == Some(file)
    }

    /// `start-end rwxp offset device inode  name`, where the name of a file is any bytes. It takes no memory.
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
        let name = parts.next().unwrap_or_default().trim_ascii_start();
        Some(Self {
            start,
            end,
            readable: *rights.first()? == b'r',
            writable: *rights.get(1)? == b'w',
            executable: *rights.get(2)? == b'x',
            shared: *rights.get(3)? == b's',
            offset,
            file: (inode != 0).then_some(FileId { device, inode }),
            special: is_special(name),
            follows_guard: false,
        })
    }
}

/// Whether memory of this name is neither the heap nor what the program has given a name.
fn is_special(name: &[u8]) -> bool {
    !(name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:"))
}

/// The lines, in the order of their addresses.
pub(super) fn lines() -> io::Result<impl Iterator<Item = Line>> {
    let maps = io::BufReader::with_capacity(64 << 10, std::fs::File::open("/proc/self/maps")?);
    let mut guard = 0;
    let lines = maps.split(b'\n').map_while(Result::ok);
    Ok(lines.filter_map(|line| Line::parse(&line)).map(move |line| line.behind(&mut guard)))
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
/// A name that a program gives to memory has at most 80 bytes, the kernel's own are shorter.
const NAME_BYTES: usize = 128;

/// This process's list, to be asked for single mappings: that of a large program is long.
#[derive(Debug, Default)]
pub struct Maps {
    /// Kept, for opening it takes six times as long as asking.
    kept: OnceLock<(Owner, List)>,
}

impl Maps {
    /// Looks up a range in the list (rules MR-20, MR-21).
    ///
    /// # Errors
    ///
    /// There is no `/proc`.
    pub fn mapping(&self, address: u64, length: u64) -> io::Result<Mapping> {
        let end = address + length;
        self.ask(|list| list.mapping(address, end)).or_else(|_| read(address, end))
    }

    /// The lines that have part of a range, in the order of their addresses. The program may have made many.
    pub(super) fn lines_of(&self, range: Range<u64>) -> io::Result<Vec<Line>> {
        match self.ask(|list| list.lines(&range)) {
            Err(error) if error != Errno::NOMEM => {}
            asked => return Ok(asked?),
        }
        let mut found = Vec::new();
        let of = |line: &Line| line.start < range.end && range.start < line.end;
        for line in lines()?.filter(of) {
            found.try_reserve(1)?;
            found.push(line);
        }
        Ok(found)
    }

    /// Whether all of a range is mapped, by mappings of which something holds. It takes no memory.
    pub(super) fn all(&self, range: Range<u64>, holds: impl Fn(&Line) -> bool) -> bool {
        let mut from = range.start;
        let ask = |list: &List| {
            while from < range.end {
                let Some(query) = list.at(from, 0)? else { return Ok(false) };
                if !holds(&list.line(&query)?) {
                    return Ok(false);
                }
                from = query.end;
            }
            Ok(true)
        };
        self.ask(ask).or_else(|_| read_all(range, holds)).unwrap_or(false)
    }

    /// Opens the list now, if that can be: a program that counts its descriptors is not to find one more later.
    pub(super) fn open(&self) {
        let _ = self.ask(|_| Ok(()));
    }

    /// Fails where the kernel cannot be asked.
    fn ask<T>(&self, ask: impl FnOnce(&List) -> Result<T, Errno>) -> Result<T, Errno> {
        if self.kept.get().is_none() {
            let _ = self.kept.set((Owner::this(), List::open()?));
        }
        match self.kept.get() {
            Some((owner, list)) if !owner.is_another() => ask(list),
            // A forked child has its parent's, which answers for the parent.
            _ => ask(&List::open()?),
        }
    }
}

/// The list, open.
#[derive(Debug)]
struct List(OwnedFd);

impl List {
    fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/maps", flags, Mode::empty()).map(Self)
    }

    /// The mapping at an address, or the next one if `flags` say so; none if there is none.
    fn at(&self, address: u64, flags: u64) -> Result<Option<Query>, Errno> {
        self.ask_with(Query { address, flags, ..Query::default() })
    }

    fn ask_with(&self, mut query: Query) -> Result<Option<Query>, Errno> {
        query.size = size_of::<Query>() as u64;
        // SAFETY: the struct is the one that the command takes; the memory it names, if any, is as long
        // as it says and the caller's own.
        match unsafe { ioctl::ioctl(&self.0, Updater::<QUERY, _>::new(&mut query)) } {
            Ok(()) => Ok(Some(query)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the memory at an address has a name that says what it is for.
    fn is_special(&self, address: u64) -> Result<bool, Errno> {
        let mut name = [0_u8; NAME_BYTES];
        let (at, name_size) = (name.as_mut_ptr() as u64, NAME_BYTES as u32);
        let asked = self.ask_with(Query { address, name: at, name_size, ..Query::default() })?;
        let length = asked.map_or(0, |query| query.name_size.saturating_sub(1) as usize);
        Ok(is_special(name.get(..length).unwrap_or_default()))
    }

    /// Whether what lies right before an address is mapped, and cannot be touched.
    fn follows_guard(&self, address: u64) -> Result<bool, Errno> {
        let Some(before) = address.checked_sub(1) else { return Ok(false) };
        let before = self.at(before, 0)?;
        Ok(before.is_some_and(|before| before.rights & (READABLE | WRITABLE) == 0))
    }

    fn line(&self, query: &Query) -> Result<Line, Errno> {
        let device = (query.device[0], query.device[1]);
        let mut line = Line {
            start: query.start,
            end: query.end,
            readable: query.rights & READABLE != 0,
            writable: query.rights & WRITABLE != 0,
            executable: query.rights & EXECUTABLE != 0,
            shared: query.rights & SHARED != 0,
            offset: query.offset,
            file: (query.inode != 0).then_some(FileId { device, inode: query.inode }),
            ..Line::default()
        };
        // Of other memory nobody wants to know.
        if line.has_private_memory() {
            line.special = self.is_special(line.start)?;
            line.follows_guard = self.follows_guard(line.start)?;
        }
        Ok(line)
    }

    fn lines(&self, range: &Range<u64>) -> Result<Vec<Line>, Errno> {
        let (mut lines, mut from) = (Vec::new(), range.start);
        while from < range.end {
            let found = self.at(from, OR_NEXT)?.filter(|found| found.start < range.end);
            let Some(query) = found else { break };
            lines.try_reserve(1).map_err(|_| Errno::NOMEM)?;
            lines.push(self.line(&query)?);
            from = query.end;
        }
        Ok(lines)
    }

    fn mapping(&self, address: u64, end: u64) -> Result<Mapping, Errno> {
        let (mut covered, mut result) = (address, Mapping::Writable);
        while covered < end {
            let found = self.at(covered, 0)?.filter(|found| found.rights & READABLE != 0);
            let Some(found) = found else { return Ok(Mapping::Missing) };
            if found.rights & WRITABLE == 0 {
                result = Mapping::ReadOnly;
            }
            covered = found.end;
        }
        Ok(result)
    }
}

/// Reads the list, where the kernel cannot be asked.
fn read(address: u64, end: u64) -> io::Result<Mapping> {
    let mut covered = address;
    let mut result = Mapping::Writable;
    for line in lines()?.skip_while(|line| line.end <= address) {
        if line.start > covered || !line.readable {
            return Ok(Mapping::Missing);
        }
        if !line.writable {
            result = Mapping::ReadOnly;
        }
        covered = line.end;
        if covered >= end {
            return Ok(result);
        }
    }
    Ok(Mapping::Missing)
}

/// As [`Maps::all`], where the kernel cannot be asked.
fn read_all(range: Range<u64>, holds: impl Fn(&Line) -> bool) -> Result<bool, Errno> {
    let List(list) = List::open()?;
    // Longer than any line that counts: those of files may be cut off, for they end with the path.
    let mut text = [0_u8; 8 << 10];
    let (mut length, mut from, mut guard) = (0, range.start, 0);
    loop {
        let read = rustix::io::read(&list, &mut text[length..])?;
        length += read;
        if read == 0 {
            return Ok(false);
        }
        let mut lines = text[..length].split_inclusive(|byte| *byte == b'\n').peekable();
        let mut done = 0;
        while let Some(line) = lines.next_if(|line| line.ends_with(b"\n")) {
            done += line.len();
            let Some(line) = Line::parse(line.trim_ascii_end()) else { continue };
            let line = line.behind(&mut guard);
            if line.end <= from {
                continue;
            }
            if line.start > from || !holds(&line) {
                return Ok(false);
            }
            from = line.end;
            if from >= range.end {
                return Ok(true);
            }
        }
        text.copy_within(done..length, 0);
        length -= done;
    }
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;

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

    /// Where the kernel cannot be asked, too.
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
        assert_eq!(read(page as u64, end).unwrap(), Mapping::ReadOnly);
        assert_eq!(read_all(page as u64..end, |line| line.readable), Ok(true));
        // SAFETY: this test's own.
        unsafe { libc::munmap(page, length) };
    }

    /// Over ranges from each mapping of this process into the next ones.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such list")]
    fn asking_and_reading_say_the_same() {
        const PAGE: u64 = 4096;
        let list = List::open().unwrap();
        if list.mapping(4096, 4106) == Err(Errno::NOTTY) {
            return println!("skipped: an older kernel cannot be asked");
        }
        let all: Vec<_> = lines().unwrap().filter(|line| (line.end - 1) >> 48 == 0).collect();
        let asked = |range: &Range<u64>| -> Vec<_> {
            let lines = list.lines(range).unwrap().into_iter();
            lines.map(|line| if line.has_private_memory() { line } else { plain(line) }).collect()
        };
        let read_lines = |range: &Range<u64>| -> Vec<_> {
            let of = |line: &Line| line.start < range.end && range.start < line.end;
            let lines = lines().unwrap().filter(of);
            lines.map(|line| if line.has_private_memory() { line } else { plain(line) }).collect()
        };
        // Those at the ends grow and shrink; and others may be made meanwhile, by another test.
        let maps = Maps::default();
        let all_are = |from: u64, to: u64, holds: fn(&Line) -> bool| {
            maps.all(from..to, holds) == read_all(from..to, holds).unwrap()
        };
        let agree = |from: u64, to: u64| {
            (0..100).any(|_| {
                list.mapping(from, to).unwrap() == read(from, to).unwrap()
                    && asked(&(from..to)) == read_lines(&(from..to))
                    && all_are(from, to, |line| line.readable)
                    && all_are(from, to, Line::is_private_memory)
            })
        };
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
        assert!(all.iter().any(|line| line.special && line.has_private_memory()), "the stack");
    }

    /// Without what is told of private memory only.
    fn plain(line: Line) -> Line {
        Line { special: false, follows_guard: false, ..line }
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
