//! The functions that names stand for in this process, according to the loader.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::iter::successors;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use libc::{Elf64_Sym, RTLD_DI_LINKMAP};

/// Requests to `dladdr1(3)`: for the symbol, and for the library.
const RTLD_DL_SYMENT: c_int = 1;
const RTLD_DL_LINKMAP: c_int = 2;
/// The section of a symbol that is defined elsewhere.
const SHN_UNDEF: u16 = 0;

/// The version of the C library's oldest functions. Programs ask for them by this version.
const FIRST_VERSION: &CStr =
    if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };

/// A loaded library, or the program: the beginning of the loader's own `struct link_map`.
#[repr(C)]
struct Library {
    address: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: *const Self,
}

/// The function that a call of this name reaches. Null if there is none.
///
/// In a program that is loaded at a fixed address, such as Debian's python3, the address of a function may be that of a
/// jump to it in the program itself. Then the result is the first such function after the program.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends in zero.
    behind_jumps(|handle| unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// [`find`], with the C library's version of this name. Only a look-up with the version finds the functions of
/// `libc_malloc_debug.so`, and programs look up with it.
pub(crate) fn find_with_version(name: &CStr) -> *mut c_void {
    // SAFETY: names that end in zero.
    behind_jumps(|handle| unsafe { libc::dlvsym(handle, name.as_ptr(), FIRST_VERSION.as_ptr()) })
}

/// The result of a look-up among everything that the program sees. A jump is replaced by its target.
fn behind_jumps(look_up: impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
    let found = look_up(libc::RTLD_DEFAULT);
    if is_jump(found) { first_behind_the_program(look_up) } else { found }
}

/// The address at which this symbol's library is loaded.
pub(crate) fn library_of(symbol: *mut c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: there is room for the answer, and it is filled if the result is not zero.
    unsafe {
        let known = !symbol.is_null() && libc::dladdr(symbol, found.as_mut_ptr()) != 0;
        known.then(|| found.assume_init().dli_fbase.addr())
    }
}

/// The loader's record of an address. Null if it has none.
fn known(symbol: *mut c_void, what: c_int) -> *const c_void {
    let (mut found, mut more) = (MaybeUninit::<libc::Dl_info>::uninit(), null_mut());
    // SAFETY: there is room for both answers.
    let known = !symbol.is_null()
        && unsafe { libc::dladdr1(symbol, found.as_mut_ptr(), &raw mut more, what) } != 0;
    if known { more } else { null() }
}

/// Whether the address of a function is only a jump to it.
fn is_jump(symbol: *mut c_void) -> bool {
    // SAFETY: the loader points at the entry of a loaded library, or returns null.
    let entry = unsafe { known(symbol, RTLD_DL_SYMENT).cast::<Elf64_Sym>().as_ref() };
    entry.is_some_and(|entry| entry.st_shndx == SHN_UNDEF)
}

fn first_behind_the_program(look_up: impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
    let mut program = null::<Library>();
    // SAFETY: the null name means the program. The handle is used only here.
    unsafe {
        let handle = libc::dlopen(null(), libc::RTLD_LAZY);
        if handle.is_null() || libc::dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut program).cast()) != 0
        {
            return null_mut();
        }
        libc::dlclose(handle);
    }
    // SAFETY: this is the loader's list. The libraries that the program began with stay in it. The C library is one of
    // them and has every function looked up here, so the search ends there.
    let next = |library: &*const Library| unsafe { library.as_ref() }.map(|library| library.next);
    let libraries = successors(next(&program), next).take_while(|library| !library.is_null());
    let mut found = libraries.map(|library| own(library, &look_up));
    found.find(|found| !found.is_null()).unwrap_or(null_mut())
}

/// The result of a look-up if this library itself defines it. Null otherwise.
fn own(library: *const Library, look_up: &impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
    // SAFETY: the library is in the loader's list, and is not loaded again.
    unsafe {
        let handle = libc::dlopen((*library).name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return null_mut();
        }
        let found = look_up(handle);
        libc::dlclose(handle);
        let is_own = known(found, RTLD_DL_LINKMAP) == library.cast();
        if is_own { found } else { null_mut() }
    }
}
