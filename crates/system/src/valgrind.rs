//! Detects valgrind, which replaces the allocator and tracks every byte.

#[cfg(not(miri))]
use std::arch::asm;

/// Whether valgrind runs this process. Valgrind answers to instructions that do nothing elsewhere. `valgrind.h` defines
/// them.
pub(crate) fn is_under_valgrind() -> bool {
    // `VG_USERREQ__RUNNING_ON_VALGRIND`, and five arguments that it does not have.
    let request: [u64; 6] = [0x1001, 0, 0, 0, 0, 0];
    let mut answer: u64 = 0;
    // SAFETY: a register is rotated by its own length, and one exchanged with itself.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
        );
    }
    // SAFETY: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        asm!(
            "ror x12, x12, 3",
            "ror x12, x12, 13",
            "ror x12, x12, 51",
            "ror x12, x12, 61",
            "orr x10, x10, x10",
            in("x4") request.as_ptr(),
            inout("x3") answer,
        );
    }
    answer != 0
}
