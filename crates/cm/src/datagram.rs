//! The resolution of a datagram service (SIDR): which queue pair a port leads to (rules CM-30, CM-31).
//!
//! ```text
//!   active                                      passive
//!   Asking ───────── SIDR_REQ ────────────────► Asked                CONNECT_REQUEST
//!   Resolved ◄───────────────────── SIDR_REP ── Answered             accept
//!        ESTABLISHED
//! ```

use transom_wire::cm::{CommId, Information};
use transom_wire::cm::{Ece, Mad, Message, Qpn, ServiceId, SidrRep, SidrReq, SidrStatus};

use crate::attributes::{AddressVector, HOP_LIMIT};
use crate::connection::Repeat;
use crate::event::Happened;
use crate::refused::Refused;
use crate::shared::{Shared, Transmit, padded};

/// The resolution of a service, at either end.
#[derive(Debug)]
pub(crate) struct Resolution {
    id: CommId,
    address: AddressVector,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Asking(Repeat),
    Asked(Box<Asked>),
    Answered {
        asked: Box<Asked>,
        answer: Box<Mad>,
    },
    /// Resolved, or refused, or nobody answered.
    Over,
}

/// A request, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    transaction: u64,
    request: SidrReq,
}

impl Resolution {
    /// Sends a SIDR_REQ.
    pub(crate) fn ask(
        id: CommId,
        address: AddressVector,
        request: SidrReq,
        now: u64,
        shared: &mut Shared,
    ) -> Self {
        let timing = shared.config.timing;
        let mad = Mad { transaction: shared.transaction(id), message: Message::SidrReq(request) };
        let wait = timing.resolution();
        let repeat = Repeat::new(mad, wait, timing.retries, now, shared);
        shared.wake(id, repeat.deadline(now));
        let mad = repeat.mad();
        let resolution = Self { id, address, stage: Stage::Asking(repeat) };
        resolution.transmit(mad, shared);
        resolution
    }

    /// Takes a SIDR_REQ that nobody has yet.
    pub(crate) fn asked(
        id: CommId,
        address: AddressVector,
        transaction: u64,
        request: SidrReq,
        shared: &mut Shared,
    ) -> Self {
        shared.asked.insert((address.route.destination, request.request_id), id);
        Self { id, address, stage: Stage::Asked(Box::new(Asked { transaction, request })) }
    }

    /// The way, by which its messages come too.
    pub(crate) fn address(&self) -> &AddressVector {
        &self.address
    }

    /// Sends a SIDR_REP.
    pub(crate) fn answer(
        &mut self,
        status: SidrStatus,
        (qpn, qkey): (Qpn, u32),
        ece: Ece,
        private_data: &[u8],
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        let Stage::Asked(asked) = &self.stage else { return Err(Refused::State) };
        let private_data = padded(private_data)?;
        let reply = SidrRep {
            request_id: asked.request.request_id,
            status,
            information: Information::NONE,
            ece,
            qpn,
            service: asked.request.service,
            qkey,
            private_data,
        };
        let mad = Mad { transaction: asked.transaction, message: Message::SidrRep(reply) };
        let (asked, answer) = (asked.clone(), Box::new(mad.clone()));
        self.transmit(mad, shared);
        self.stage = Stage::Answered { asked, answer };
        Ok(())
    }

    /// A SIDR_REQ that comes with the same request id from the same address. Whether it is the one that
    /// is known; if not, that one is forgotten.
    pub(crate) fn on_again(
        &self,
        transaction: u64,
        request: &SidrReq,
        shared: &mut Shared,
    ) -> bool {
        match &self.stage {
            Stage::Answered { asked, answer } => {
                let same = asked.transaction == transaction && asked.request == *request;
                if same {
                    self.transmit((**answer).clone(), shared);
                } else {
                    self.forget(shared);
                }
                same
            }
            _ => true,
        }
    }

    /// A SIDR_REP.
    pub(crate) fn on_reply(&mut self, reply: &SidrRep, shared: &mut Shared) -> bool {
        if !matches!(self.stage, Stage::Asking(_)) {
            return false;
        }
        shared.sleep(self.id);
        self.stage = Stage::Over;
        let happened = match reply.status {
            SidrStatus::Valid => Happened::Resolved {
                address: self.address,
                qpn: reply.qpn,
                qkey: reply.qkey,
                ece: reply.ece,
                private_data: Box::new(reply.private_data),
            },
            status => Happened::NotServed(status),
        };
        shared.happened(self.id, happened);
        true
    }

    /// The timer has ended.
    pub(crate) fn on_timeout(&mut self, now: u64, shared: &mut Shared) {
        let Stage::Asking(repeat) = &mut self.stage else { return };
        if let Some(mad) = repeat.again(now) {
            shared.wake(self.id, repeat.deadline(now));
            self.transmit(mad, shared);
        } else {
            self.stage = Stage::Over;
            shared.happened(self.id, Happened::Unreachable);
        }
    }

    /// The last word: the id goes (rule CM-28).
    pub(crate) fn farewell(&mut self, shared: &mut Shared) {
        if matches!(self.stage, Stage::Asked(_)) {
            let none = (Qpn::default(), 0);
            // Without private data there is nothing that could be too long.
            _ = self.answer(SidrStatus::Rejected, none, Ece::default(), &[], shared);
        }
        self.abandon(shared);
    }

    /// The device is gone: is over without a word.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) {
        shared.sleep(self.id);
        self.forget(shared);
        self.stage = Stage::Over;
    }

    fn forget(&self, shared: &mut Shared) {
        if let Stage::Asked(asked) | Stage::Answered { asked, .. } = &self.stage {
            let key = (self.address.route.destination, asked.request.request_id);
            if shared.asked.get(&key) == Some(&self.id) {
                shared.asked.remove(&key);
            }
        }
    }

    fn transmit(&self, mad: Mad, shared: &mut Shared) {
        shared.transmits.push_back(Transmit {
            source: self.address.route.source,
            destination: self.address.route.destination,
            traffic_class: self.address.traffic_class,
            hop_limit: HOP_LIMIT,
            mad,
        });
    }
}

/// The answer to a request that no id was made for.
pub(crate) fn refusal(request: &SidrReq, status: SidrStatus) -> Message {
    let SidrReq { request_id, service, .. } = *request;
    let service: ServiceId = service;
    Message::SidrRep(SidrRep {
        request_id,
        status,
        information: Information::NONE,
        ece: Ece::default(),
        qpn: Qpn::default(),
        service,
        qkey: 0,
        private_data: [0; _],
    })
}
