//! Who called: return addresses, and the files that they are in.
//!
//! The unwinder is that of the C++ runtime (libgcc), which Rust's own panics use: it is there, and kept. Addresses
//! are all that is taken while the program runs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use arrayvec::ArrayVec;
use transom_check::Call;
use transom_check::call::DEPTH;
use transom_check::record::Frame;
use transom_interpose::shared_memory::SERVE;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
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
///
/// To walk the stack takes microseconds, and programs post in loops. So a thread keeps its last walks, and one whose
/// return addresses are all where they were is the answer.
#[inline(never)]
pub(super) fn call() -> Call {
    let here = stack_pointer();
    let known = |walks: &RefCell<Walks>| {
        let mut walks = walks.borrow_mut();
        if let Some(walk) = walks.iter().find(|walk| walk.stands(here)) {
            return walk.call;
        }
        let walk = Walk::now(here);
        if walk.is_kept {
            if walks.len() == KEPT {
                walks.pop_front();
            }
            walks.push_back(walk.clone());
        }
        walk.call
    };
    // A thread that ends has none any more.
    WALKS.try_with(known).unwrap_or_else(|_| Walk::now(here).call)
}

/// The files of functions that stand before those that the program calls: they are no callers.
static PASSED_OVER: OnceLock<[Range<usize>; 2]> = OnceLock::new();

/// Passes over the library of this function from now on, and over the one that shares allocations.
pub(super) fn pass_over(function: usize) {
    // SAFETY: a name that ends in zero.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SERVE.as_ptr()) };
    let _ = PASSED_OVER.set([function, malloc.addr()].map(library_of));
}

/// This call, of a function that was passed over; none if it is this library that called that.
pub(super) fn call_of_program() -> Option<Call> {
    let call = call();
    (!call.frames().is_empty()).then_some(call)
}

/// How many walks a thread keeps.
const KEPT: usize = 8;
type Walks = VecDeque<Walk>;

thread_local! {
    static WALKS: RefCell<Walks> = const { RefCell::new(VecDeque::new()) };
}

/// A walk up the stack.
#[derive(Clone)]
struct Walk {
    call: Call,
    /// The stack pointer of [`call`].
    from: usize,
    /// Where return addresses are on the stack, the innermost first.
    places: ArrayVec<(usize, usize), MOST>,
    /// Each was where the architecture has it.
    is_kept: bool,
    own: [Range<usize>; 2],
    /// A function was passed over.
    has_passed: bool,
}

/// Frames of this library, and those that are kept of the program.
const MOST: usize = DEPTH + 20;

impl Walk {
    fn now(from: usize) -> Self {
        let (call, own) = (thread_only(), own_code());
        let mut walk =
            Self { call, from, places: ArrayVec::new(), is_kept: true, own, has_passed: false };
        // SAFETY: a function that takes what it is given, a `Walk`.
        unsafe { _Unwind_Backtrace(Self::each, (&raw mut walk).cast()) };
        walk
    }

    extern "C" fn each(context: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: the walk of `now`, which waits for this.
        let walk = unsafe { &mut *walk.cast::<Self>() };
        // SAFETY: the unwinder's own.
        let (address, above) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
        if address == 0 {
            return ENOUGH;
        }
        // The innermost frame is that of `call`, which nothing returns into.
        if above > walk.from {
            walk.keep(above.wrapping_sub(size_of::<usize>()), address);
        }
        if walk.call.frames().is_empty() {
            if PASSED_OVER.get().into_iter().flatten().any(|code| code.contains(&address)) {
                walk.has_passed = true;
                return GO_ON;
            }
            if walk.own.iter().any(|own| own.contains(&address)) {
                return if walk.has_passed { ENOUGH } else { GO_ON };
            }
        }
        if walk.call.push(address) { GO_ON } else { ENOUGH }
    }

    /// Keeps where a return address is: below the caller's part of the stack, where the `call` instruction of x86-64
    /// puts it. Elsewhere it may be in a register.
    fn keep(&mut self, place: usize, address: usize) {
        let is_there = cfg!(target_arch = "x86_64")
            && place.is_multiple_of(align_of::<usize>())
            // SAFETY: the unwinder has just read this part of the stack, or found it in a register's place below.
            && unsafe { read(place) } == address;
        self.is_kept &= is_there && self.places.try_push((place, address)).is_ok();
    }

    /// Whether the stack is as it was at this walk, as seen from here.
    fn stands(&self, from: usize) -> bool {
        // Each place is looked at only if the one below it still returns into the same function, whose part of the
        // stack is therefore there.
        // SAFETY: as just said.
        let is_there = |(place, address): &(usize, usize)| unsafe { read(*place) } == *address;
        self.from == from && self.places.iter().all(is_there)
    }
}

/// A word of the stack.
///
/// # Safety
/// It is aligned, and mapped.
unsafe fn read(place: usize) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { std::ptr::with_exposed_provenance::<usize>(place).read_volatile() }
}

/// Where the stack of the caller ends.
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it only reads a register.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it only reads a register.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}

/// Where the code of this library is, and that of librdmacm.
fn own_code() -> [Range<usize>; 2] {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    let own = OWN.get_or_init(|| library_of(own_code as *const () as usize));
    [own.clone(), LIBRDMACM.get().cloned().unwrap_or(0..0)]
}

static LIBRDMACM: OnceLock<Range<usize>> = OnceLock::new();

/// Whoever has this code is librdmacm.
pub(crate) fn is_ours(code: *const c_void) {
    LIBRDMACM.get_or_init(|| library_of(code.addr()));
}

/// Where the code of a library is; nothing where it is part of the program.
fn library_of(address: usize) -> Range<usize> {
    let module = module_of(address);
    module.filter(|module| !module.path.is_empty()).map_or(0..0, |module| module.code)
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

    #[inline(never)]
    fn one() -> Call {
        std::hint::black_box(call())
    }

    #[inline(never)]
    fn other() -> Call {
        std::hint::black_box(call())
    }

    #[test]
    fn a_walk_that_is_kept_is_that_of_its_callers() {
        for _ in 0..3 {
            let by: Vec<_> = [one, other, one].map(|by| by()).into();
            assert_eq!(by[0].frames()[1..3], by[2].frames()[1..3]);
            assert_ne!(by[0].frames()[..3], by[1].frames()[..3]);
        }
        let again: Vec<_> = (0..2).map(|_| one()).collect();
        assert_eq!(again[0], again[1]);
        let kept = WALKS.with_borrow(VecDeque::len);
        assert_eq!(kept > 0, cfg!(target_arch = "x86_64"), "{kept}");
    }
}
