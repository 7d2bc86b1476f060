//! How much of a process's registered memory is shared, and advice to share the rest.

use crate::lines::Exact;
use serde_json::{Value, json};
use transom_system::memory::Sharing;
use transom_system::registered::RegisteredMemory;
use transom_system::registry::Process;
use transom_system::segment::Segment;

/// Advice to share private memory.
fn advice(sharing: Option<Sharing>) -> &'static str {
    match sharing {
        Some(Sharing::Allocations) => {
            "to share it, allocate it aligned to a page, with the device open"
        }
        Some(Sharing::Buffers) => {
            "to share it, start the program with `transom run`, and allocate it aligned to a page"
        }
        Some(Sharing::OtherAllocator) => "the program's own allocator keeps it from being shared",
        Some(Sharing::Sanitizer) => "a sanitizer keeps it from being shared",
        None => {
            "TRANSOM_MEMORY=private, valgrind, `ulimit -v`, or vm.overcommit_memory=2 keeps all memory from being \
             shared"
        }
    }
}

/// A number of bytes, for people.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = count as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Lines for the list of processes.
pub(crate) fn lines(process: &Process) -> Vec<String> {
    let Some(RegisteredMemory { shared, private, sharing }) = Segment::registered_by(process)
    else {
        return Vec::new();
    };
    if shared == 0 && private == 0 {
        return Vec::new();
    }
    let all = format!("registered: {} shared, {} private", bytes(shared), bytes(private));
    let advice = (private > 0).then(|| format!("  {}", advice(sharing)));
    [all].into_iter().chain(advice).collect()
}

/// For programs.
pub(crate) fn json(process: &Process) -> Value {
    Segment::registered_by(process).map_or(Value::Null, |it| {
        json!({
            "shared_bytes": Exact(it.shared),
            "private_bytes": Exact(it.private),
            "fix": (it.private > 0).then(|| advice(it.sharing)),
        })
    })
}

/// How much of a process's memory is private, with advice. `None` if nothing is private.
pub(crate) fn how_to_share(process: &Process) -> Option<(String, &'static str)> {
    let found = Segment::registered_by(process).filter(|it| it.private > 0)?;
    let (private, all) = (bytes(found.private), bytes(found.private + found.shared));
    Some((format!("{private} of {all} registered is private"), advice(found.sharing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_as_people_say_them() {
        for (count, said) in
            [(0, "0 bytes"), (4096, "4 KiB"), (1536, "1.5 KiB"), (3 << 30, "3 GiB")]
        {
            assert_eq!(bytes(count), said);
        }
    }
}
