//! Buffers of a program that `transom run` did not start. Nobody tells what the program does to their pages.

use std::ptr::NonNull;

use transom_system::memory::{Allocation, begin_sharing, is_shared, page_size};

/// A buffer in shared memory, as it must be: all of it zero, and writable.
fn new_buffer(length: usize) -> Allocation {
    let buffer = Allocation::new(length).expect("there is memory");
    let first = buffer.first();
    assert!(is_shared(first.as_ptr() as u64, length as u64));
    // SAFETY: the buffer, which nobody else knows.
    unsafe {
        assert!((0..length).all(|at| first.add(at).read() == 0));
        first.write_bytes(0xa1, length);
    }
    buffer
}

fn map_over(at: NonNull<u8>, length: usize) {
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
    );
    // SAFETY: pages of this test.
    let mapped = unsafe { libc::mmap(at.as_ptr().cast(), length, rights, flags, -1, 0) };
    assert_eq!(mapped, at.as_ptr().cast());
}

/// The next one is as any new one, where the program has protected pages of the one before, unmapped them, or mapped
/// something else there, which stays as it is.
/// Rules: MR-41
#[test]
fn a_buffer_is_new_whatever_was_done_to_the_one_before() {
    begin_sharing().expect("there is room for shared memory");
    let page = page_size() as usize;
    for rights in [libc::PROT_NONE, libc::PROT_READ, libc::PROT_READ | libc::PROT_EXEC] {
        let buffer = new_buffer(2 * page);
        let first = buffer.first();
        // SAFETY: the second page of the buffer.
        let done = unsafe { libc::mprotect(first.add(page).as_ptr().cast(), page, rights) };
        assert_eq!(done, 0);
        drop(buffer);
        assert_eq!(new_buffer(2 * page).first(), first);
    }
    let buffer = new_buffer(3 * page);
    // SAFETY: the second page of the buffer.
    let second = unsafe { buffer.first().add(page) };
    map_over(second, page);
    // SAFETY: mapped above.
    unsafe { second.write_bytes(0x77, page) };
    drop(buffer);
    let others: Vec<_> = (1..20).map(|pages| new_buffer(pages * page)).collect();
    // SAFETY: as above.
    assert!((0..page).all(|at| unsafe { second.add(at).read() } == 0x77));
    drop(others);
    let buffer = new_buffer(3 * page);
    // SAFETY: the last page of the buffer.
    let done = unsafe { libc::munmap(buffer.first().add(2 * page).as_ptr().cast(), page) };
    assert_eq!(done, 0);
    drop(buffer);
    let _others: Vec<_> = (1..20).map(|pages| new_buffer(pages * page)).collect();
}
