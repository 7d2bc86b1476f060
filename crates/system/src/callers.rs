//! Who called: the return addresses that led into this library.
//!
//! The unwinder is that of the C++ runtime (libgcc). Rust's own panics use it too, so it is there and maintained. Only
//! addresses are taken here. Names are looked up later, in another process or by a sanitizer's runtime.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ops::{Deref, Range};
use std::sync::OnceLock;

use arrayvec::ArrayVec;
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

/// The most callers that are kept of a call.
pub const DEPTH: usize = 12;

/// The return addresses of a call, innermost first. It has a fixed size, and is copied at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// Zeros behind the last one.
    all: [usize; DEPTH],
    count: usize,
}

impl Callers {
    fn push(&mut self, address: usize) {
        if let Some(place) = self.all.get_mut(self.count) {
            (*place, self.count) = (address, self.count + 1);
        }
    }

    fn is_full(&self) -> bool {
        self.count == DEPTH
    }

    /// All of them, and zeros behind them, with their number.
    pub fn padded(self) -> ([usize; DEPTH], usize) {
        (self.all, self.count)
    }
}

impl Deref for Callers {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        &self.all[..self.count]
    }
}

/// The functions of the program that have called this library now.
///
/// To walk the stack takes microseconds, and programs post in loops. So each thread keeps its last walks. If all return
/// addresses of one are still in their places, it is the answer.
#[inline(never)]
pub fn callers() -> Callers {
    let here = stack_pointer();
    let known = |walks: &RefCell<Walks>| {
        // A signal may have come while this thread had them.
        let Ok(mut walks) = walks.try_borrow_mut() else { return Walk::now(here).callers };
        if let Some(walk) = walks.iter().find(|walk| walk.stands(here)) {
            return walk.callers;
        }
        let walk = Walk::now(here);
        if walk.is_kept {
            if walks.len() == KEPT {
                walks.pop_front();
            }
            walks.push_back(walk.clone());
        }
        walk.callers
    };
    // A thread that ends has no walks any more.
    WALKS.try_with(known).unwrap_or_else(|_| Walk::now(here).callers)
}

/// The files whose functions stand before those that the program calls. These functions are no callers.
static PASSED_OVER: OnceLock<[Range<usize>; 2]> = OnceLock::new();

/// From now on the library of this function is no caller, nor is the one that shares allocations.
pub fn pass_over(function: usize) {
    // SAFETY: a name that ends in zero.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SERVE.as_ptr()) };
    let _ = PASSED_OVER.set([function, malloc.addr()].map(library_of));
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
    callers: Callers,
    /// The stack pointer of [`callers`].
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
        let (callers, places, own) = (Callers::default(), ArrayVec::new(), own_code());
        let mut walk = Self { callers, from, places, is_kept: true, own, has_passed: false };
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
        // The innermost frame is that of `callers`, which nothing returns into.
        if above > walk.from {
            walk.keep(above.wrapping_sub(size_of::<usize>()), address);
        }
        if walk.callers.is_empty() {
            if PASSED_OVER.get().into_iter().flatten().any(|code| code.contains(&address)) {
                walk.has_passed = true;
                return GO_ON;
            }
            if walk.own.iter().any(|own| own.contains(&address)) {
                return if walk.has_passed { ENOUGH } else { GO_ON };
            }
        }
        walk.callers.push(address);
        if walk.callers.is_full() { ENOUGH } else { GO_ON }
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

/// The library that has this code is librdmacm, and none of its functions is a caller.
pub fn is_ours(code: *const c_void) {
    LIBRDMACM.get_or_init(|| library_of(code.addr()));
}

/// Where the code of a library is; nothing where it is part of the program.
fn library_of(address: usize) -> Range<usize> {
    let module = module_of(address);
    module.filter(|module| !module.path.is_empty()).map_or(0..0, |module| module.code)
}

/// A loaded file.
#[derive(Debug)]
pub struct Module {
    /// Where it is; empty for the program itself.
    pub path: String,
    /// The loader has added this to the file's own addresses.
    pub bias: usize,
    code: Range<usize>,
}

/// The loaded file that an address is in.
pub fn module_of(address: usize) -> Option<Module> {
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

#[cfg(test)]
mod tests {
    use super::*;

    // Each says something of its own, for the compiler makes one function of two that are alike.
    #[inline(never)]
    fn one() -> Callers {
        std::hint::black_box(1);
        std::hint::black_box(callers())
    }

    #[inline(never)]
    fn other() -> Callers {
        std::hint::black_box(2);
        std::hint::black_box(callers())
    }

    #[test]
    fn a_walk_that_is_kept_is_that_of_its_callers() {
        for _ in 0..3 {
            let by: Vec<_> = [one, other, one].map(|by| by()).into();
            assert_eq!(by[0][1..3], by[2][1..3]);
            assert_ne!(by[0][..3], by[1][..3]);
        }
        let again: Vec<_> = (0..2).map(|_| one()).collect();
        assert_eq!(again[0], again[1]);
        let kept = WALKS.with_borrow(VecDeque::len);
        assert_eq!(kept > 0, cfg!(target_arch = "x86_64"), "{kept}");
    }
}
