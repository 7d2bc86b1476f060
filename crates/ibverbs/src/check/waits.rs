//! The system call that a thread sleeps in, as the system shows it: `poll`, `select` or `epoll_wait`. Such calls do not
//! go through this library.

use std::fs;

use super::Checker;

/// A sleep that ends when a descriptor is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The name of the function.
    pub(super) function: &'static str,
    /// The descriptors that it waits to read from.
    pub(super) readable: Vec<i32>,
    /// It waits for something else too, or has a time-out.
    pub(super) has_others: bool,
    /// The thread's count of context switches. The same count means the same sleep.
    switches: u64,
}

impl Checker {
    /// The call that a thread sleeps in.
    pub(super) fn wait_of(&self, thread: u32) -> Option<Wait> {
        let before = switches(thread)?;
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
        let wait = self.wait_in(thread, &Calling::parse(&text)?)?;
        // Something may have woken it meanwhile.
        (switches(thread)? == before).then_some(Wait { switches: before, ..wait })
    }

    fn wait_in(&self, thread: u32, calling: &Calling) -> Option<Wait> {
        let [first, second, third, fourth, fifth, sixth] = calling.arguments;
        // A mask of signals is given by someone who waits for a signal too.
        let has_mask = match calling.number {
            libc::SYS_ppoll => fourth != 0,
            libc::SYS_pselect6 => sixth != 0 && self.points_at(sixth)?,
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => fifth != 0,
            _ => false,
        };
        let (function, asked, lasts) = match calling.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => ("poll", self.polled_for(first, second)?, is_negative(third)),
            libc::SYS_ppoll => ("poll", self.polled_for(first, second)?, third == 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                ("select", self.selected(first, second, [third, fourth])?, fifth == 0)
            }
            libc::SYS_pselect6 => {
                ("select", self.selected(first, second, [third, fourth])?, fifth == 0)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                ("epoll_wait", registered_in(thread, first)?, is_negative(fourth))
            }
            libc::SYS_epoll_pwait => {
                ("epoll_wait", registered_in(thread, first)?, is_negative(fourth))
            }
            libc::SYS_epoll_pwait2 => ("epoll_wait", registered_in(thread, first)?, fourth == 0),
            _ => return None,
        };
        let Asked { readable, has_others } = asked;
        let has_others = has_others || !lasts || has_mask;
        Some(Wait { function, readable, has_others, switches: 0 })
    }

    /// Whether there is a pointer at this address, and not null.
    fn points_at(&self, address: u64) -> Option<bool> {
        let mut pointer = [0; 8];
        self.read(address, &mut pointer).then_some(pointer != [0; 8])
    }

    /// Reads the array of a `poll`.
    fn polled_for(&self, at: u64, count: u64) -> Option<Asked> {
        const SIZE: usize = size_of::<libc::pollfd>();
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST)?;
        let mut bytes = vec![0; count * SIZE];
        if !self.read(at, &mut bytes) {
            return None;
        }
        let entries = bytes.chunks_exact(SIZE).map(|it| {
            let events = i16::from_ne_bytes([it[4], it[5]]);
            (i32::from_ne_bytes([it[0], it[1], it[2], it[3]]), u32::from(events as u16))
        });
        Some(Asked::of(entries.filter(|(descriptor, _)| *descriptor >= 0)))
    }

    /// Reads the sets of a `select`.
    fn selected(&self, count: u64, readable: u64, others: [u64; 2]) -> Option<Asked> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST)?;
        let set = |at: u64| {
            let mut bits = vec![0; count.div_ceil(64) * 8];
            if at != 0 && !self.read(at, &mut bits) {
                return None;
            }
            let is_in = |at: &usize| bits[at / 8] >> (at % 8) & 1 != 0;
            Some((0..count).filter(is_in).map(|it| it as i32).collect::<Vec<_>>())
        };
        let [writable, exceptional] = others.map(set);
        let has_others = !writable?.is_empty() || !exceptional?.is_empty();
        Some(Asked { readable: set(readable)?, has_others })
    }
}

/// Calls with more descriptors than this are not looked at.
const MOST: usize = 1 << 16;

/// The descriptors that a thread waits for.
#[derive(Default)]
struct Asked {
    readable: Vec<i32>,
    has_others: bool,
}

impl Asked {
    /// From descriptors and their events. `poll` and `epoll` have the same numbers for the events.
    fn of(entries: impl Iterator<Item = (i32, u32)>) -> Self {
        let mut asked = Self::default();
        for (descriptor, events) in entries {
            match events & libc::EPOLLIN as u32 {
                0 => asked.has_others = true,
                _ => asked.readable.push(descriptor),
            }
        }
        asked
    }
}

/// The system call that a thread is in.
#[derive(Debug, PartialEq, Eq)]
struct Calling {
    number: i64,
    arguments: [u64; 6],
}

impl Calling {
    /// Reads the system's text: the number, the arguments and two addresses. A thread that is in no call has another
    /// text.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Self { number, arguments })
    }
}

/// Whether an argument is a negative `int`: such a time-out never ends.
const fn is_negative(argument: u64) -> bool {
    (argument as i32) < 0
}

/// The descriptors that are registered in an epoll descriptor of a thread.
fn registered_in(thread: u32, descriptor: u64) -> Option<Asked> {
    let descriptor = descriptor as i32;
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/fdinfo/{descriptor}")).ok()?;
    let mut entries = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("tfd:")) {
        let mut words = line.split_whitespace();
        let (descriptor, name, events) = (words.next()?, words.next()?, words.next()?);
        let events = u32::from_str_radix(events, 16).ok().filter(|_| name == "events:")?;
        entries.push((descriptor.parse().ok()?, events));
    }
    Some(Asked::of(entries.into_iter()))
}

/// The number of a thread's context switches.
fn switches(thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let counts = text.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
    });
    let counts: Vec<_> = counts.collect();
    (counts.len() == 2).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_the_system_shows_it() {
        let text = "7 0x7ffd 0x2 0xffffffff 0x8 0x0 0x11 0x7ffd00 0x7f00\n";
        let arguments = [0x7ffd, 2, 0xffff_ffff, 8, 0, 0x11];
        assert_eq!(Calling::parse(text), Some(Calling { number: 7, arguments }));
        assert!(is_negative(arguments[2]) && !is_negative(arguments[1]));
        for other in ["running\n", "-1 0x7ffd 0x7f00\n", ""] {
            assert_eq!(Calling::parse(other), None);
        }
    }
}
