//! What statuses, events and the like are called: people search for rdma-core's words, and scripts for them in logs.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;

use transom_ibverbs::*;

/// Says what a number is called.
type Names = unsafe extern "C" fn(u32) -> *const c_char;
/// The same here.
type OurNames = fn(u32) -> *const c_char;

/// A function of Debian's library.
fn theirs(function: &str) -> Names {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let file = folder.join("libibverbs.so.1");
    let open = CString::new(file.to_str().expect("text")).expect("no zero");
    // SAFETY: Debian's own library, which does nothing when it is loaded.
    let library = unsafe { libc::dlopen(open.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "no {}: apt-get install libibverbs1", file.display());
    let name = CString::new(function).expect("no zero");
    // SAFETY: the library stays loaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{function}");
    // SAFETY: all of these take an enum and answer a string.
    unsafe { std::mem::transmute::<*mut libc::c_void, Names>(found) }
}

/// Rules: EX-06
#[test]
fn words_are_those_of_rdma_core_to_the_letter() {
    let ours: [(&str, OurNames); 4] = [
        ("ibv_wc_status_str", |it| ibv_wc_status_str(it)),
        ("ibv_event_type_str", |it| ibv_event_type_str(it)),
        ("ibv_node_type_str", |it| ibv_node_type_str(it as i32)),
        ("ibv_port_state_str", |it| ibv_port_state_str(it)),
    ];
    for (name, ours) in ours {
        let theirs = theirs(name);
        for number in (0..64).chain([u32::MAX, u32::MAX / 2]) {
            // SAFETY: it takes any number.
            let words = [ours(number), unsafe { theirs(number) }];
            // SAFETY: both are strings that stay.
            let [ours, theirs] = words.map(|it| unsafe { CStr::from_ptr(it) });
            assert_eq!(ours, theirs, "{name} of {number}");
        }
    }
}
