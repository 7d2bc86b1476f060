//! The cause of a consumer's rejection (reason 28). Transom's devices send it in the additional information of the REJ,
//! which other devices leave empty. Only `transom explain` reads it. It contains no addresses and no ports.

use transom_wire::cm::{Information, Rej, RejectReason};

/// The bytes before the cause. They distinguish it from other devices' information.
const MARK: &[u8; 7] = b"transom";

/// The cause of a consumer's rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The program has refused.
    Program = 1,
    /// The program has destroyed the id before the connection was established.
    Destroyed = 2,
    /// The program has ended.
    Ended = 3,
    /// The listener on the port does not take the request, because of its address, its kind of queue pair or its
    /// header, or because there is no route back.
    NotTaken = 4,
}

impl Cause {
    /// The cause with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Program, Self::Destroyed, Self::Ended, Self::NotTaken];
        all.into_iter().find(|cause| *cause as u8 == number)
    }

    /// The information to send in a REJ.
    pub(crate) fn information(self) -> Information {
        let mut bytes = [0; MARK.len() + 1];
        bytes[..MARK.len()].copy_from_slice(MARK);
        bytes[MARK.len()] = self as u8;
        Information::new(&bytes).unwrap_or(Information::NONE)
    }

    /// The cause in a REJ, if it is a consumer's rejection from a Transom device.
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
