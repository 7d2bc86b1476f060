//! Messages of the peer about a connection, and the reaction to its silence.

use std::net::IpAddr;

use transom_wire::cm::message::Answered;
use transom_wire::cm::{
    Bits, CommId, Dreq, Information, Mad, Mra, Qpn, Rej, RejectReason, Rejected, Rep, Req,
    Transport,
};

use super::{Connection, Role, State};
use crate::cause::Cause;
use crate::event::{Happened, Nobody, Offer};
use crate::retransmission::{InVain, Unanswered};
use crate::shared::Shared;
use crate::timing::MILLISECOND;

/// The result of a message for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    /// The message has no meaning any more, or not in this phase.
    Ignored,
}

use Outcome::{Ignored, Taken};

impl Connection {
    /// Whether a REQ with the peer's id is the one that this connection began with (rule CM-17).
    pub(crate) fn began_with(&self, req: &Req) -> bool {
        self.role == Role::Passive && (self.peer.qpn, self.peer.psn) == (req.qpn, req.starting_psn)
    }

    /// A repeated REQ (rules CM-16, CM-17).
    pub(crate) fn on_req_again(&self, shared: &mut Shared) {
        if matches!(self.state, State::RequestReceived) {
            self.send_mra(Answered::Req, shared);
        }
    }

    /// A first REP. No other connection may have its peer.
    pub(crate) fn on_rep(&mut self, rep: &Rep, shared: &mut Shared) -> Outcome {
        if !matches!(self.state, State::RequestSent(_)) {
            return Ignored;
        }
        let end = (rep.local_id, self.qpn_of(rep), rep.starting_psn);
        self.peer.introduce(rep.ca_guid, end, self.id, shared);
        shared.timers.cancel(self.id);
        self.agreed.on_rep(rep);
        self.state = State::ReplyReceived;
        let offer = Offer {
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: self.agreed.retry_count,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qpn: self.peer.qpn,
            ece: rep.ece,
        };
        let private_data = Box::new(rep.private_data);
        shared.happened(self.id, Happened::ConnectResponse { offer, private_data });
        Taken
    }

    pub(crate) fn has_refused(&self, peer: CommId) -> bool {
        self.refused.contains(&peer)
    }

    /// Remembers that this REP was refused. Each try of a REQ may bring one.
    pub(crate) fn refuse(&mut self, peer: CommId) {
        if !self.has_refused(peer) && self.refused.len() <= Bits::<4>::MAX.get() as usize {
            self.refused.push(peer);
        }
    }

    /// A repeated REP (rules CM-16, CM-18).
    pub(crate) fn on_rep_again(&self, shared: &mut Shared) {
        match self.state {
            State::Established => self.send_rtu(shared),
            State::ReplyReceived => self.send_mra(Answered::Rep, shared),
            _ => {}
        }
    }

    /// The peer's queue pair. For XRC it is in another field.
    pub(crate) fn qpn_of(&self, rep: &Rep) -> Qpn {
        if self.transport == Transport::Xrc { rep.eecn } else { rep.qpn }
    }

    pub(crate) fn on_rtu(&mut self, shared: &mut Shared) -> Outcome {
        match self.state {
            State::ReplySent(_) => self.established(shared),
            // The peer does not know yet that it was refused (rule CM-49).
            State::TimeWait | State::Over if !self.disconnected => {
                let (reason, none) = (RejectReason::InvalidCommId, Information::NONE);
                self.send_rej(Rejected::Other, reason, none, [0; _], shared);
            }
            _ => return Ignored,
        }
        Taken
    }

    pub(crate) fn on_mra(&mut self, mra: &Mra, now: u64, shared: &mut Shared) -> Outcome {
        let retransmission = match (&mut self.state, mra.answered) {
            (State::RequestSent(retransmission), Answered::Req) => retransmission,
            (State::ReplySent(retransmission), Answered::Rep) => retransmission,
            _ => return Ignored,
        };
        let milliseconds =
            mra.service_timeout.milliseconds() + self.agreed.ack_timeout.milliseconds();
        if !retransmission.wait_longer(milliseconds * MILLISECOND) {
            return Ignored;
        }
        shared.timers.set(self.id, retransmission.deadline(now));
        Taken
    }

    pub(crate) fn on_rej(&mut self, rej: &Rej, now: u64, shared: &mut Shared) -> Outcome {
        match self.state {
            State::RequestSent(_) | State::ReplySent(_) | State::RequestReceived
                if rej.reason != RejectReason::StaleConnection =>
            {
                self.end(shared);
            }
            State::RequestSent(_) | State::ReplySent(_) | State::RequestReceived => {
                self.enter_time_wait(now, shared);
            }
            State::DisconnectSent(_) | State::ReplyReceived | State::Established => {
                self.enter_time_wait(now, shared);
            }
            State::Lingering(_) => {
                self.end(shared);
                return Taken;
            }
            State::DisconnectReceived | State::TimeWait | State::Over => return Ignored,
        }
        let private_data = Box::new(rej.private_data);
        let (reason, cause) = (rej.reason, Cause::of(rej));
        shared.happened(self.id, Happened::Rejected { reason, cause, private_data });
        Taken
    }

    pub(crate) fn on_dreq(
        &mut self,
        dreq: &Dreq,
        transaction: u64,
        shared: &mut Shared,
    ) -> Outcome {
        if dreq.remote_qpn != self.qpn {
            return Ignored;
        }
        match self.state {
            State::ReplySent(_) | State::DisconnectSent(_) | State::Established => {
                shared.timers.cancel(self.id);
                self.peer.transaction = transaction;
                self.state = State::DisconnectReceived;
                self.ended(false, shared);
                Taken
            }
            State::TimeWait | State::Over => {
                self.send_drep(transaction, shared);
                Taken
            }
            State::Lingering(_) => {
                self.send_drep(transaction, shared);
                self.end(shared);
                Taken
            }
            _ => Ignored,
        }
    }

    pub(crate) fn on_drep(&mut self, now: u64, shared: &mut Shared) -> Outcome {
        match self.state {
            State::DisconnectSent(_) | State::DisconnectReceived => {
                self.enter_time_wait(now, shared);
                self.ended(false, shared);
            }
            State::Lingering(_) => self.end(shared),
            _ => return Ignored,
        }
        Taken
    }

    /// Whether it has sent this message to this address, and waits for its answer.
    pub(crate) fn waits_for_answer(&self, to: IpAddr, mad: &Mad) -> bool {
        let waits = match &self.state {
            State::RequestSent(retransmission)
            | State::ReplySent(retransmission)
            | State::DisconnectSent(retransmission)
            | State::Lingering(retransmission) => retransmission.is(mad),
            _ => false,
        };
        waits && self.peer.is_at(to)
    }

    /// Its request, if that waits for an answer and was repeated.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        match &self.state {
            State::RequestSent(retransmission) => retransmission.unanswered(),
            _ => None,
        }
    }

    /// Whether it has sent a request to this address and has no answer yet.
    pub(crate) fn requests_from(&self, to: IpAddr) -> bool {
        matches!(self.state, State::RequestSent(_)) && self.peer.is_at(to)
    }

    /// Its message has reached nobody (rule CM-70). So a process that was there before has ended.
    pub(crate) fn on_nobody(&mut self, now: u64, why: Nobody, shared: &mut Shared) {
        match (&mut self.state, why) {
            (State::RequestSent(retransmission), _) => match retransmission.came_to_nobody(now) {
                InVain::Known => {}
                InVain::Again(deadline) => shared.timers.set(self.id, deadline),
                InVain::Enough => {
                    self.end(shared);
                    shared.happened(self.id, why.of_connection());
                }
            },
            // The message is repeated at its usual time. There may be a route then.
            (_, Nobody::NoWay) => {}
            (State::ReplySent(_), Nobody::NoProcess) => {
                self.end(shared);
                shared.happened(self.id, Happened::Unreachable);
            }
            (State::DisconnectSent(_), Nobody::NoProcess) => {
                self.enter_time_wait(now, shared);
                self.ended(false, shared);
            }
            (State::Lingering(_), Nobody::NoProcess) => self.end(shared),
            _ => {}
        }
    }

    /// The timer has expired.
    pub(crate) fn on_timeout(&mut self, now: u64, shared: &mut Shared) {
        let again = match &mut self.state {
            State::RequestSent(retransmission)
            | State::ReplySent(retransmission)
            | State::Lingering(retransmission)
            | State::DisconnectSent(retransmission) => {
                retransmission.again(now).map(|mad| (mad, retransmission.deadline(now)))
            }
            State::TimeWait => {
                self.state = State::Over;
                if self.disconnected {
                    shared.happened(self.id, Happened::TimewaitExit);
                }
                return;
            }
            _ => return,
        };
        if let Some((mad, deadline)) = again {
            self.peer.send(mad, shared);
            shared.timers.set(self.id, deadline);
            return;
        }
        self.give_up(now, shared);
    }

    /// Its message has got no answer, and is not repeated any more.
    pub(crate) fn give_up(&mut self, now: u64, shared: &mut Shared) {
        match self.state {
            State::RequestSent(_) | State::ReplySent(_) => {}
            State::DisconnectSent(_) => {
                self.enter_time_wait(now, shared);
                return self.ended(true, shared);
            }
            State::Lingering(_) => return self.end(shared),
            _ => return,
        }
        // Tell the peer, so that it does not wait any longer if it still exists (rule CM-27).
        let guid = shared.guid();
        self.send_rej(Rejected::Other, RejectReason::Timeout, guid, [0; _], shared);
        self.end(shared);
        shared.happened(self.id, Happened::Unreachable);
    }
}
