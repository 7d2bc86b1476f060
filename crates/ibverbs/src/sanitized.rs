//! What a sanitizer of the program's is told of any verb: that it begins and ends, and what it has written.

use transom_system::sanitizers::{self, Inside};

/// A verb that is neither a post nor a poll, until this goes.
pub(crate) struct Verb {
    _inside: Inside,
    ends: bool,
}

/// A verb of this name begins; the first that does looks for sanitizers.
pub(crate) fn verb(name: &'static str) -> Option<Verb> {
    const ENDING: [&str; 5] =
        ["ibv_destroy_", "ibv_dereg_", "ibv_dealloc_", "ibv_close_", "ibv_modify_qp"];
    sanitizers::begin();
    let _inside = sanitizers::inside()?;
    sanitizers::released();
    Some(Verb { _inside, ends: ENDING.iter().any(|it| name.starts_with(it)) })
}

impl Drop for Verb {
    fn drop(&mut self) {
        if self.ends {
            sanitizers::acquired_all();
        }
    }
}

/// A verb has filled something of the program's.
pub(crate) fn has_filled<T>(filled: *const T) {
    has_filled_bytes(filled.cast(), size_of::<T>());
}

/// The same for so many bytes.
pub(crate) fn has_filled_bytes(filled: *const u8, length: usize) {
    if sanitizers::are_told() && !filled.is_null() {
        sanitizers::have_written(filled as u64, length as u64);
    }
}
