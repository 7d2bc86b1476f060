//! The model: what must happen, kept beside the devices and without their code.
//!
//! It is told everything that the devices do at their edges (each byte stored or read, each packet,
//! each completion) while they do it, and says what is wrong with it.
//!
//! | module | holds |
//! |---|---|
//! | [`rights`] | what each key grants at this moment |
//! | [`posted`] | work requests, and which packet belongs to which |
//! | [`inbound`] | what a queue pair has carried out for its peer |
//! | [`target`] | what may be done for a request that arrives |
//! | [`origin`] | what may be done with an answer |
//! | [`completing`] | which completions may come, when, and with which status |

pub mod completing;
pub mod inbound;
pub mod origin;
pub mod posted;
pub mod rights;
pub mod target;

use transom_device::Access;
use transom_device::qp::{QpNumber, Service};
use transom_wire::Psn;

use inbound::Inbound;
use posted::{Posted, PostedReceive, PostedSend};
use rights::{Rights, Who};

/// What is wrong, in words.
pub type Verdict = Result<(), String>;

/// What a device is doing right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing that came from outside.
    Itself,
    /// Requests that arrived together.
    Requests(Vec<Arrived>),
    /// Answers that arrived.
    Responses,
}

/// A request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Counts arrivals, so that a packet that arrives twice is told apart.
    pub arrival: u64,
    /// Its number.
    pub psn: Psn,
    /// The queue pair it says it comes from; RC and UC do not say.
    pub source: Option<u32>,
}

/// A request that arrived, and what the model knows of it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Who sent it.
    pub from: At,
    /// Its arrival.
    pub arrival: u64,
    /// The message it belongs to.
    pub send: PostedSend,
    /// Which of its packets it is.
    pub index: u64,
}

impl Found {
    /// Its place in what its sender sends.
    pub fn place(&self) -> u64 {
        self.send.first + self.index
    }
}

/// One of a device's queue pairs, by number of the device and place in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The device.
    pub device: usize,
    /// Its queue pair.
    pub qp: usize,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.device, self.qp)
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct End {
    /// Its number.
    pub number: QpNumber,
    /// Its transport service.
    pub service: Service,
    /// Its protection domain.
    pub pd: u32,
    /// `qp_access_flags`.
    pub access: Access,
    /// Its peer's place in the other device's list.
    pub peer: usize,
    /// Path MTU.
    pub mtu: u64,
    /// `retry_cnt`, `rnr_retry`.
    pub retries: (u8, u8),
    /// How long it waits for an answer, in nanoseconds of its clock.
    pub timeout: Option<u64>,
    /// The number of its first packet.
    pub first: Psn,
    /// What was posted to its send queue.
    pub sends: Posted<PostedSend>,
    /// What was posted to its receive queue.
    pub receives: Posted<PostedReceive>,
    /// What it has carried out for its peer.
    pub inbound: Inbound,
    /// Why it is in error.
    pub fallen: Option<&'static str>,
    /// The network or a slow peer may be why an answer is missing.
    pub disturbed: bool,
    /// So little is lost that all of its retries together do not fail.
    pub hardy: bool,
    /// Its link has been full, so it may have asked for something again.
    pub held: bool,
    /// Answers may come later than it waits for them, or found no room.
    pub slow: bool,
    /// Its packets before this place are acknowledged, or more than are.
    pub acknowledged: u64,
    /// The place that the last sequence error it has heard of names.
    pub gap: Option<u64>,
}

impl End {
    /// On whose behalf its peer's requests touch memory, and its own.
    pub fn who(&self) -> Who {
        Who { qp: self.number.bits(), pd: self.pd }
    }
}

/// Both devices.
#[derive(Debug, Default)]
pub struct Model {
    /// What their keys grant.
    pub rights: [Rights; 2],
    /// Their queue pairs.
    pub ends: [Vec<End>; 2],
    /// What was found wrong first.
    pub wrong: Option<String>,
    /// How often something worth counting happened.
    pub counts: Counts,
}

/// How often something happened, so that a run shows what it has tested.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub succeeded: u64,
    pub failed: u64,
    pub flushed: u64,
    pub received: u64,
    pub refused: u64,
    pub revoked: u64,
    pub retransmitted: u64,
    pub not_ready: u64,
    pub sequence_naks: u64,
    pub packets: u64,
    pub corrupted: u64,
    pub bytes: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        let pairs: [(&mut u64, u64); 12] = [
            (&mut self.succeeded, other.succeeded),
            (&mut self.failed, other.failed),
            (&mut self.flushed, other.flushed),
            (&mut self.received, other.received),
            (&mut self.refused, other.refused),
            (&mut self.revoked, other.revoked),
            (&mut self.retransmitted, other.retransmitted),
            (&mut self.not_ready, other.not_ready),
            (&mut self.sequence_naks, other.sequence_naks),
            (&mut self.packets, other.packets),
            (&mut self.corrupted, other.corrupted),
            (&mut self.bytes, other.bytes),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

impl Model {
    /// A queue pair.
    pub fn end(&self, at: At) -> &End {
        &self.ends[at.device][at.qp]
    }

    /// The same, to change.
    pub fn end_mut(&mut self, at: At) -> &mut End {
        &mut self.ends[at.device][at.qp]
    }

    /// The queue pair that requests come from: the peer, or the one that a datagram names.
    pub fn sender(&self, at: At, source: Option<u32>) -> Result<At, String> {
        let device = 1 - at.device;
        let Some(source) = source else { return Ok(At { device, qp: self.end(at).peer }) };
        let named = |end: &End| end.number.bits() == source;
        let qp = self.ends[device].iter().position(named).ok_or("a datagram from nobody")?;
        Ok(At { device, qp })
    }

    /// The first of the requests that the device is carrying out which is of this kind and has not
    /// taken effect yet.
    pub fn find(
        &self,
        at: At,
        cause: &Cause,
        is: impl Fn(&Found) -> bool,
    ) -> Result<Found, String> {
        let Cause::Requests(arrived) = cause else { return Err("no request has arrived".into()) };
        let end = self.end(at);
        let mut next = None;
        for &Arrived { arrival, psn, source } in arrived {
            let from = self.sender(at, source)?;
            let (send, index) = self.end(from).message_of(psn)?;
            let found = Found { from, arrival, send: send.clone(), index };
            if !is(&found) {
                continue;
            }
            // The one that has begun goes on before any other.
            if end.inbound.is_at(arrival, found.place()) {
                return Ok(found);
            }
            let ready =
                end.service != Service::Rc || end.inbound.is_next(self.end(from), found.place());
            if ready && next.is_none() {
                next = Some(found);
            }
        }
        next.ok_or_else(|| format!("none of the requests {arrived:?} does this now"))
    }

    /// A queue pair in error carries nothing out. The send queue of UC and UD fails by itself.
    pub fn check_receives(&self, at: At) -> Verdict {
        let end = self.end(at);
        match end.fallen {
            Some(why) if end.service == Service::Rc => {
                Err(format!("a request is carried out in error: {why}"))
            }
            _ => Ok(()),
        }
    }

    /// The queue pair, and that of the other device which sends to it.
    pub fn inbound_from(&mut self, at: At, from: At) -> (&mut Inbound, &End) {
        let [first, second] = &mut self.ends;
        let (own, others) = if at.device == 0 { (first, second) } else { (second, first) };
        (&mut own[at.qp].inbound, &others[from.qp])
    }

    /// Keeps what is wrong, if it is the first.
    pub fn note(&mut self, at: At, verdict: Verdict) {
        if let Err(wrong) = verdict
            && self.wrong.is_none()
        {
            self.wrong = Some(format!("{at} {wrong}"));
        }
    }
}

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;
