//! Finds the tree, and leads a call's path into it.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::place::{HINTS, Joined, LINK_ROOM, ROOM};

/// The directory with the tree. `transom run` sets it, and children inherit it.
const TREE: &CStr = c"TRANSOM_TREE";

/// A copy of the directory's name, because programs write over their environment.
struct Remembered {
    name: UnsafeCell<[u8; ROOM]>,
    /// Zero until the name is there.
    length: AtomicUsize,
}

// SAFETY: the name is written once, before its length; it is read after the length.
unsafe impl Sync for Remembered {}

static REMEMBERED: Remembered =
    Remembered { name: UnsafeCell::new([0; ROOM]), length: AtomicUsize::new(0) };

/// Copies the directory's name. Only the constructor calls it.
pub(crate) fn remember() {
    let Some(tree) = in_environment().filter(|tree| tree.len() < ROOM) else { return };
    // SAFETY: nobody reads it before the length is set, and there are no other threads yet.
    unsafe { (&mut *REMEMBERED.name.get())[..tree.len()].copy_from_slice(tree) };
    REMEMBERED.length.store(tree.len(), Ordering::Release);
}

unsafe extern "C" {
    /// The C library's. It returns null in a program that has more rights than its user. Such a program must not follow
    /// that user's paths.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

fn in_environment() -> Option<&'static [u8]> {
    // SAFETY: the name ends in zero. The value is copied, or used while the program starts.
    let value = unsafe {
        let value = secure_getenv(TREE.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    };
    value.filter(|tree| tree.first() == Some(&b'/'))
}

/// The directory with the tree, if there is one. Other libraries' constructors may ask before ours
/// has run.
pub(crate) fn tree() -> Option<&'static [u8]> {
    match REMEMBERED.length.load(Ordering::Acquire) {
        0 => in_environment(),
        // SAFETY: the name was written before the length, and is never written again.
        length => Some(unsafe { &(&*REMEMBERED.name.get())[..length] }),
    }
}

/// Whether this path may be in one of the places. A quick test that comes before the exact one.
///
/// # Safety
/// `path` ends in zero, or lies where no program has memory: programs pass such a pointer to be told EFAULT.
pub(crate) unsafe fn may_be_led(path: *const c_char) -> bool {
    // SAFETY: both end in zero, by the contract of this function.
    let has = |hint: &CStr| unsafe { !libc::strstr(path, hint.as_ptr()).is_null() };
    is_of_a_program(path) && HINTS.into_iter().any(has)
}

/// Whether a program can have memory there: not in the first 64 KiB, nor in the kernel's half.
fn is_of_a_program(path: *const c_char) -> bool {
    (1 << 16..1 << (usize::BITS - 1)).contains(&path.addr())
}

/// The path to use instead of `path`, which starts from the directory open as `start`.
///
/// # Safety
/// `path` ends in zero.
pub(crate) unsafe fn lead(
    start: c_int,
    path: *const c_char,
    room: &mut [u8; ROOM],
) -> *const c_char {
    // SAFETY: by the contract of this function.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    led(start, bytes, room).map_or(path, |led| led.as_ptr().cast())
}

fn led<'a>(start: c_int, path: &[u8], room: &'a mut [u8; ROOM]) -> Option<&'a [u8]> {
    let mut joined = Joined::below(tree()?, room, read_link)?;
    if path.first() != Some(&b'/') {
        let mut base = [0; ROOM];
        joined.start(name_of(start, &mut base)?)?;
    }
    joined.walk(path)?;
    joined.led()
}

/// Removes the tree's name from the front of a path that the C library has resolved, so that the program sees the name
/// that it asked for.
///
/// # Safety
/// `path` is null, or writable and ends in zero.
pub(crate) unsafe fn without_tree(path: *mut c_char) -> *mut c_char {
    let Some(tree) = tree().filter(|_| !path.is_null()) else { return path };
    // SAFETY: by the contract of this function. The bytes that move to the front include the zero at the end.
    unsafe {
        let below = CStr::from_ptr(path).to_bytes_with_nul().strip_prefix(tree);
        if let Some(below) = below.filter(|below| below[0] == b'/') {
            let (from, length) = (below.as_ptr().cast(), below.len());
            std::ptr::copy(from, path, length);
        }
    }
    path
}

/// The name of an open directory, or of the current one.
fn name_of(directory: c_int, room: &mut [u8; ROOM]) -> Option<&[u8]> {
    let link: *const c_char = c"/proc/thread-self/fd/".as_ptr();
    let mut name = [0 as c_char; 32];
    // SAFETY: `name` has room for the longest number behind the link's name.
    unsafe {
        if directory == libc::AT_FDCWD {
            libc::strcpy(name.as_mut_ptr(), c"/proc/thread-self/cwd".as_ptr());
        } else {
            libc::snprintf(name.as_mut_ptr(), name.len(), c"%s%d".as_ptr(), link, directory);
        }
    }
    // SAFETY: it ends in zero.
    let length = unsafe { link_at(name.as_ptr(), room) };
    let name = room.get(..length?)?;
    (name.first() == Some(&b'/')).then_some(name)
}

/// Reads the target of a link in the tree.
fn read_link(path: &[u8], target: &mut [u8; LINK_ROOM]) -> Option<usize> {
    let path = CStr::from_bytes_until_nul(path).ok()?;
    // SAFETY: it ends in zero.
    unsafe { link_at(path.as_ptr(), target) }
}

/// Reads a link. Errno stays unchanged.
///
/// # Safety
/// `path` ends in zero.
unsafe fn link_at(path: *const c_char, to: &mut [u8]) -> Option<usize> {
    let (start, room) = (to.as_mut_ptr(), to.len());
    let errno = transom_thread::errno();
    // SAFETY: by the contract of this function. This is the system call itself, because the C library's function would
    // call this library again.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, start, room) };
    transom_thread::set_errno(errno);
    usize::try_from(length).ok()
}
