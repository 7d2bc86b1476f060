//! Reading of data that other processes and the kernel write, for `transom-inputs`. Only in builds with debug
//! assertions.

use crate::addresses;
use crate::memory::parse_maps_line;
use crate::registry::connections;
use crate::registry::record::RECORD_WORDS;
use crate::registry::{CallRecord, RefusalRecord};

/// A record of the registry, and its sentence in `transom explain`.
pub fn registry_record(words: &[u64; RECORD_WORDS]) {
    if let Some(record) = RefusalRecord::from_words(words) {
        assert!(!record.to_string().is_empty());
        assert_eq!(RefusalRecord::from_words(&record.to_words()), Some(record));
    }
    if let Some(record) = CallRecord::from_words(words) {
        assert!(!record.call.to_string().is_empty());
        assert_eq!(CallRecord::from_words(&record.to_words()), Some(record));
    }
}

/// A line of `/proc/self/maps`.
pub fn maps_line(line: &[u8]) {
    parse_maps_line(line);
}

/// An entry of the file of ports, written by another process: a port, a connection, or neither.
pub fn ports_entry(words: &[u64; 8]) {
    connections::fuzz(words);
}

/// The kernel's answer about interfaces and addresses.
pub fn netlink_answer(part: &[u8]) {
    addresses::fuzz_netlink(part);
}
