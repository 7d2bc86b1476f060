//! The common beginning of tests of packets: queue pairs that send to themselves over a network that fills up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use transom_device::Access;
use transom_device::execution::RequesterLimits;
use transom_device::qp::{Mask, QpState, Service};
use transom_device::queue::{
    Body, Completion, CompletionOptions, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use transom_net::udp::{Port, SendError, Way};
use transom_net::{Network, Run};
use transom_system::addresses::LOOPBACK;

use crate::Adapter;
use crate::events::EventQueue;
use crate::objects::{
    Cq, CqConfig, MemoryRegion, ProtectionDomain, QpAttributes, QpConfig, QpReceives, QueuePair,
    Registration,
};

const UNCONNECTED: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::ACCESS_FLAGS);
const TO_PEER: Mask = Mask::AV.union(Mask::PATH_MTU).union(Mask::DEST_QPN).union(Mask::RQ_PSN);
const RESPONDS: Mask = Mask::MAX_DEST_RD_ATOMIC.union(Mask::MIN_RNR_TIMER);
const RETRIES: Mask = Mask::TIMEOUT.union(Mask::RETRY_CNT).union(Mask::RNR_RETRY);
const REQUESTS: Mask = RETRIES.union(Mask::MAX_QP_RD_ATOMIC);

/// A network that has room for so many sends, and then for one send none.
pub(super) struct FillsUp(pub(super) AtomicU32);

impl Network for FillsUp {
    fn most_segments(&self, most: usize) -> usize {
        most
    }

    fn send(&self, port: &Port, way: &Way, run: &Run<'_>) -> Result<usize, SendError> {
        match self.0.fetch_sub(1, Relaxed) {
            0 => Err(SendError::Busy),
            _ => port.send(way, run.bytes, run.size),
        }
    }

    fn send_due(&self, _: &Port, _: u64) {}

    fn deadline(&self) -> Option<u64> {
        None
    }
}

/// A queue pair that sends to itself.
pub(super) fn queue_pair(adapter: &Arc<Adapter>, service: Service, timeout: u8) -> Arc<QueuePair> {
    let events = Arc::new(EventQueue::new().expect("a queue of events"));
    let (options, channel) = (CompletionOptions::default(), None);
    let config = CqConfig {
        capacity: 128,
        asked: 128,
        options,
        channel,
        events: events.clone(),
        id: 0,
        context: None,
    };
    let cq = Arc::new(Cq::new(adapter.device(), config).expect("a completion queue"));
    let send = RequesterLimits { size: 128, max_sge: 1, inline_room: 0, signal_all: true };
    let config = QpConfig {
        pd: ProtectionDomain::allocate(adapter.device(), None),
        service,
        send_cq: Some(cq.clone()),
        receive_cq: Some(cq),
        send,
        receives: QpReceives::Own { size: 16, max_sge: 1 },
        events,
        id: 0,
    };
    let qp = QueuePair::create(adapter, config).expect("a queue pair");
    let number = qp.number().bits();
    let attributes = QpAttributes {
        destination: Some(LOOPBACK),
        port: 1,
        path_mtu: 3,
        dest_qpn: number,
        access: Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC).bits(),
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        timeout,
        ..QpAttributes::reset()
    };
    let (responds, requests) = match service {
        Service::Rc => (RESPONDS, REQUESTS),
        _ => (Mask::empty(), Mask::empty()),
    };
    for (state, mask) in [
        (QpState::Init, UNCONNECTED),
        (QpState::Rtr, TO_PEER | responds),
        (QpState::Rts, Mask::SQ_PSN | requests),
    ] {
        let new = QpAttributes { state, ..attributes };
        qp.modify(&new, mask | Mask::STATE).expect("it goes to the next state");
    }
    qp
}

/// All of this memory, registered with every right.
pub(super) fn registered<T>(pd: &Arc<ProtectionDomain>, memory: &[T]) -> MemoryRegion {
    let (address, length) = (memory.as_ptr() as u64, size_of_val(memory) as u64);
    let access = Access::LOCAL_WRITE.union(Access::REMOTE);
    let registration = Registration { address, length, iova: address, access };
    MemoryRegion::register(pd, registration).expect("a region")
}

/// A message whose completion is seen.
pub(super) fn message(wr_id: u64, body: Body, sges: &[Sge]) -> SendRequest<'_> {
    let (op, flags) = (SendOp::Message(body), SendFlags::SIGNALED);
    SendRequest { wr_id, op, flags, sges, inline: None, remote: Remote::Connected }
}

/// Polls until so many requests have completed, all of them well. Returns their ids, in order.
pub(super) fn completed(adapter: &Adapter, cq: &Cq, count: usize, what: &str) -> Vec<u64> {
    let (mut done, start) = (Vec::new(), Instant::now());
    while done.len() < count {
        let each = |_: usize, completion: &Completion| {
            assert_eq!(completion.status, Status::Success, "{what}");
            done.push(completion.wr_id);
        };
        adapter.poll(cq, 2, each).expect("no overrun");
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
    }
    done
}
