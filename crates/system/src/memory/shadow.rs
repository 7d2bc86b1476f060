//! The notes of another process's AddressSanitizer.
//!
//! AddressSanitizer keeps a byte of notes for each eight bytes of memory, at an address that follows from theirs. 0 says
//! that all eight are the program's, 1 to 7 that so many of them are, and any other value that none is. A process reads
//! these notes before it copies from or to the memory of such a peer, as the peer itself would ask its sanitizer. The
//! memory may be freed between the look and the copy. So it may between the sanitizer's own look and an access.

/// Bytes of memory for each byte of notes, as a power of two.
const SCALE: u32 = 3;
/// Bytes of notes that are read at a time: those of 64 KiB.
const STEP: usize = 8 << 10;

/// Where a process has the notes of its AddressSanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow(u64);

impl Shadow {
    /// By the offset in the process's header. Zero says that it has none.
    pub fn at(offset: u64) -> Option<Self> {
        (offset != 0).then_some(Self(offset))
    }

    /// Whether a range is all the program's to use. `read` copies notes from their address there, and says whether it
    /// could.
    pub(super) fn allows(
        self,
        address: u64,
        length: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> bool {
        let Some(last) = length.checked_sub(1) else { return true };
        let Some(last) = address.checked_add(last) else { return false };
        let (first, last_note) = (address >> SCALE, last >> SCALE);
        let used_of_last = (last & 7) as u8 + 1;
        let mut few = [0; 16];
        if last_note - first < few.len() as u64 {
            let notes = &mut few[..(last_note - first + 1) as usize];
            return read(first.wrapping_add(self.0), notes) && are_clear(notes, Some(used_of_last));
        }
        let mut many = [0; STEP];
        let mut at = first;
        while at <= last_note {
            let count = (last_note - at + 1).min(STEP as u64);
            let notes = &mut many[..count as usize];
            let used = (at + count > last_note).then_some(used_of_last);
            if !read(at.wrapping_add(self.0), notes) || !are_clear(notes, used) {
                return false;
            }
            at += count;
        }
        true
    }
}

/// Whether notes say that all memory is the program's, or so many bytes of the last.
fn are_clear(notes: &[u8], used_of_last: Option<u8>) -> bool {
    let (whole, last) = match (used_of_last, notes.split_last()) {
        (Some(used), Some((last, whole))) => (whole, *last == 0 || (used..8).contains(last)),
        _ => (notes, true),
    };
    // Without a way out of the loop, the compiler takes many at a time.
    last && whole.iter().fold(0, |all, note| all | note) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes of memory from address 0 on.
    fn allows(notes: &[u8], address: u64, length: u64) -> bool {
        let offset = 0x7fff_8000;
        Shadow(offset).allows(address, length, |from, to| {
            let from = (from - offset) as usize;
            notes.get(from..from + to.len()).is_some_and(|notes| {
                to.copy_from_slice(notes);
                true
            })
        })
    }

    #[test]
    fn only_what_is_all_the_programs_is_allowed() {
        let notes = [0, 0, 5, 0xfa, 0];
        assert!(allows(&notes, 0, 16) && allows(&notes, 3, 13) && allows(&notes, 0, 0));
        assert!(allows(&notes, 8, 13) && allows(&notes, 16, 5) && allows(&notes, 18, 1));
        assert!(!allows(&notes, 8, 14) && !allows(&notes, 16, 6) && !allows(&notes, 21, 1));
        assert!(!allows(&notes, 16, 16) && !allows(&notes, 24, 1) && allows(&notes, 32, 8));
        assert!(!allows(&notes, 0, 40), "a hole in the middle");
        assert!(!allows(&notes, 32, 9), "there are no notes");
        assert!(!allows(&notes, u64::MAX, 2), "it is beyond all memory");
    }

    #[test]
    fn long_ranges_are_looked_at_to_their_end() {
        let mut notes = vec![0; 3 * STEP];
        let length = 8 * notes.len() as u64;
        assert!(allows(&notes, 0, length));
        for at in [0, STEP - 1, STEP, 3 * STEP - 1] {
            notes[at] = 0xfd;
            assert!(!allows(&notes, 0, length), "{at}");
            notes[at] = 0;
        }
    }
}
