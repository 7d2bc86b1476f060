//! The kernel's list of this process's mappings.

use std::io::{self, BufRead};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Updater};
use rustix::mm::ProtFlags;

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

/// A line of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) start: u64,
    pub(super) end: u64,
    readable: bool,
    writable: bool,
    shared: bool,
    pub(super) offset: u64,
    pub(super) inode: u64,
    /// It has a name that says what it is for, and that is neither the heap nor the program's choice.
    special: bool,
    /// What lies right before it cannot be touched: so do stacks begin.
    pub(super) follows_guard: bool,
}

impl Line {
    /// What the program may do there.
    pub(super) fn rights(&self) -> ProtFlags {
        let read = if self.readable { ProtFlags::READ } else { ProtFlags::empty() };
        if self.writable { read | ProtFlags::WRITE } else { read }
    }

    /// Whether it is ordinary private memory, which the program may read and write.
    pub(super) fn is_private_memory(&self) -> bool {
        self.readable && self.writable && !self.shared && self.inode == 0 && !self.special
    }

    /// `start-end rwxp offset device inode  name`
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let mut words = text.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let rights = words.next()?.as_bytes();
        let offset = number(words.next()?)?;
        let _device = words.next()?;
        let inode = words.next()?.parse().ok()?;
        let name = words.next().unwrap_or_default().trim_start();
        Some(Self {
            start,
            end,
            readable: *rights.first()? == b'r',
            writable: *rights.get(1)? == b'w',
            shared: *rights.get(3)? == b's',
            offset,
            inode,
            special: !(name.is_empty() || name == "[heap]" || name.starts_with("[anon:")),
            follows_guard: false,
        })
    }
}

/// The lines, in the order of their addresses.
pub(super) fn lines() -> io::Result<impl Iterator<Item = Line>> {
    let maps = io::BufReader::with_capacity(64 << 10, std::fs::File::open("/proc/self/maps")?);
    let mut guard = 0;
    let lines = maps.split(b'\n').map_while(Result::ok);
    Ok(lines.filter_map(|line| Line::parse(&line)).map(move |mut line| {
        line.follows_guard = guard == line.start;
        if !line.readable && !line.writable {
            guard = line.end;
        }
        line
    }))
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

/// Looks up a range in the list (rules MR-20, MR-21).
pub fn mapping(address: u64, length: u64) -> io::Result<Mapping> {
    let end = address + length;
    match ask(address, end) {
        Ok(mapping) => Ok(mapping),
        Err(_) => read(address, end),
    }
}

/// Asks for the mappings of a range alone: the list of a large program is long.
fn ask(address: u64, end: u64) -> Result<Mapping, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let list = rustix::fs::open("/proc/self/maps", flags, Mode::empty())?;
    let (mut covered, mut result) = (address, Mapping::Writable);
    while covered < end {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, address: covered, ..Query::default() };
        // SAFETY: the struct is the one that the command takes, and names no memory for more.
        match unsafe { ioctl::ioctl(&list, Updater::<QUERY, _>::new(&mut query)) } {
            Err(Errno::NOENT) => return Ok(Mapping::Missing),
            asked => asked?,
        }
        if query.rights & READABLE == 0 {
            return Ok(Mapping::Missing);
        }
        if query.rights & WRITABLE == 0 {
            result = Mapping::ReadOnly;
        }
        covered = query.end;
    }
    Ok(result)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_seen_with_their_rights() {
        let writable = vec![0_u8; 100_000];
        let address = writable.as_ptr() as u64;
        assert_eq!(mapping(address, 100_000).unwrap(), Mapping::Writable);
        let code = mappings_are_seen_with_their_rights as fn() as usize as u64;
        assert_eq!(mapping(code, 1).unwrap(), Mapping::ReadOnly);
        assert_eq!(mapping(4096, 10).unwrap(), Mapping::Missing);
    }

    /// Over ranges from each mapping of this process into the next ones.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such list")]
    fn asking_and_reading_say_the_same() {
        const PAGE: u64 = 4096;
        // An older kernel cannot be asked.
        if ask(4096, 4106) == Err(Errno::NOTTY) {
            return;
        }
        let lines: Vec<_> = lines().unwrap().filter(|line| line.end >> 47 == 0).collect();
        // Those at the ends grow and shrink; and others may be made meanwhile, by another test.
        let agree = |from: u64, to: u64| {
            (0..100).any(|_| ask(from, to).unwrap() == read(from, to).unwrap())
        };
        for pair in lines.windows(3) {
            let [first, _, last] = pair else { unreachable!() };
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
}
