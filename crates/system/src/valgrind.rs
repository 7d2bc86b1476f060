//! Requests to valgrind, which replaces the allocator and tracks every byte.

#[cfg(not(miri))]
use std::arch::asm;

/// Requests to memcheck, as `memcheck.h` numbers them.
const MEMCHECK: u64 = (b'M' as u64) << 24 | (b'C' as u64) << 16;
const MAKE_UNDEFINED: u64 = MEMCHECK + 1;
const MAKE_DEFINED_IF_ADDRESSABLE: u64 = MEMCHECK + 11;
const CHECK_ADDRESSABLE: u64 = MEMCHECK + 4;
const CHECK_DEFINED: u64 = MEMCHECK + 5;
const GET_VBITS: u64 = MEMCHECK + 8;

/// Memcheck reports nothing of this thread any more, or again: each beginning needs an end.
pub(crate) fn pause_reports(pause: bool) {
    const CHANGE_ERROR_DISABLEMENT: u64 = 0x1801;
    ask(CHANGE_ERROR_DISABLEMENT, if pause { 1 } else { u64::MAX }, 0);
}

/// Whether valgrind runs this process.
pub(crate) fn is_under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    ask(RUNNING_ON_VALGRIND, 0, 0) != 0
}

/// Whether that is memcheck.
pub(crate) fn is_under_memcheck() -> bool {
    let (byte, mut bits) = (0_u8, 0_u8);
    const SUCCESS: u64 = 1;
    ask_with(GET_VBITS, [&raw const byte as u64, &raw mut bits as u64, 1]) == SUCCESS
}

/// Whether a range has bytes that are not the program's. Memcheck reports them, unless that is paused.
pub(crate) fn has_unaddressable(address: u64, length: u64) -> bool {
    ask(CHECK_ADDRESSABLE, address, length) != 0
}

/// Whether a range has bytes that nothing has been written to. Memcheck reports them, unless that is paused.
pub(crate) fn has_undefined(address: u64, length: u64) -> bool {
    ask(CHECK_DEFINED, address, length) != 0
}

/// Something has been written there.
pub(crate) fn define(address: u64, length: u64) {
    ask(MAKE_DEFINED_IF_ADDRESSABLE, address, length);
}

/// Nothing has been written there.
pub(crate) fn undefine(address: u64, length: u64) {
    ask(MAKE_UNDEFINED, address, length);
}

fn ask(request: u64, address: u64, length: u64) -> u64 {
    ask_with(request, [address, length, 0])
}

/// Asks valgrind, which answers to instructions that do nothing elsewhere (`valgrind.h`, which it wants to be asked
/// by). Zero where there is none.
fn ask_with(request: u64, [first, second, third]: [u64; 3]) -> u64 {
    let request: [u64; 6] = [request, first, second, third, 0, 0];
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
    answer
}
