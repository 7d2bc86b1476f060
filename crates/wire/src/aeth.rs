//! The content of an acknowledgement: the AETH syndrome (rules H.3) and the RNR timer (rule RN-16).

/// The code of a negative acknowledgement that ends the connection, or asks for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// 0x60: a packet is missing; the requester goes back (rule PSN-31).
    SequenceError,
    /// 0x61: the request itself is wrong (rule RA-50).
    InvalidRequest,
    /// 0x62: the key, range or right does not allow it (rule RA-40).
    RemoteAccess,
    /// 0x63: the responder could not carry it out (rule RA-52).
    RemoteOperational,
}

/// The 5-bit code of the time a requester waits before it retries after "receiver not ready".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Microseconds by code (rule RN-16, `ibv_modify_qp(3)`).
    const MICROSECONDS: [u32; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];

    /// The timer of a code below 32; `None` above (rule ST-07).
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long the code says to wait, in nanoseconds.
    pub const fn nanoseconds(self) -> u64 {
        Self::MICROSECONDS[self.0 as usize] as u64 * 1_000
    }
}

/// The first byte of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Acknowledged; the low five bits are a credit count, 0x1f for none (rule ACK-03).
    Ack {
        /// Encoded end-to-end credits, 0 to 31.
        credits: u8,
    },
    /// No receive work request was there; try again after the timer (rule RN-01).
    RnrNak(RnrTimer),
    /// Refused.
    Nak(NakCode),
}

impl Syndrome {
    /// The byte on the wire.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak(timer) => 0x20 | timer.code(),
            Self::Nak(NakCode::SequenceError) => 0x60,
            Self::Nak(NakCode::InvalidRequest) => 0x61,
            Self::Nak(NakCode::RemoteAccess) => 0x62,
            Self::Nak(NakCode::RemoteOperational) => 0x63,
        }
    }

    /// The meaning of a byte; `None` for the reserved ones (rule PSN-32).
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0..=0x1f => Some(Self::Ack { credits: byte }),
            0x20..=0x3f => Some(Self::RnrNak(RnrTimer(byte & 0x1f))),
            0x60 => Some(Self::Nak(NakCode::SequenceError)),
            0x61 => Some(Self::Nak(NakCode::InvalidRequest)),
            0x62 => Some(Self::Nak(NakCode::RemoteAccess)),
            0x63 => Some(Self::Nak(NakCode::RemoteOperational)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: RN-16
    #[test]
    fn rnr_timers_are_the_table_of_the_specification() {
        let microseconds = |code| RnrTimer::new(code).unwrap().nanoseconds() / 1_000;
        assert_eq!(microseconds(0), 655_360);
        assert_eq!(microseconds(1), 10);
        assert_eq!(microseconds(12), 640);
        assert_eq!(microseconds(25), 61_440);
        assert_eq!(microseconds(31), 491_520);
        assert_eq!(RnrTimer::new(32), None);
        // From code 2 on, each second code doubles (1 to 3 count by tens).
        for code in 4..=29 {
            assert_eq!(microseconds(code + 2), 2 * microseconds(code), "code {code}");
        }
    }

    #[test]
    fn every_syndrome_byte_reads_back() {
        for byte in 0..=u8::MAX {
            if let Some(syndrome) = Syndrome::from_byte(byte) {
                assert_eq!(syndrome.to_byte(), byte);
            } else {
                assert!((0x40..0x60).contains(&byte) || byte > 0x63, "{byte:#x}");
            }
        }
    }
}
