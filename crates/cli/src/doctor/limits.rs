//! Limits of a process: file descriptors, memory, file sizes, and room for the registry.

use super::{Finding, State};
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use std::path::Path;
use transom_system::memory::FILE_BYTES;

/// Enough descriptors for a program with some dozen peers.
const DESCRIPTORS: u64 = 1024;

/// The largest file that the device makes, in bytes: shared memory, most of which is holes.
const FILE: u64 = FILE_BYTES;

/// More bytes than the registry ever takes.
const ROOM: u64 = 8 << 20;

pub(super) fn findings() -> Vec<Finding> {
    let limit = |resource| getrlimit(resource).current;
    let mut findings =
        vec![descriptors(limit(Resource::Nofile)), locked_memory(limit(Resource::Memlock))];
    findings.extend(address_space(limit(Resource::As)));
    findings.extend(file_size(limit(Resource::Fsize)));
    findings
}

/// `None` means no limit, here and below.
fn descriptors(limit: Option<u64>) -> Finding {
    match limit.filter(|limit| *limit < DESCRIPTORS) {
        None => Finding::new(State::Ok, "descriptors", "a process may have many descriptors"),
        Some(limit) => {
            let text =
                format!("a process may have {limit} descriptors, and needs some for each peer");
            Finding::new(State::Note, "descriptors", text).fix(format!("`ulimit -n {DESCRIPTORS}`"))
        }
    }
}

fn locked_memory(limit: Option<u64>) -> Finding {
    match limit {
        None => Finding::new(State::Ok, "locked_memory", "a process may lock any amount of memory"),
        Some(limit) => {
            let text = format!(
                "a process may lock {} KiB of memory (`ulimit -l`); Transom locks none, but with an adapter \
                 your programs can register no more than that",
                limit >> 10
            );
            Finding::new(State::Note, "locked_memory", text)
        }
    }
}

fn address_space(limit: Option<u64>) -> Option<Finding> {
    let text = format!(
        "a process may have {} MiB of address space (`ulimit -v`): there is no shared memory, which needs \
         {} MiB for each peer; a device needs some 300 MiB and as much for each peer",
        limit? >> 20,
        FILE_BYTES >> 20
    );
    Some(Finding::new(State::Note, "address_space", text).fix("`ulimit -v unlimited`"))
}

fn file_size(limit: Option<u64>) -> Option<Finding> {
    let limit = limit.filter(|limit| *limit < FILE)?;
    let text = format!(
        "files may be at most {} KiB long, and shared memory is a file of {} KiB: there is no shared \
         memory",
        limit >> 10,
        FILE >> 10
    );
    Some(Finding::new(State::Note, "file_size", text).fix("`ulimit -f unlimited`"))
}

/// Checks the room in the directory where processes find each other.
pub(super) fn room(directory: &Path) -> Option<Finding> {
    let system = statvfs(directory).ok()?;
    let free = system.f_bavail * system.f_frsize;
    let place = directory.parent().unwrap_or(directory).display();
    let text =
        format!("only {} KiB are free in {place}, and each process needs some of it", free >> 10);
    let fix = "make it larger (`docker run --shm-size`), or remove files there";
    (free < ROOM).then(|| Finding::new(State::Note, "room", text).fix(fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_in_nobody_s_way_are_not_told() {
        assert_eq!(descriptors(None).state, State::Ok);
        assert_eq!(locked_memory(None).state, State::Ok);
        assert!(address_space(None).is_none() && file_size(None).is_none());
        assert!(file_size(Some(FILE)).is_none());
    }

    #[test]
    fn limits_are_told_with_what_they_limit() {
        for (finding, words) in [
            (descriptors(Some(256)), "256 descriptors"),
            (locked_memory(Some(8 << 20)), "8192 KiB"),
            (address_space(Some(512 << 20)).unwrap(), "512 MiB"),
            (file_size(Some(1 << 20)).unwrap(), "1024 KiB"),
        ] {
            assert!(finding.state == State::Note && finding.text.contains(words), "{finding:?}");
        }
    }
}
