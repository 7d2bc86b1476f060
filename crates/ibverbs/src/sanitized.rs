//! Reports of every verb to the program's sanitizer: its begin, its end, and the memory that it has written. What a verb
//! puts in order between threads of the program, [`tells`] and [`is_told`] say by an address that stands for it.

use transom_system::sanitizers::{self, Inside};
pub(crate) use transom_system::sanitizers::{is_told, polled as event_taken, tells};

/// A running verb that is neither a post nor a poll. It ends when this is dropped.
pub(crate) struct Verb {
    _inside: Inside,
    ends: bool,
}

/// A verb of this name begins. The first one looks for sanitizers.
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

/// A verb has filled a value of the program.
pub(crate) fn has_filled<T>(filled: *const T) {
    has_filled_bytes(filled.cast(), size_of::<T>());
}

/// A verb has filled `length` bytes of the program.
pub(crate) fn has_filled_bytes(filled: *const u8, length: usize) {
    if sanitizers::are_told() && !filled.is_null() {
        sanitizers::have_written(filled as u64, length as u64);
    }
}
