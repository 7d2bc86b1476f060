//! Memory for tests, in whole pages. A test can remove its pages or their protection.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use transom_ibverbs::Allocation;

/// Memory in whole pages, zeroed. It goes back to the system with the buffer.
pub struct Buffer {
    address: *mut u8,
    length: usize,
    /// Set in a process with shared memory.
    shared: Option<Allocation>,
}

/// Whether this process was started with shared memory.
pub fn has_shared_memory() -> bool {
    std::env::var_os("TRANSOM_MEMORY").is_some_and(|value| value == "shared")
}

// SAFETY: plain memory. Tests order their own accesses.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// At least `length` bytes: shared memory in a process that [has it](has_shared_memory).
    pub fn new(length: usize) -> Self {
        if !has_shared_memory() {
            return Self::private(length);
        }
        let length = length.next_multiple_of(4096).max(4096);
        let shared = Allocation::new(length).expect("there is memory");
        Self { address: shared.first().as_ptr(), length, shared: Some(shared) }
    }

    /// At least `length` bytes of private memory.
    pub fn private(length: usize) -> Self {
        let length = length.next_multiple_of(4096).max(4096);
        // SAFETY: a fresh private mapping.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.cast(), length, shared: None }
    }

    /// At least `length` bytes, far from the addresses that the system chooses for mappings. So parts that you return
    /// with [`Buffer::unmap`] stay unmapped.
    pub fn apart(length: usize) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let length = length.next_multiple_of(4096).max(4096);
        let address = NEXT.fetch_add(length.next_multiple_of(1 << 20) + (1 << 20), Relaxed);
        // SAFETY: a new private mapping. The flag keeps it from replacing another.
        let address = unsafe {
            libc::mmap(
                address as *mut c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.cast(), length, shared: None }
    }

    /// The first `length` bytes of a file, a multiple of the page size. Whoever maps the file has them too.
    pub fn of_file(file: &File, length: usize) -> Self {
        assert!(length > 0 && length.is_multiple_of(4096));
        let (rights, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping.
        let address = unsafe { libc::mmap(null_mut(), length, rights, libc::MAP_SHARED, fd, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.cast(), length, shared: None }
    }

    /// Returns some pages of a [`Buffer::apart`] to the system. The test must not read or write them
    /// afterwards.
    pub fn unmap(&self, at: usize, length: usize) {
        assert!(at + length <= self.length);
        // SAFETY: within our own mapping. Nothing else has been mapped there.
        assert_eq!(unsafe { libc::munmap(self.address.add(at).cast(), length) }, 0);
    }

    /// At least `length` bytes, filled with a pattern that depends on `seed`.
    pub fn filled(length: usize, seed: u8) -> Self {
        let buffer = Self::new(length);
        let part: Vec<u8> = (0..buffer.length.min(PERIOD)).map(|at| pattern(at, seed)).collect();
        for at in (0..buffer.length).step_by(PERIOD) {
            buffer.write(at, &part[..part.len().min(buffer.length - at)]);
        }
        buffer
    }

    /// The first address.
    pub fn addr(&self) -> u64 {
        self.address as u64
    }

    /// The length in bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes, which is never so.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies bytes out.
    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: within the mapping; a new vector lies elsewhere.
        unsafe { self.address.add(at).copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
        bytes
    }

    /// Copies bytes in.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        // SAFETY: within the mapping. The source lies elsewhere.
        unsafe { self.address.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Sets `length` bytes from `at` on to `byte`, in one step.
    pub fn fill_part(&self, at: usize, length: usize, byte: u8) {
        assert!(at + length <= self.length);
        // SAFETY: within the mapping.
        unsafe { self.address.add(at).write_bytes(byte, length) };
    }

    /// The 8 bytes at `at`, a multiple of 8, as a number. They are read atomically.
    pub fn word(&self, at: usize) -> u64 {
        self.number(at).load(Acquire)
    }

    /// Sets the 8 bytes at `at`, a multiple of 8, atomically.
    pub fn set_word(&self, at: usize, value: u64) {
        self.number(at).store(value, Release);
    }

    fn number(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.length && at.is_multiple_of(8));
        // SAFETY: within the mapping, aligned, and any bytes are a number.
        unsafe { &*self.address.add(at).cast() }
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        // SAFETY: our own mapping.
        unsafe { self.address.write_bytes(byte, self.length) };
    }

    /// Whether any byte is `byte`. Nobody may write meanwhile.
    pub fn contains(&self, byte: u8) -> bool {
        // SAFETY: our own mapping, which is not written to meanwhile.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }.contains(&byte)
    }

    /// Whether every byte is `byte`. Nobody may write meanwhile.
    pub fn is_all(&self, byte: u8) -> bool {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(self.address, self.length) };
        // Each byte equals the one before it.
        bytes[0] == byte && bytes[1..] == bytes[..bytes.len() - 1]
    }

    /// Changes the protection of all pages.
    pub fn protect(&self, protection: c_int) {
        self.protect_part(0, self.length, protection);
    }

    /// Changes the protection of some pages.
    pub fn protect_part(&self, at: usize, length: usize, protection: c_int) {
        assert!(at + length <= self.length);
        // SAFETY: our own mapping. The test does not touch it against its protection.
        let done = unsafe { libc::mprotect(self.address.add(at).cast(), length, protection) };
        assert_eq!(done, 0);
    }

    /// Removes the pages, and leaves the addresses mapped to nothing. The test must not read or write the
    /// buffer afterwards.
    pub fn vanish(&self) {
        self.protect(libc::PROT_NONE);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.shared.is_some() {
            // The next owner must find it as it was.
            self.protect(libc::PROT_READ | libc::PROT_WRITE);
            return;
        }
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}

/// A pattern repeats after this many bytes.
const PERIOD: usize = 1 << 16;

/// The byte that [`Buffer::filled`] puts at a place.
pub fn pattern(at: usize, seed: u8) -> u8 {
    (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed)
}
