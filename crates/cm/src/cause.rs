//! Which of the ways it was by which a consumer refuses (reason 28): Transom's devices say it behind that reason, where
//! others say nothing, and nobody but `transom explain` reads it. Neither addresses nor ports are in it.

use transom_wire::cm::{Information, Rej, RejectReason};

/// What is before it, so that it is not taken for what others say there.
const MARK: &[u8; 7] = b"transom";

/// The way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The program refuses.
    Program = 1,
    /// It has destroyed the id before the connection stood.
    Destroyed = 2,
    /// It has ended.
    Ended = 3,
    /// Whoever listens on the port does not take the request: for its address, its kind of queue pair, its header, or
    /// because no way leads back.
    NotTaken = 4,
}

impl Cause {
    /// That of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Program, Self::Destroyed, Self::Ended, Self::NotTaken];
        all.into_iter().find(|cause| *cause as u8 == number)
    }

    /// What goes with a refusal.
    pub(crate) fn information(self) -> Information {
        let mut bytes = [0; MARK.len() + 1];
        bytes[..MARK.len()].copy_from_slice(MARK);
        bytes[MARK.len()] = self as u8;
        Information::new(&bytes).unwrap_or(Information::NONE)
    }

    /// What a refusal says, if it is one of a consumer's and of a device of Transom's.
    pub(crate) fn of(rej: &Rej) -> Option<Self> {
        if rej.reason != RejectReason::Consumer {
            return None;
        }
        match rej.information.as_bytes().strip_prefix(MARK)? {
            [number] => Self::from_number(*number),
            _ => None,
        }
    }
}
