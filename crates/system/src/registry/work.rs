//! Work that came to nothing though no access and no call was refused, as `transom explain` gets it, and its sentence:
//! a work request that ended in error, one that was flushed, a message that was dropped, a completion that found no
//! room.

mod sentence;

use std::net::{IpAddr, Ipv6Addr};

use transom_device::execution::Unheard;
use transom_device::operation::Opcode;
use transom_device::protection::Reason;
use transom_device::qp::{QpNumber, QpState, Service};
use transom_device::queue::Status;

use super::record::{Kind, RECORD_WORDS};
pub use sentence::status_name;

/// The fate of some work, the time, and the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRecord {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The queue pair here. Zero if none.
    pub qp: u32,
    /// The queue pair at the other end. Zero if none.
    pub peer: u32,
    /// The work request, if there is one.
    pub work: Option<Work>,
    /// Its fate.
    pub fate: Fate,
}

/// A work request, and its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The program's number of it.
    pub wr_id: u64,
    /// Its operation.
    pub opcode: Opcode,
    /// How it ended.
    pub status: Status,
}

/// The fate of work, as a record keeps it: why a request ended in error, with what was found at the other end, and all
/// else that comes to nothing without a request that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nobody answered, though it was sent so often (`retry_cnt` times and once more).
    Unanswered {
        /// The state of the other end afterwards.
        found: Found,
        /// `retry_cnt`
        retries: u8,
        /// `timeout`
        timeout: u8,
    },
    /// The peer had no receive for it, so often (`rnr_retry` times and once more).
    NotReady {
        /// `rnr_retry`
        retries: u8,
        /// Whether the peer takes its receives from a shared queue, if known.
        shared: Option<bool>,
    },
    /// The peer's answer does not fit the request.
    BadResponse,
    /// The peer has refused it, for a reason unknown here.
    RefusedThere,
    /// The request does not fit its queue pair. The reason has a value and a limit.
    Unfit {
        /// Why.
        reason: Reason,
        /// The value that it has.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// So many work requests were flushed from one queue of a queue pair in error.
    Flushed {
        /// How many.
        count: u64,
        /// The program has moved it there.
        by_program: bool,
        /// They were receives.
        receives: bool,
    },
    /// The completion queue had no room for the completion.
    Overrun {
        /// How many completions it holds.
        capacity: u64,
        /// How many the program has asked for.
        asked: u64,
    },
    /// A message that came was dropped.
    Dropped(Unheard),
    /// The tagged buffer that it names is not in its list (any more).
    NoTag,
    /// A rehearsal made it fail.
    Rehearsed,
}

/// Why no answer came, as far as this process can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No process here has such a queue pair number.
    NoProcess,
    /// The process at the other end has ended, or closed its device.
    Ended,
    /// There has never been such a queue pair.
    NoQueuePair,
    /// The queue pair has been destroyed.
    Destroyed,
    /// The queue pair is in a state in which it receives nothing.
    Deaf(QpState),
    /// The queue pair is of another service.
    OtherService(Service),
    /// The queue pair is connected to this one.
    OtherPeer(u32),
    /// The queue pair expects another first PSN than was sent.
    OtherPsn {
        /// Its `rq_psn`
        awaited: u32,
        /// The `sq_psn` here.
        sent: u32,
    },
    /// The queue pair would answer now.
    Ready,
    /// The port of this device is down, so packets went nowhere.
    PortDown,
    /// Packets went to this address, which this process cannot look into.
    Far(IpAddr),
    /// The host of this address reports that nobody is there.
    Deserted(IpAddr),
    /// Its IP packets were too long for this host to send, in bytes.
    TooLong {
        /// How long they were.
        packet: u32,
        /// The longest that the route carries, in bytes.
        carried: u32,
    },
}

impl WorkRecord {
    /// Whether a correct program may meet it in the ordinary course of things.
    pub(super) fn is_ordinary(&self) -> bool {
        matches!(self.fate, Fate::Flushed { .. } | Fate::Dropped(_) | Fate::NoTag | Fate::Rehearsed)
    }

    /// The status of its completions, by its name in C.
    pub fn status(&self) -> Option<&'static str> {
        match (self.work, self.fate) {
            (Some(work), _) => Some(status_name(work.status)),
            (None, Fate::Flushed { .. }) => Some(status_name(Status::Flushed)),
            (None, _) => None,
        }
    }

    pub(super) fn to_words(self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        let (code, detail, numbers) = self.fate.pack();
        let work = self.work.map_or([0; 3], |work| [1, work.opcode as u8, work.status as u8]);
        let [has_work, opcode, status] = work;
        let small = [Kind::Work as u8, code, detail, has_work, opcode, status, 0, 0];
        words[1] = self.time;
        words[2] = u64::from_le_bytes(small);
        words[3] = u64::from(self.qp) << 32 | u64::from(self.peer);
        words[4] = self.work.map_or(0, |work| work.wr_id);
        words[5..8].copy_from_slice(&numbers);
        words
    }

    pub(super) fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let [kind, code, detail, has_work, opcode, status, ..] = words[2].to_le_bytes();
        if kind != Kind::Work as u8 {
            return None;
        }
        let work = match has_work {
            0 => None,
            _ => Some(Work {
                wr_id: words[4],
                opcode: Opcode::from_code(opcode)?,
                status: Status::from_code(status)?,
            }),
        };
        Some(Self {
            time: words[1],
            qp: (words[3] >> 32) as u32,
            peer: words[3] as u32,
            work,
            fate: Fate::unpack(code, detail, [words[5], words[6], words[7]])?,
        })
    }
}

/// Combines two numbers of 32 bits into one.
fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

fn address_of(high: u64, low: u64) -> IpAddr {
    let bits = u128::from(high) << 64 | u128::from(low);
    IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
}

fn state(code: u64) -> Option<QpState> {
    QpState::new(u32::try_from(code).ok()?)
}

impl Fate {
    /// The name that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unanswered { .. } => "unanswered",
            Self::NotReady { .. } => "not_ready",
            Self::BadResponse => "bad_response",
            Self::RefusedThere => "refused_there",
            Self::Unfit { .. } => "unfit",
            Self::Flushed { .. } => "flushed",
            Self::Overrun { .. } => "overrun",
            Self::Dropped(_) => "dropped",
            Self::NoTag => "no_tag",
            Self::Rehearsed => "rehearsed",
        }
    }

    /// Its number, its kind, and its values.
    fn pack(self) -> (u8, u8, [u64; 3]) {
        match self {
            Self::Unanswered { found, retries, timeout } => {
                let (detail, [a, b]) = found.pack();
                (1, detail, [u64::from(retries) << 8 | u64::from(timeout), a, b])
            }
            Self::NotReady { retries, shared } => {
                let shared = shared.map_or(0, |shared| 1 + u8::from(shared));
                (2, shared, [retries.into(), 0, 0])
            }
            Self::BadResponse => (3, 0, [0; 3]),
            Self::RefusedThere => (4, 0, [0; 3]),
            Self::Unfit { reason, value, limit } => (5, reason.code(), [value, limit, 0]),
            Self::Flushed { count, by_program, receives } => {
                (6, u8::from(by_program) | u8::from(receives) << 1, [count, 0, 0])
            }
            Self::Overrun { capacity, asked } => (7, 0, [capacity, asked, 0]),
            Self::Dropped(why) => {
                let [a, b] = numbers_of(why);
                (8, why.kind(), [a, b, 0])
            }
            Self::NoTag => (9, 0, [0; 3]),
            Self::Rehearsed => (10, 0, [0; 3]),
        }
    }

    fn unpack(code: u8, detail: u8, [a, b, c]: [u64; 3]) -> Option<Self> {
        Some(match code {
            1 => Self::Unanswered {
                found: Found::unpack(detail, [b, c])?,
                retries: (a >> 8) as u8,
                timeout: a as u8,
            },
            2 => Self::NotReady { retries: a as u8, shared: (detail > 0).then_some(detail > 1) },
            3 => Self::BadResponse,
            4 => Self::RefusedThere,
            5 => Self::Unfit { reason: Reason::from_code(detail)?, value: a, limit: b },
            6 => Self::Flushed { count: a, by_program: detail & 1 != 0, receives: detail & 2 != 0 },
            7 => Self::Overrun { capacity: a, asked: b },
            8 => Self::Dropped(unpack_unheard(detail, [a, b])?),
            9 => Self::NoTag,
            10 => Self::Rehearsed,
            _ => return None,
        })
    }
}

impl Found {
    fn pack(self) -> (u8, [u64; 2]) {
        match self {
            Self::NoProcess => (1, [0; 2]),
            Self::Ended => (2, [0; 2]),
            Self::NoQueuePair => (3, [0; 2]),
            Self::Destroyed => (4, [0; 2]),
            Self::Deaf(state) => (5, [state as u64, 0]),
            Self::OtherService(service) => (6, [service as u64, 0]),
            Self::OtherPeer(peer) => (7, [peer.into(), 0]),
            Self::OtherPsn { awaited, sent } => (8, [pair(awaited, sent), 0]),
            Self::Ready => (9, [0; 2]),
            Self::Far(address) => (10, address_words(address)),
            Self::Deserted(address) => (11, address_words(address)),
            Self::TooLong { packet, carried } => (12, [pair(packet, carried), 0]),
            Self::PortDown => (13, [0; 2]),
        }
    }

    fn unpack(code: u8, [a, b]: [u64; 2]) -> Option<Self> {
        Some(match code {
            1 => Self::NoProcess,
            2 => Self::Ended,
            3 => Self::NoQueuePair,
            4 => Self::Destroyed,
            5 => Self::Deaf(state(a)?),
            6 => Self::OtherService(Service::from_code(a as u8)?),
            7 => Self::OtherPeer(a as u32),
            8 => {
                let (awaited, sent) = halves(a);
                Self::OtherPsn { awaited, sent }
            }
            9 => Self::Ready,
            10 => Self::Far(address_of(a, b)),
            11 => Self::Deserted(address_of(a, b)),
            12 => {
                let (packet, carried) = halves(a);
                Self::TooLong { packet, carried }
            }
            13 => Self::PortDown,
            _ => return None,
        })
    }
}

fn numbers_of(why: Unheard) -> [u64; 2] {
    match why {
        Unheard::Deaf(state) => [state as u64, 0],
        Unheard::OtherPeer(peer) => [peer.bits().into(), 0],
        Unheard::OtherPsn { awaited, came } => [pair(awaited, came), 0],
        Unheard::OtherQkey { own, came } => [pair(own, came), 0],
        Unheard::TooSmall { needed, room } => [needed, room],
        Unheard::OtherAddress(address) => address_words(address),
        Unheard::OtherService | Unheard::NoReceive | Unheard::NoQueuePair => [0; 2],
    }
}

fn unpack_unheard(kind: u8, [a, b]: [u64; 2]) -> Option<Unheard> {
    let (high, low) = halves(a);
    Some(match kind {
        0 => Unheard::Deaf(state(a)?),
        1 => Unheard::OtherService,
        2 => Unheard::OtherPeer(QpNumber::from_bits(low)),
        3 => Unheard::OtherPsn { awaited: high, came: low },
        4 => Unheard::OtherQkey { own: high, came: low },
        5 => Unheard::NoReceive,
        6 => Unheard::TooSmall { needed: a, room: b },
        7 => Unheard::NoQueuePair,
        8 => Unheard::OtherAddress(address_of(a, b)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other processes write records, so their fields need not fit together.
    #[test]
    fn what_others_wrote_is_still_a_sentence() {
        for code in 0..=u8::MAX {
            for detail in 0..=u8::MAX {
                for fill in [0, 5, 0x4141_4141_4141_4141, u64::MAX] {
                    let mut words = [fill; RECORD_WORDS];
                    let small = [Kind::Work as u8, code, detail, fill as u8 & 1, 0, 12, 0, 0];
                    words[2] = u64::from_le_bytes(small);
                    let Some(record) = WorkRecord::from_words(&words) else { continue };
                    assert!(record.to_string().len() > 20, "{record}");
                    assert_eq!(WorkRecord::from_words(&record.to_words()), Some(record));
                }
            }
        }
    }
}
