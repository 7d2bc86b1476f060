//! Grants: the description of memory that a peer may use.

use crate::copy::check_range;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use transom_abi::*;

bitflags::bitflags! {
    /// The operations a peer may do on memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Rights: u8 {
        /// RDMA reads.
        const READ = 1;
        /// RDMA writes.
        const WRITE = 2;
        /// Atomic operations.
        const ATOMIC = 4;
    }
}

impl Rights {
    const FLAGS: [(Self, ibv_access_flags); 3] = [
        (Self::READ, IBV_ACCESS_REMOTE_READ),
        (Self::WRITE, IBV_ACCESS_REMOTE_WRITE),
        (Self::ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
    ];

    /// The access flags of the verbs for these rights.
    pub(crate) fn access_flags(self) -> ibv_access_flags {
        let flags = Self::FLAGS.into_iter().filter(|(right, _)| self.contains(*right));
        flags.fold(0, |flags, (_, flag)| flags | flag)
    }

    /// The rights that these access flags of the verbs give the peer.
    pub(crate) fn from_access_flags(flags: ibv_access_flags) -> Self {
        Self::FLAGS
            .into_iter()
            .filter(|(_, flag)| flags & flag != 0)
            .map(|(right, _)| right)
            .collect()
    }
}

/// Memory a peer may use, and its rights there.
///
/// It is a plain value: serialise it with serde, or send [`to_bytes`](Self::to_bytes). You get one from a bound window
/// ([`Window::grant`](crate::Window::grant)) or, for a whole region, from
/// [`MemoryRegion::grant`](crate::MemoryRegion::grant). Holding a grant proves nothing: the device decides each access
/// by the key.
///
/// ```
/// use transom::{Grant, Rights};
///
/// let grant = Grant { addr: 0x7000, rkey: 0x1234, length: 4096, rights: Rights::READ };
/// assert_eq!(Grant::from_bytes(&grant.to_bytes())?, grant);
/// assert_eq!(grant.slice(16..24)?.addr, 0x7010);
/// assert!(grant.slice(4090..4098).is_err());
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The remote address of its first byte. 0 if it is zero-based.
    pub addr: u64,
    /// The remote key.
    pub rkey: u32,
    /// The number of bytes.
    pub length: u64,
    /// The operations that the peer may do.
    pub rights: Rights,
}

impl Grant {
    /// The length of [`to_bytes`](Self::to_bytes), in bytes.
    pub const BYTES: usize = 24;

    /// Encodes it in a fixed form: address, length, key (all big-endian), rights, three zero bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[20] = self.rights.bits();
        bytes
    }

    /// Decodes the output of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`Error::BadGrant`] for rights that do not exist, padding that is not zero, or a range that passes the end of
    /// the address space.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (addr, length) = (word(0), word(8));
        let rkey = u32::from_be_bytes(std::array::from_fn(|i| bytes[16 + i]));
        let Some(rights) = Rights::from_bits(bytes[20]) else {
            return Err(Error::BadGrant { problem: "it has rights that do not exist" });
        };
        if bytes[21..] != [0; 3] {
            return Err(Error::BadGrant { problem: "its last three bytes are not zero" });
        }
        if addr.checked_add(length).is_none() {
            return Err(Error::BadGrant { problem: "it goes past the end of the address space" });
        }
        Ok(Self { addr, rkey, length, rights })
    }

    /// A part of the memory, by offsets from its start.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it is not all within the grant.
    pub fn slice(&self, range: Range<u64>) -> Result<RemoteSlice> {
        check_range("the grant", range.clone(), self.length)?;
        let addr = self.addr.wrapping_add(range.start);
        Ok(RemoteSlice { addr, rkey: self.rkey, length: range.end - range.start })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, rkey, length, rights } = self;
        write!(f, "{length} bytes at {addr:#x} by key {rkey:#010x} for {:?}", rights.0)
    }
}

/// A part of a peer's memory, as a request names it.
///
/// [`Grant::slice`] makes one that lies within its grant. The fields are public, so you can make any other too. The
/// peer's device refuses each access that the key does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSlice {
    /// The remote address of its first byte.
    pub addr: u64,
    /// The remote key.
    pub rkey: u32,
    /// The number of bytes. No request with it touches more.
    pub length: u64,
}

impl From<Grant> for RemoteSlice {
    /// All of the granted memory.
    fn from(grant: Grant) -> Self {
        Self { addr: grant.addr, rkey: grant.rkey, length: grant.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: Grant =
        Grant { addr: 0x1122, rkey: 0xdead_beef, length: 64, rights: Rights::all() };

    #[test]
    fn the_wire_form_is_fixed() {
        let mut expected = [0; 24];
        expected[6..8].copy_from_slice(&[0x11, 0x22]);
        expected[15] = 64;
        expected[16..21].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef, 7]);
        assert_eq!(GRANT.to_bytes(), expected);
        assert_eq!(Grant::from_bytes(&expected), Ok(GRANT));
    }

    #[test]
    fn bytes_that_are_no_grant_are_refused() {
        let spoilt = |at: usize, value| {
            let mut bytes = GRANT.to_bytes();
            bytes[at] = value;
            Grant::from_bytes(&bytes)
        };
        assert!(matches!(spoilt(20, 8), Err(Error::BadGrant { .. })));
        assert!(matches!(spoilt(23, 1), Err(Error::BadGrant { .. })));
        let wrapping = Grant { addr: u64::MAX, length: 2, ..GRANT };
        assert!(matches!(Grant::from_bytes(&wrapping.to_bytes()), Err(Error::BadGrant { .. })));
    }

    #[test]
    fn a_grant_travels_as_json() {
        let json = serde_json::to_string(&GRANT).unwrap();
        assert!(json.contains(r#""rights":"READ | WRITE | ATOMIC""#), "{json}");
        assert_eq!(serde_json::from_str::<Grant>(&json).unwrap(), GRANT);
    }

    #[test]
    fn slices_stay_within_their_grant() {
        assert_eq!(
            GRANT.slice(8..64),
            Ok(RemoteSlice { addr: 0x112a, rkey: 0xdead_beef, length: 56 })
        );
        assert!(GRANT.slice(64..64).is_ok());
        assert!(GRANT.slice(1..65).is_err());
        assert!(GRANT.slice(u64::MAX..u64::MAX).is_err());
    }
}
