//! The functions that take a path. Each has the name and the arguments of the C library's.
//!
//! The names with a number or `__` are those that compiled programs use: for large files, for `_FORTIFY_SOURCE`, and in
//! programs built before glibc 2.33.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{AT_FDCWD, DIR, FILE, mode_t, size_t, ssize_t};

use crate::place::ROOM;
use crate::tree::{lead, may_be_led, without_tree};
use transom_interpose::{Failed, Next};

/// A string that ends in zero.
type Text = *const c_char;
/// The place for the answer.
type To = *mut c_void;
/// A function of the program.
type Call = *const c_void;

/// The C library may cancel a thread in these functions, and some call functions of the program, which may throw. Both
/// unwind through here, so nothing here may need a drop.
macro_rules! calls {
    ($(
        fn $name:ident($($argument:ident: $type:ty),+) -> $answer:ty,
        $path:ident from $start:expr $(, told by $told:ident)?;
    )+) => {
        /// The next functions of these names.
        #[allow(non_upper_case_globals)]
        mod next {
            use super::{CStr, Next};
            $(pub(super) static $name: Next = Next::new(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero inside"),
                },
            );)+
        }

        /// Looks them all up. In a signal handler it would be too late.
        pub(crate) fn find_all() {
            $(next::$name.find();)+
        }

        $(
            /// Calls the C library's function, with the path led into the tree.
            ///
            /// # Safety
            /// As for the C library's.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($argument: $type),+) -> $answer {
                type Function = unsafe extern "C-unwind" fn($($type),+) -> $answer;

                /// A function of its own, so that other calls need no stack for `room`.
                #[inline(never)]
                unsafe fn led(next: Function, $($argument: $type),+) -> $answer {
                    let mut room = [0; ROOM];
                    // SAFETY: by the contract of the C library's function.
                    unsafe {
                        let $path = lead($start, $path, &mut room);
                        let answer = next($($argument),+);
                        $(let answer = $told(answer);)?
                        answer
                    }
                }

                let next = next::$name.find();
                if next.is_null() {
                    return Failed::FAILED;
                }
                // SAFETY: the C library's function of this name has this type, and its contract is
                // this one's.
                unsafe {
                    let next: Function = std::mem::transmute(next);
                    if may_be_led($path) {
                        led(next, $($argument),+)
                    } else {
                        next($($argument),+)
                    }
                }
            }
        )+
    };
}

// Callers may leave out the last argument of an open, the mode. It is always passed on here. The kernel ignores it
// where it was left out.
calls! {
    fn open(path: Text, flags: c_int, mode: mode_t) -> c_int, path from AT_FDCWD;
    fn open64(path: Text, flags: c_int, mode: mode_t) -> c_int, path from AT_FDCWD;
    fn __open_2(path: Text, flags: c_int) -> c_int, path from AT_FDCWD;
    fn __open64_2(path: Text, flags: c_int) -> c_int, path from AT_FDCWD;
    fn openat(at: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int, path from at;
    fn openat64(at: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int, path from at;
    fn __openat_2(at: c_int, path: Text, flags: c_int) -> c_int, path from at;
    fn __openat64_2(at: c_int, path: Text, flags: c_int) -> c_int, path from at;
    fn fopen(path: Text, mode: Text) -> *mut FILE, path from AT_FDCWD;
    fn fopen64(path: Text, mode: Text) -> *mut FILE, path from AT_FDCWD;
    fn freopen(path: Text, mode: Text, file: *mut FILE) -> *mut FILE, path from AT_FDCWD;
    fn freopen64(path: Text, mode: Text, file: *mut FILE) -> *mut FILE, path from AT_FDCWD;
    fn chdir(path: Text) -> c_int, path from AT_FDCWD;

    fn access(path: Text, mode: c_int) -> c_int, path from AT_FDCWD;
    fn eaccess(path: Text, mode: c_int) -> c_int, path from AT_FDCWD;
    fn euidaccess(path: Text, mode: c_int) -> c_int, path from AT_FDCWD;
    fn faccessat(at: c_int, path: Text, mode: c_int, flags: c_int) -> c_int, path from at;

    fn stat(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn stat64(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn lstat(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn lstat64(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn fstatat(at: c_int, path: Text, to: To, flags: c_int) -> c_int, path from at;
    fn fstatat64(at: c_int, path: Text, to: To, flags: c_int) -> c_int, path from at;
    fn statx(at: c_int, path: Text, flags: c_int, mask: c_uint, to: To) -> c_int, path from at;
    fn __xstat(version: c_int, path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn __xstat64(version: c_int, path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn __lxstat(version: c_int, path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn __lxstat64(version: c_int, path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn __fxstatat(version: c_int, at: c_int, path: Text, to: To, flags: c_int) -> c_int,
        path from at;
    fn __fxstatat64(version: c_int, at: c_int, path: Text, to: To, flags: c_int) -> c_int,
        path from at;
    fn statfs(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn statfs64(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn statvfs(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn statvfs64(path: Text, to: To) -> c_int, path from AT_FDCWD;
    fn inotify_add_watch(watches: c_int, path: Text, mask: u32) -> c_int, path from AT_FDCWD;

    fn opendir(path: Text) -> *mut DIR, path from AT_FDCWD;
    fn scandir(path: Text, list: To, filter: Call, order: Call) -> c_int, path from AT_FDCWD;
    fn scandir64(path: Text, list: To, filter: Call, order: Call) -> c_int, path from AT_FDCWD;
    fn scandirat(at: c_int, path: Text, list: To, filter: Call, order: Call) -> c_int, path from at;
    fn scandirat64(at: c_int, path: Text, list: To, filter: Call, order: Call) -> c_int,
        path from at;

    fn readlink(path: Text, to: *mut c_char, size: size_t) -> ssize_t, path from AT_FDCWD;
    fn __readlink_chk(path: Text, to: *mut c_char, size: size_t, room: size_t) -> ssize_t,
        path from AT_FDCWD;
    fn readlinkat(at: c_int, path: Text, to: *mut c_char, size: size_t) -> ssize_t, path from at;
    fn __readlinkat_chk(at: c_int, path: Text, to: *mut c_char, size: size_t,
        room: size_t) -> ssize_t, path from at;

    fn getxattr(path: Text, name: Text, to: To, size: size_t) -> ssize_t, path from AT_FDCWD;
    fn lgetxattr(path: Text, name: Text, to: To, size: size_t) -> ssize_t, path from AT_FDCWD;
    fn listxattr(path: Text, to: *mut c_char, size: size_t) -> ssize_t, path from AT_FDCWD;
    fn llistxattr(path: Text, to: *mut c_char, size: size_t) -> ssize_t, path from AT_FDCWD;

    fn realpath(path: Text, to: *mut c_char) -> *mut c_char,
        path from AT_FDCWD, told by without_tree;
    fn __realpath_chk(path: Text, to: *mut c_char, size: size_t) -> *mut c_char,
        path from AT_FDCWD, told by without_tree;
    fn canonicalize_file_name(path: Text) -> *mut c_char,
        path from AT_FDCWD, told by without_tree;
}
