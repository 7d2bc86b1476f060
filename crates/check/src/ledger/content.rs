//! The program's memory, as the ledger asks for it. The ledger itself touches none.

use super::Posted;

/// The program's memory, for those who look at it.
pub trait ProgramMemory {
    /// Reads what the sample of a request is of, if that takes no system call. Returns whether.
    fn read_at_once(&self, posted: &mut Posted) -> bool;

    /// Reads what the samples of these requests are of. Clears a sample that cannot be read.
    fn read(&self, posted: Vec<&mut Posted>);

    /// Whether the memory has the content of a request's sample. False if only a system call could tell.
    fn is_unchanged(&self, posted: &Posted) -> bool;

    /// Whether this is an address of the program, and not some small number.
    fn has(&self, address: u64) -> bool;
}
