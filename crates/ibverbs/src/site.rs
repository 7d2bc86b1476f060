//! Calls of the program, as the ledger has them: who called, and in which file each caller is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use transom_check::Call;
use transom_check::record::Frame;
use transom_system::callers::{callers, module_of};

thread_local! {
    static THREAD: u32 = thread();
}

/// This thread, as the system numbers it.
fn thread() -> u32 {
    // SAFETY: this only asks for a number.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// This call, by its thread alone.
pub(crate) fn thread_only() -> Call {
    // A thread that ends has no thread-local variables any more.
    Call::by(THREAD.try_with(|thread| *thread).unwrap_or_else(|_| thread()))
}

/// This call: who calls this library, from where.
pub(crate) fn call() -> Call {
    Call::of(thread_only().thread, callers().padded())
}

/// This call, of a function that was passed over; none if it is this library that called that.
pub(crate) fn call_of_program() -> Option<Call> {
    let call = call();
    (!call.frames().is_empty()).then_some(call)
}

/// Where a return address is, as the command can look it up.
pub(crate) fn frame(address: usize) -> Frame {
    let Some(module) = module_of(address) else {
        return Frame { module: String::new(), offset: address as u64 };
    };
    let offset = address.wrapping_sub(module.bias) as u64;
    let module = if module.path.is_empty() { program() } else { absolute(module.path) };
    Frame { module, offset }
}

/// The path of the program.
pub(crate) fn program() -> String {
    let path = std::fs::read_link("/proc/thread-self/exe");
    path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The loader knows a library by the path that it was found by.
fn absolute(path: String) -> String {
    let whole = std::fs::canonicalize(OsStr::from_bytes(path.as_bytes()));
    whole.map(|whole| whole.to_string_lossy().into_owned()).unwrap_or(path)
}

const _: () = assert!(size_of::<usize>() == 8, "addresses are written as 64 bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_callers_and_they_are_in_the_program() {
        let call = call();
        assert!(call.frames().len() > 2);
        let frame = frame(call.frames()[0]);
        assert_eq!(frame.module, program());
    }
}
