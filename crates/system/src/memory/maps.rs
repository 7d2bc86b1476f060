//! The kernel's list of this process's mappings.

use std::io::{self, BufRead};

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

/// Looks up a range in the list (rules MR-20, MR-21).
pub fn mapping(address: u64, length: u64) -> io::Result<Mapping> {
    let end = address + length;
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
}
