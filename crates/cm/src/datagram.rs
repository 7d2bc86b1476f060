//! The resolution of a datagram service (SIDR): it finds the queue pair of a port (rules CM-30, CM-31).
//!
//! ```text
//!   active                                      passive
//!   Asking ───────── SIDR_REQ ────────────────► Asked                CONNECT_REQUEST
//!   Resolved ◄───────────────────── SIDR_REP ── Answered             accept
//!        ESTABLISHED
//! ```

use std::net::IpAddr;

use transom_wire::cm::{CommId, Information};
use transom_wire::cm::{Ece, Mad, Message, Qpn, ServiceId, SidrRep, SidrReq, SidrStatus};

use crate::attributes::AddressVector;
use crate::event::{Happened, Nobody};
use crate::refused::Refused;
use crate::retransmission::{InVain, Retransmission, Unanswered};
use crate::shared::{Shared, padded};

/// The resolution of a service, at either end.
#[derive(Debug)]
pub(crate) struct Resolution {
    id: CommId,
    address: AddressVector,
    state: State,
}

#[derive(Debug)]
enum State {
    Asking(Retransmission),
    Asked(Box<Asked>),
    Answered {
        asked: Box<Asked>,
        answer: Box<Mad>,
    },
    /// It is resolved or refused, or nobody answered.
    Over,
}

/// A request that has arrived.
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
        let retransmission = Retransmission::new(mad, wait, timing.retries, now, shared);
        shared.timers.set(id, retransmission.deadline(now));
        let mad = retransmission.mad();
        let resolution = Self { id, address, state: State::Asking(retransmission) };
        shared.transmit(&resolution.address, mad);
        resolution
    }

    /// Takes a new SIDR_REQ.
    pub(crate) fn asked(
        id: CommId,
        address: AddressVector,
        transaction: u64,
        request: SidrReq,
        shared: &mut Shared,
    ) -> Self {
        shared.asked.insert((address.route.destination, request.request_id), id);
        Self { id, address, state: State::Asked(Box::new(Asked { transaction, request })) }
    }

    /// The address vector to the peer. The peer's messages come by the same route.
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
        let State::Asked(asked) = &self.state else {
            let is = "is the one that asks, or has answered already";
            let takes = "rdma_accept and rdma_reject take the id of a CONNECT_REQUEST, once";
            return Err(Refused::State { is, takes });
        };
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
        shared.transmit(&self.address, mad);
        self.state = State::Answered { asked, answer };
        Ok(())
    }

    /// Handles a SIDR_REQ with the same request id from the same address. Returns whether it is the known one. If it is
    /// not, the known one is forgotten.
    pub(crate) fn on_again(
        &self,
        transaction: u64,
        request: &SidrReq,
        shared: &mut Shared,
    ) -> bool {
        match &self.state {
            State::Answered { asked, answer } => {
                let same = asked.transaction == transaction && asked.request == *request;
                if same {
                    shared.transmit(&self.address, (**answer).clone());
                } else {
                    self.forget(shared);
                }
                same
            }
            _ => true,
        }
    }

    /// Handles a SIDR_REP.
    pub(crate) fn on_reply(&mut self, reply: &SidrRep, shared: &mut Shared) -> bool {
        if !matches!(self.state, State::Asking(_)) {
            return false;
        }
        shared.timers.cancel(self.id);
        self.state = State::Over;
        let happened = match reply.status {
            SidrStatus::Valid => Happened::Resolved {
                address: self.address,
                qpn: reply.qpn,
                qkey: reply.qkey,
                ece: reply.ece,
                private_data: Box::new(reply.private_data),
            },
            status => Happened::NotServed { status, private_data: Box::new(reply.private_data) },
        };
        shared.happened(self.id, happened);
        true
    }

    /// Whether it has sent this message to this address, and waits for its answer.
    pub(crate) fn waits_for_answer(&self, to: IpAddr, mad: &Mad) -> bool {
        self.requests_from(to)
            && matches!(&self.state, State::Asking(retransmission) if retransmission.is(mad))
    }

    /// Its request, if that waits for an answer and was repeated.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        match &self.state {
            State::Asking(retransmission) => retransmission.unanswered(),
            _ => None,
        }
    }

    /// Whether it has sent a request to this address and has no answer yet.
    pub(crate) fn requests_from(&self, to: IpAddr) -> bool {
        matches!(self.state, State::Asking(_)) && self.address.route.destination == to
    }

    /// Its message has reached nobody (rule CM-70).
    pub(crate) fn on_nobody(&mut self, now: u64, why: Nobody, shared: &mut Shared) {
        let State::Asking(retransmission) = &mut self.state else { return };
        match retransmission.came_to_nobody(now) {
            InVain::Known => {}
            InVain::Again(deadline) => shared.timers.set(self.id, deadline),
            InVain::Enough => {
                shared.timers.cancel(self.id);
                self.state = State::Over;
                shared.happened(self.id, why.of_datagram_service());
            }
        }
    }

    /// The timer has expired.
    pub(crate) fn on_timeout(&mut self, now: u64, shared: &mut Shared) {
        let State::Asking(retransmission) = &mut self.state else { return };
        if let Some(mad) = retransmission.again(now) {
            shared.timers.set(self.id, retransmission.deadline(now));
            shared.transmit(&self.address, mad);
        } else {
            self.give_up(shared);
        }
    }

    /// Its request has got no answer, and is not repeated any more.
    pub(crate) fn give_up(&mut self, shared: &mut Shared) {
        if matches!(self.state, State::Asking(_)) {
            shared.timers.cancel(self.id);
            self.state = State::Over;
            shared.happened(self.id, Happened::Unreachable);
        }
    }

    /// The id is destroyed (rule CM-28).
    pub(crate) fn destroy(&mut self, shared: &mut Shared) {
        if matches!(self.state, State::Asked(_)) {
            let none = (Qpn::default(), 0);
            // This cannot fail: there is no private data that could be too long.
            _ = self.answer(SidrStatus::Rejected, none, Ece::default(), &[], shared);
        }
        self.abandon(shared);
    }

    /// Ends it without a message, for example because the device is gone.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) {
        shared.timers.cancel(self.id);
        self.forget(shared);
        self.state = State::Over;
    }

    fn forget(&self, shared: &mut Shared) {
        if let State::Asked(asked) | State::Answered { asked, .. } = &self.state {
            let key = (self.address.route.destination, asked.request.request_id);
            if shared.asked.get(&key) == Some(&self.id) {
                shared.asked.remove(&key);
            }
        }
    }
}

/// The answer to a request that got no id.
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
