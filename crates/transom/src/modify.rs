//! The state changes of a queue pair; see `ibv_modify_qp(3)`.

use crate::attributes::mtu_code;
use crate::created_queue_pair::CreatedQueuePair;
use crate::error::check;
use crate::{Context, Endpoint, Result};
use std::ffi::c_int;
use transom_abi::*;

/// A packet waits 4.096 µs times 2 to this power for an acknowledgement: 67 ms.
const TIMEOUT: u8 = 14;

/// How often a packet is resent without an acknowledgement. With 7, some devices never give up (rule RXE-20).
pub(crate) const RETRIES: u8 = 6;

/// Retries without end while the peer has no receive. Also what this end wants of the peer.
pub(crate) const RECEIVER_NOT_READY_RETRIES: u8 = 7;

/// A peer that sends while this side has no receive must wait 0.64 ms.
const RECEIVER_NOT_READY_TIMER: u8 = 12;

/// How many reads and atomics may be under way, up to the device's limit. Both sides must agree, so this is a number
/// that every device supports.
const READS: u32 = 16;

impl CreatedQueuePair {
    /// RESET to INIT. It allows all remote access: the keys decide what the peer may do.
    pub(crate) fn initialize(&self) -> Result<()> {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: self.creation.port,
            qkey: self.creation.qkey,
            ..ibv_qp_attr::default()
        };
        if self.creation.service != IBV_QPT_UD {
            attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
            if (Context { inner: self.device().clone() }).attributes()?.atomics {
                attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
            }
        }
        self.step(&mut attributes, "moving to INIT")
    }

    /// INIT to RTR, connected to the peer.
    pub(crate) fn ready_to_receive(&self, peer: &Endpoint) -> Result<()> {
        let route = ibv_global_route {
            dgid: ibv_gid { raw: peer.gid.0 },
            sgid_index: self.creation.gid_index,
            hop_limit: 64,
            traffic_class: self.creation.traffic_class.unwrap_or(0),
            ..ibv_global_route::default()
        };
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: mtu_code(self.local.mtu.min(peer.mtu)),
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: self.reads(|device| device.max_reads_served)?,
            min_rnr_timer: RECEIVER_NOT_READY_TIMER,
            ah_attr: ibv_ah_attr {
                grh: route,
                is_global: 1,
                dlid: peer.lid,
                port_num: self.creation.port,
                ..ibv_ah_attr::default()
            },
            ..ibv_qp_attr::default()
        };
        self.step(&mut attributes, &format!("connecting to {:#x} at {}", peer.qpn, peer.gid))
    }

    /// RTR to RTS.
    pub(crate) fn ready_to_send(&self) -> Result<()> {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: self.local.psn,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: self
                .creation
                .receiver_not_ready_retries
                .unwrap_or(RECEIVER_NOT_READY_RETRIES),
            max_rd_atomic: self.reads(|device| device.max_reads_outstanding)?,
            ..ibv_qp_attr::default()
        };
        self.step(&mut attributes, "moving to RTS")
    }

    /// Moves to the state in the connection manager's attributes, with its mask, and with what the builder has set.
    pub(crate) fn follow(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: c_int,
        step: &str,
    ) -> Result<()> {
        // The connection manager's value is 655 ms, too long for a peer that sends a little early.
        attributes.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
        if let Some(retries) = self.creation.receiver_not_ready_retries {
            attributes.rnr_retry = retries;
        }
        if let Some(class) = self.creation.traffic_class {
            attributes.ah_attr.grh.traffic_class = class;
        }
        self.modify(attributes, mask as ibv_qp_attr_mask, step)
    }

    /// How many reads and atomics of the peer can be under way, and how many of its own.
    pub(crate) fn reads_at_once(&self) -> Result<(u8, u8)> {
        Ok((
            self.reads(|device| device.max_reads_served)?,
            self.reads(|device| device.max_reads_outstanding)?,
        ))
    }

    /// INIT to RTR to RTS without a peer, for datagrams.
    pub(crate) fn ready_for_datagrams(&self) -> Result<()> {
        let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_RTR, ..ibv_qp_attr::default() };
        self.step(&mut attributes, "moving to RTR")?;
        self.ready_to_send()
    }

    /// SQE to RTS. In RTS it changes nothing.
    pub(crate) fn resume(&self) -> Result<()> {
        let mut mask = IBV_QP_STATE;
        let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_RTS, ..ibv_qp_attr::default() };
        if self.query_state()? == IBV_QPS_SQE {
            // Some drivers do not track this state.
            mask |= IBV_QP_CUR_STATE;
            attributes.cur_qp_state = IBV_QPS_SQE;
        }
        self.modify(&mut attributes, mask, "moving to RTS again")
    }

    /// Any state to ERR.
    pub(crate) fn fail(&self) -> Result<()> {
        let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        self.modify(&mut attributes, IBV_QP_STATE, "moving to ERR")
    }

    /// Moves to the next state on the way to RTS, with the attributes that the step requires.
    fn step(&self, attributes: &mut ibv_qp_attr, step: &str) -> Result<()> {
        let mask = required_attributes(self.creation.service, attributes.qp_state);
        self.modify(attributes, mask, step)
    }

    fn modify(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: ibv_qp_attr_mask,
        step: &str,
    ) -> Result<()> {
        let verbs = self.device().provider.verbs;
        // SAFETY: the queue pair exists and the attributes are valid.
        let result = unsafe { (verbs.ibv_modify_qp)(self.qp, attributes, mask as c_int) };
        check("ibv_modify_qp", format_args!("{step}, {self}"), result)
    }

    pub(crate) fn query_state(&self) -> Result<ibv_qp_state> {
        Ok(self.query(IBV_QP_STATE)?.qp_state)
    }

    pub(crate) fn query_capacity(&self) -> Result<ibv_qp_cap> {
        Ok(self.query(IBV_QP_CAP)?.cap)
    }

    fn query(&self, mask: ibv_qp_attr_mask) -> Result<ibv_qp_attr> {
        let verbs = self.device().provider.verbs;
        let mut attributes = ibv_qp_attr::default();
        let mut creation = ibv_qp_init_attr::default();
        let mask = mask as c_int;
        // SAFETY: the queue pair exists and the places to write are valid.
        let result =
            unsafe { (verbs.ibv_query_qp)(self.qp, &raw mut attributes, mask, &raw mut creation) };
        check("ibv_query_qp", format_args!("querying {self}"), result)?;
        Ok(attributes)
    }

    fn reads(&self, limit: impl Fn(&crate::DeviceAttributes) -> u32) -> Result<u8> {
        let attributes = Context { inner: self.device().clone() }.attributes()?;
        Ok(limit(&attributes).min(READS) as u8)
    }
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use crate::{
        CompletionQueue, Connector, Listener, ProtectionDomain, Provider, QueuePair, XrcDomain,
    };
    use std::thread;
    use transom_abi::{IBV_QP_AV, IBV_QP_RNR_RETRY};

    /// However it is connected.
    #[test]
    fn a_queue_pair_sends_as_it_was_built_to() {
        let provider = Provider::software();
        let context = crate::devices(&provider).unwrap()[0].open().unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 16).unwrap();
        let sends = |created: &super::CreatedQueuePair| {
            let attributes = created.query(IBV_QP_AV | IBV_QP_RNR_RETRY).unwrap();
            (attributes.ah_attr.grh.traffic_class, attributes.rnr_retry)
        };
        let plain = QueuePair::builder(&pd, &cq);
        let set = plain.clone().traffic_class(0x68).receiver_not_ready_retries(2);
        for (builder, expected) in [(&plain, (0, 7)), (&set, (0x68, 2))] {
            let queue_pair = builder.build().unwrap();
            let itself = queue_pair.endpoint();
            assert_eq!(sends(&queue_pair.connect(&itself).unwrap().inner), expected);

            let listener = Listener::bind(&provider, "127.0.0.1:0".parse().unwrap()).unwrap();
            let connecting = Connector::new(listener.local_address());
            let connecting = connecting.connect(builder.build().unwrap()).unwrap();
            let client = thread::spawn(|| connecting.wait().unwrap());
            let request = listener.accept().wait().unwrap();
            let server = request.accept(builder.build().unwrap(), b"").unwrap().wait().unwrap();
            for end in [client.join().unwrap(), server] {
                assert_eq!(sends(&end.queue_pair().inner), expected);
            }
        }
        let initiator = QueuePair::xrc_initiator(&pd, &cq).traffic_class(0x68);
        let initiator = initiator.receiver_not_ready_retries(2).build().unwrap();
        let target = QueuePair::xrc_target(&XrcDomain::private(&context).unwrap()).build().unwrap();
        let initiator = initiator.connect(&target.endpoint()).unwrap();
        assert_eq!(sends(&initiator.inner), (0x68, 2));
    }
}
