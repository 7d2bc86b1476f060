//! Calls of programs about a connection.

use transom_wire::cm::{
    Bits, Ece, Information, Mad, Message, Qpn, RejectReason, Rejected, Rep, Transport,
};

use super::{Connection, Retransmission, Role, State};
use crate::cause::Cause;
use crate::refused::Refused;
use crate::shared::{Shared, padded};

/// A program's parameters for a connection that it accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyParameters<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) srq: bool,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry_count: Bits<3>,
    pub(crate) ece: Ece,
    pub(crate) private_data: &'a [u8],
}

impl Connection {
    /// Sends a REP.
    pub(crate) fn accept(
        &mut self,
        parameters: &ReplyParameters<'_>,
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        if !matches!(self.state, State::RequestReceived) {
            return Err(self.not_now("rdma_accept takes the id of a CONNECT_REQUEST, once"));
        }
        let private_data = padded(parameters.private_data)?;
        let receives_only = self.transport == Transport::Xrc;
        let none = Qpn::default();
        let rep = Rep {
            local_id: self.id,
            remote_id: self.peer.id,
            ece: parameters.ece,
            qkey: 0,
            qpn: if receives_only { none } else { parameters.qpn },
            eecn: if receives_only { parameters.qpn } else { none },
            starting_psn: self.psn,
            responder_resources: parameters.responder_resources,
            initiator_depth: if receives_only { 0 } else { parameters.initiator_depth },
            target_ack_delay: shared.config.ack_delay,
            failover: Bits::low(0),
            flow_control: parameters.flow_control && !receives_only,
            rnr_retry_count: parameters.rnr_retry_count,
            srq: parameters.srq || receives_only,
            ca_guid: shared.config.node_guid,
            private_data,
        };
        self.qpn = parameters.qpn;
        self.agreed.accept(parameters);
        let mad = Mad { transaction: self.peer.transaction, message: Message::Rep(rep) };
        self.state = State::ReplySent(self.begin(mad, now, shared));
        Ok(())
    }

    /// Sends a REJ.
    pub(crate) fn reject(
        &mut self,
        reason: RejectReason,
        private_data: &[u8],
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        let rejected = match self.state {
            State::RequestReceived => Rejected::Req,
            State::ReplyReceived => Rejected::Rep,
            State::RequestSent(_) | State::ReplySent(_) => Rejected::Other,
            _ => return Err(self.not_now("rdma_reject takes an id that is not connected yet")),
        };
        let private_data = padded(private_data)?;
        let information = match reason {
            RejectReason::Consumer => Cause::Program.information(),
            _ => Information::NONE,
        };
        self.send_rej(rejected, reason, information, private_data, shared);
        match self.state {
            State::ReplySent(_) => self.enter_time_wait(now, shared),
            _ => self.end(shared),
        }
        Ok(())
    }

    /// Sends an RTU, because the queue pair is ready.
    pub(crate) fn establish(&mut self, shared: &mut Shared) -> Result<(), Refused> {
        if !matches!(self.state, State::ReplyReceived) {
            return Err(self.not_now("rdma_establish takes an id that has had CONNECT_RESPONSE"));
        }
        self.state = State::Established;
        self.send_rtu(shared);
        Ok(())
    }

    /// The peer's data has come, so it has the REP (rule CM-47).
    pub(crate) fn notify(&mut self, shared: &mut Shared) -> Result<(), Refused> {
        match self.state {
            State::ReplySent(_) => self.established(shared),
            State::Established => return Err(Refused::Connected),
            _ => return Err(self.not_now("rdma_notify takes an id that has accepted")),
        }
        Ok(())
    }

    /// Ends it, or confirms that the peer has ended it. In other phases it does nothing.
    pub(crate) fn disconnect(&mut self, now: u64, shared: &mut Shared) {
        match self.state {
            State::Established => {
                let mad = self.dreq(shared);
                self.state = State::DisconnectSent(self.begin(mad, now, shared));
            }
            State::DisconnectReceived => {
                self.send_drep(self.peer.transaction, shared);
                self.enter_time_wait(now, shared);
            }
            _ => {}
        }
    }

    /// The id is destroyed (rule CM-28). A DREQ is repeated until it is confirmed, and the program does not wait for
    /// that. So a lost DREQ does not leave the peer connected to nobody.
    pub(crate) fn destroy(&mut self, now: u64, shared: &mut Shared) {
        let rejected = match std::mem::replace(&mut self.state, State::Over) {
            State::RequestSent(_) => {
                let guid = shared.guid();
                self.send_rej(Rejected::Other, RejectReason::Timeout, guid, [0; _], shared);
                None
            }
            State::RequestReceived => Some(Rejected::Req),
            State::ReplyReceived => Some(Rejected::Rep),
            State::ReplySent(_) => Some(Rejected::Other),
            // Other programs may use the queue pair too.
            State::Established
                if self.transport == Transport::Xrc && self.role == Role::Passive =>
            {
                None
            }
            State::Established => {
                let mad = self.dreq(shared);
                return self.linger(self.begin(mad, now, shared), shared);
            }
            State::DisconnectSent(retransmission) => return self.linger(retransmission, shared),
            State::DisconnectReceived => {
                self.send_drep(self.peer.transaction, shared);
                None
            }
            State::TimeWait | State::Lingering(_) | State::Over => None,
        };
        if let Some(rejected) = rejected {
            let (reason, cause) = (RejectReason::Consumer, Cause::Destroyed.information());
            self.send_rej(rejected, reason, cause, [0; _], shared);
        }
        self.end(shared);
    }

    fn linger(&mut self, retransmission: Retransmission, shared: &mut Shared) {
        self.peer.forget(shared);
        self.state = State::Lingering(retransmission);
    }

    /// Whether it outlives its id.
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.state, State::Lingering(_))
    }
}
