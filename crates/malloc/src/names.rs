//! What names lead to in this process, as the loader has it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::iter::successors;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use libc::{Elf64_Sym, RTLD_DI_LINKMAP};

/// The functions of `dladdr1(3)` by which it tells a symbol, or a library.
const RTLD_DL_SYMENT: c_int = 1;
const RTLD_DL_LINKMAP: c_int = 2;
/// Of a symbol that is defined elsewhere.
const SHN_UNDEF: u16 = 0;

/// The version that programs ask for of what the C library has had from its beginning on.
const FIRST_VERSION: &CStr =
    if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };

/// A library that is loaded, or the program: the beginning of the loader's own `struct link_map`.
#[repr(C)]
struct Library {
    address: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: *const Self,
}

/// What calls of this name come to; null if there is nothing.
///
/// In a program that is loaded at a fixed address, as Debian's python3, the address of a function may be that of a jump
/// to it in the program itself. Then it is the first one behind the program.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends in zero.
    behind_jumps(|handle| unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// [`find`], of what has the C library's version of this name: only who asks for that finds the functions of
/// `libc_malloc_debug.so`, as programs do.
pub(crate) fn find_with_version(name: &CStr) -> *mut c_void {
    // SAFETY: names that end in zero.
    behind_jumps(|handle| unsafe { libc::dlvsym(handle, name.as_ptr(), FIRST_VERSION.as_ptr()) })
}

/// What a lookup finds of all that the program finds, behind a jump if it is one.
fn behind_jumps(look_up: impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
    let found = look_up(libc::RTLD_DEFAULT);
    if is_jump(found) { first_behind_the_program(look_up) } else { found }
}

/// Where the library is loaded that has this.
pub(crate) fn library_of(symbol: *mut c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: a place for what is said of it, which is there if the answer is not zero.
    unsafe {
        let known = !symbol.is_null() && libc::dladdr(symbol, found.as_mut_ptr()) != 0;
        known.then(|| found.assume_init().dli_fbase.addr())
    }
}

/// What the loader knows of an address; null if nothing.
fn known(symbol: *mut c_void, what: c_int) -> *const c_void {
    let (mut found, mut more) = (MaybeUninit::<libc::Dl_info>::uninit(), null_mut());
    // SAFETY: places for what is said of it.
    let known = !symbol.is_null()
        && unsafe { libc::dladdr1(symbol, found.as_mut_ptr(), &raw mut more, what) } != 0;
    if known { more } else { null() }
}

/// Whether a function is not where its name leads.
fn is_jump(symbol: *mut c_void) -> bool {
    // SAFETY: the symbol of a library that has been found there.
    let entry = unsafe { known(symbol, RTLD_DL_SYMENT).cast::<Elf64_Sym>().as_ref() };
    entry.is_some_and(|entry| entry.st_shndx == SHN_UNDEF)
}

fn first_behind_the_program(look_up: impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
    let mut program = null::<Library>();
    // SAFETY: no name is the program's; its handle is of no use but for this.
    unsafe {
        let handle = libc::dlopen(null(), libc::RTLD_LAZY);
        if handle.is_null() || libc::dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut program).cast()) != 0
        {
            return null_mut();
        }
        libc::dlclose(handle);
    }
    // SAFETY: the loader's list, of which the libraries that the program began with stay. The C library is one of them,
    // and has whatever is looked for here.
    let next = |library: &*const Library| unsafe { library.as_ref() }.map(|library| library.next);
    let libraries = successors(next(&program), next).take_while(|library| !library.is_null());
    let mut found = libraries.map(|library| own(library, &look_up));
    found.find(|found| !found.is_null()).unwrap_or(null_mut())
}

/// What a lookup finds that a library itself has; null if that is nothing.
fn own(library: *const Library, look_up: &impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
    // SAFETY: a library of the loader's list, which is not loaded again.
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
