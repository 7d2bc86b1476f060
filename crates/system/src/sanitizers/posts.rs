//! The latest work requests of this process and where they were posted, for reports.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::{Half, runtimes};

/// So many buffers are known; what was posted before them is forgotten.
const KNOWN: usize = 4 << 10;
/// Calls that led to a post, as far as they are kept: a program has functions of its own around the verb.
const FRAMES: usize = 4;

/// A buffer of a work request.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// The half that it is for.
    pub half: Half,
    /// The consumer's number of the work request.
    pub wr_id: u64,
    /// What it is called.
    pub name: &'static str,
    /// Its first byte.
    pub address: u64,
    /// How many there are.
    pub length: u64,
}

/// Where a work request was posted: the innermost call of the program's first.
pub(super) type Calls = [usize; FRAMES];

static POSTS: Mutex<Vec<(Posted, Calls)>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Notes the buffers of a work request, which the program has posted by the function `verb` of this library, that is
/// about to be carried out.
pub fn note_post(verb: usize, buffers: impl IntoIterator<Item = Posted>) {
    if runtimes().is_none() {
        return;
    }
    let mut calls = None;
    let mut posts = POSTS.lock();
    for buffer in buffers {
        let calls = *calls.get_or_insert_with(|| calls_of(verb));
        let next = NEXT.load(Relaxed);
        match posts.get_mut(next) {
            Some(oldest) => *oldest = (buffer, calls),
            None => posts.push((buffer, calls)),
        }
        NEXT.store((next + 1) % KNOWN, Relaxed);
    }
}

/// The latest that had this byte.
pub(super) fn find(half: Half, address: u64) -> Option<(Posted, Calls)> {
    let posts = POSTS.lock();
    let (older, newer) = posts.split_at(NEXT.load(Relaxed).min(posts.len()));
    let mut latest = older.iter().rev().chain(newer.iter().rev());
    latest.find(|(it, _)| it.half == half && address.wrapping_sub(it.address) < it.length).copied()
}

// The unwinder of the C++ ABI, which Rust's own panics use too.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(context: *mut c_void) -> usize;
}

struct Walk {
    verb: usize,
    is_past: bool,
    found: usize,
    calls: Calls,
}

/// Who called the function at this address, which runs.
fn calls_of(verb: usize) -> Calls {
    let mut walk = Walk { verb, is_past: false, found: 0, calls: [0; FRAMES] };
    // SAFETY: `each` is called with this walk, before this returns.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.calls
}

extern "C" fn each(context: *mut c_void, walk: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const STOP: c_int = 4;
    // SAFETY: the unwinder calls this with its own context, and the walk of `calls_of`.
    let (walk, ip, function) = unsafe {
        (&mut *walk.cast::<Walk>(), _Unwind_GetIP(context), _Unwind_GetRegionStart(context))
    };
    if walk.is_past {
        walk.calls[walk.found] = ip;
        walk.found += 1;
    }
    walk.is_past |= function == walk.verb;
    if walk.found == FRAMES { STOP } else { GO_ON }
}
