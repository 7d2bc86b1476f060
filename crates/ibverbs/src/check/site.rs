//! Who called: return addresses, and the files that they are in.
//!
//! The unwinder is that of the C++ runtime (libgcc), which Rust's own panics use: it is there, and kept. Addresses
//! are all that is taken while the program runs.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::size_of;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use transom_check::Call;
use transom_check::record::Frame;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// `_URC_NO_REASON` goes on, and `_URC_END_OF_STACK` ends the walk.
const GO_ON: c_int = 0;
const ENOUGH: c_int = 5;

thread_local! {
    static THREAD: u32 = thread();
}

/// This thread, as the system numbers it.
fn thread() -> u32 {
    // SAFETY: this only asks for a number.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// This call, by its thread alone.
pub(super) fn thread_only() -> Call {
    // A thread that ends has none any more.
    Call::by(THREAD.try_with(|thread| *thread).unwrap_or_else(|_| thread()))
}

/// This call: who calls this library, from where.
#[inline(never)]
pub(super) fn call() -> Call {
    extern "C" fn each(context: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: the walk below, which waits for this.
        let walk = unsafe { &mut *walk.cast::<Walk>() };
        // SAFETY: the unwinder's own.
        let address = unsafe { _Unwind_GetIP(context) };
        if address == 0 {
            return ENOUGH;
        }
        if walk.call.frames().is_empty() && walk.own.contains(&address) {
            return GO_ON;
        }
        if walk.call.push(address) { GO_ON } else { ENOUGH }
    }

    let mut walk = Walk { call: thread_only(), own: own_code().clone() };
    // SAFETY: a function that takes what it is given, a `Walk`.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.call
}

struct Walk {
    call: Call,
    own: Range<usize>,
}

/// Where this library's code is; nothing where it is part of the program.
fn own_code() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| {
        let module = module_of(own_code as *const () as usize);
        module.filter(|module| !module.path.is_empty()).map_or(0..0, |module| module.code)
    })
}

/// A loaded file.
struct Module {
    /// Empty for the program itself.
    path: String,
    /// What is added to the file's own addresses.
    bias: usize,
    code: Range<usize>,
}

/// The loaded file that an address is in.
fn module_of(address: usize) -> Option<Module> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the search below, which waits for this; the loader's own description.
        let (search, info) = unsafe { (&mut *search.cast::<Search>(), &*info) };
        // SAFETY: so many of them.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let bias = info.dlpi_addr as usize;
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let ranges = loaded.map(|header| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        });
        let whole = ranges.reduce(|one, two| one.start.min(two.start)..one.end.max(two.end));
        let Some(code) = whole.filter(|whole| whole.contains(&search.address)) else { return 0 };
        // SAFETY: a string of the loader's, or null.
        let name = unsafe { info.dlpi_name.as_ref().map(|name| CStr::from_ptr(name)) };
        let path = name.unwrap_or_default().to_string_lossy().into_owned();
        search.found = Some(Module { path, bias, code });
        1
    }

    struct Search {
        address: usize,
        found: Option<Module>,
    }
    let mut search = Search { address, found: None };
    // SAFETY: a function that takes what it is given, a `Search`.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
    search.found
}

/// Where a return address is, as the command can look it up.
pub(super) fn frame(address: usize) -> Frame {
    let Some(module) = module_of(address) else {
        return Frame { module: String::new(), offset: address as u64 };
    };
    let offset = address.wrapping_sub(module.bias) as u64;
    let module = if module.path.is_empty() { program() } else { absolute(module.path) };
    Frame { module, offset }
}

/// The path of the program.
pub(super) fn program() -> String {
    let path = std::fs::read_link("/proc/self/exe");
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
