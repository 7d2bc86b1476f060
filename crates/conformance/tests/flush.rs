//! FLUSH, which the device has and this version of the verbs does not: the origin is a queue pair
//! below the verbs, the target one of theirs.

use std::sync::Arc;

use transom_abi::*;
use transom_conformance::access::NOTHING;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_device::execution::RequesterLimits;
use transom_device::protection::Key;
use transom_device::qp::{Mask, QpState, Service};
use transom_device::queue::{
    Completion, Opcode, Placement, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use transom_host::objects::{
    Cq, CqConfig, EventPipe, QpAttributes, QpConfig, QpReceives, QueuePair,
};
use transom_host::{Adapter, Copying, Options};
use transom_ibverbs::open_context;

const FLUSH_GLOBAL: u32 = 1 << 8;

/// An origin below the verbs, and a target.
struct Rig {
    adapter: Arc<Adapter>,
    cq: Arc<Cq>,
    config: QpConfig,
    end: End,
    far: Buffer,
}

impl Rig {
    fn new(link: Link) -> Self {
        let copying = if link == Link::Shared { Copying::SharedMemory } else { Copying::Best };
        let options = Options { copying, ..Options::default() };
        let adapter = Adapter::open(options).expect("a device opens");
        let end = match link {
            Link::Loopback => End::on(open_context(adapter.clone())),
            Link::Local | Link::Shared => End::new(options),
        };
        let events = Arc::new(EventPipe::new().expect("a pipe"));
        let config = CqConfig {
            capacity: 16,
            options: Default::default(),
            channel: None,
            events: events.clone(),
            id: 0,
        };
        let cq = Arc::new(Cq::new(&adapter, config));
        let config = QpConfig {
            pd: adapter.allocate_domain(),
            service: Service::Rc,
            send_cq: Some(cq.clone()),
            receive_cq: Some(cq.clone()),
            send: RequesterLimits { size: 16, pieces: 4, inline_room: 64, signal_all: true },
            receives: QpReceives::Own { size: 1, pieces: 1 },
            events,
            id: 0,
        };
        Self { adapter, cq, config, end, far: Buffer::filled(8192, 7) }
    }

    /// Connected queue pairs of a service, the target's with these rights.
    fn connected(&self, service: Service, access: u32) -> (Arc<QueuePair>, *mut ibv_qp) {
        let config = QpConfig { service, ..self.config.clone() };
        let qa = QueuePair::create(&self.adapter, config).expect("a queue pair");
        let kind = if service == Service::Uc { IBV_QPT_UC } else { IBV_QPT_RC };
        let qb = self.end.qp(kind);
        let attr = ibv_qp_attr {
            dest_qp_num: qa.number().bits(),
            qp_access_flags: access,
            ..usual_attr(qb)
        };
        bring_up(qb, &attr);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let attributes = QpAttributes {
                state,
                path_mtu: IBV_MTU_1024,
                rq_psn: 17,
                sq_psn: 17,
                dest_qpn: number(qb),
                port: 1,
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                timeout: 8,
                retry_count: 1,
                rnr_retry: 7,
                ..QpAttributes::reset()
            };
            let mask = Mask::from_bits(mask_for(kind, state as u32)).expect("known bits");
            qa.modify(&attributes, mask).expect("a step of the table");
        }
        (qa, qb)
    }

    fn region(&self, access: u32) -> *mut ibv_mr {
        self.end.reg(&self.far, (IBV_ACCESS_LOCAL_WRITE | access) as i32)
    }

    /// Posts a request without data.
    fn post(&self, qa: &QueuePair, op: SendOp, flags: SendFlags, sges: &[Sge]) {
        let remote = Remote::Connected;
        let request = SendRequest { wr_id: 3, op, flags, sges, inline: None, remote };
        qa.post_send(&request).expect("there is room");
    }

    /// The next completion of the origin.
    fn wait(&self) -> Completion {
        until("a completion", || {
            let mut found = None;
            self.adapter.poll(&self.cq, 1, |_, completion| found = Some(*completion));
            // The target makes progress, too.
            self.end.expect_nothing();
            found
        })
    }

    /// A FLUSH on queue pairs of its own; how it completes, and the target's event if it fails.
    fn flush(&self, access: u32, range: SendOp) -> (Status, Option<ibv_event_type>) {
        let (qa, qb) = self.connected(Service::Rc, access);
        self.post(&qa, range, SendFlags::empty(), &[]);
        let completion = self.wait();
        assert_eq!((completion.wr_id, completion.opcode), (3, Opcode::Flush));
        let event = (completion.status != Status::Success).then(|| {
            let (event, whose) = self.end.event();
            assert_eq!((whose, state(qb)), (qb.cast(), IBV_QPS_ERR));
            event
        });
        assert!(!self.end.has_event());
        assert_eq!(destroy_qp(qb), 0);
        qa.destroy().expect("it is in no group");
        (completion.status, event)
    }
}

/// A FLUSH of a range.
fn range(address: u64, length: u32, key: u32) -> SendOp {
    let (key, placement) = (Key(key), Placement::GLOBAL);
    SendOp::Flush { address, key, length, placement, whole: false }
}

/// A FLUSH of everything behind a key.
fn whole(key: u32) -> SendOp {
    let (key, placement) = (Key(key), Placement::GLOBAL);
    SendOp::Flush { address: 0, key, length: 0, placement, whole: true }
}

const ACCESS_ERROR: (Status, Option<ibv_event_type>) =
    (Status::RemoteAccess, Some(IBV_EVENT_QP_ACCESS_ERR));
const REQUEST_ERROR: (Status, Option<ibv_event_type>) =
    (Status::RemoteInvalidRequest, Some(IBV_EVENT_QP_REQ_ERR));
const DONE: (Status, Option<ibv_event_type>) = (Status::Success, None);

on_each_link! {
    /// Both the region and the queue pair grant it, by a right of its own.
    fn region_and_queue_pair_grant_it(link: Link) {
        let rig = Rig::new(link);
        let addr = rig.far.addr();
        let granting = keys(rig.region(FLUSH_GLOBAL)).1;
        let other = keys(rig.region(REMOTE)).1;
        for op in [range(addr, 8192, granting), range(addr + 1, 7, granting), whole(granting)] {
            assert_eq!(rig.flush(FLUSH_GLOBAL, op), DONE, "{op:?}");
            assert_eq!(rig.flush(FLUSH_GLOBAL | REMOTE, op), DONE, "{op:?}");
            assert_eq!(rig.flush(REMOTE, op), REQUEST_ERROR, "{op:?}");
            assert_eq!(rig.flush(0, op), REQUEST_ERROR, "{op:?}");
        }
        for op in [range(addr, 8, other), whole(other)] {
            assert_eq!(rig.flush(FLUSH_GLOBAL | REMOTE, op), ACCESS_ERROR, "{op:?}");
        }
    }

    /// The range lies within the region, of a key that is there.
    fn the_range_is_checked(link: Link) {
        let rig = Rig::new(link);
        let addr = rig.far.addr();
        let mr = rig.region(FLUSH_GLOBAL);
        let key = keys(mr).1;
        for (at, length, key) in [
            (addr + 8191, 2, key),
            (addr - 1, 8, key),
            (addr, 8193, key),
            (u64::MAX, 8, key),
            (addr, 8, key ^ 1),
            (addr, 8, 0x1234_5678),
        ] {
            assert_eq!(rig.flush(FLUSH_GLOBAL, range(at, length, key)), ACCESS_ERROR);
        }
        assert_eq!(rig.flush(FLUSH_GLOBAL, whole(0x1234_5678)), ACCESS_ERROR);
        let foreign = reg(rig.end.another_pd(), &rig.far, FLUSH_GLOBAL as i32);
        assert_eq!(rig.flush(FLUSH_GLOBAL, range(addr, 8, keys(foreign).1)), ACCESS_ERROR);
        assert_eq!(dereg(mr), 0);
        assert_eq!(rig.flush(FLUSH_GLOBAL, range(addr, 8, key)), ACCESS_ERROR);
    }

    /// Nobody is promised that memory outlives a loss of power.
    fn persistence_is_not_promised(link: Link) {
        let rig = Rig::new(link);
        let key = Key(keys(rig.region(FLUSH_GLOBAL)).1);
        for placement in [Placement::PERSISTENT, Placement::all()] {
            let (address, length) = (rig.far.addr(), 8);
            let op = SendOp::Flush { address, key, length, placement, whole: false };
            assert_eq!(rig.flush(FLUSH_GLOBAL, op), ACCESS_ERROR);
        }
    }

    /// Windows do not grant it.
    fn a_window_does_not_grant_it(link: Link) {
        let rig = Rig::new(link);
        let region = rig.region(REMOTE | IBV_ACCESS_MW_BIND | FLUSH_GLOBAL);
        let (_, qb) = rig.connected(Service::Rc, REMOTE);
        let mw = rig.end.mw(IBV_MW_TYPE_1);
        let range = |access| Range { mr: region, addr: rig.far.addr(), length: 4096, access };
        let key = bind(&rig.end, qb, mw, range(REMOTE));
        assert_eq!(rig.flush(FLUSH_GLOBAL, whole(key)), ACCESS_ERROR);
        // SAFETY: a live window.
        assert_eq!(unsafe { (*mw).rkey }, key);
        assert_eq!(bind1(qb, mw, 1, IBV_SEND_SIGNALED, NOTHING), 0);
        rig.end.expect(IBV_WC_SUCCESS);
    }

    /// It completes behind the WRITEs before it, whose bytes can be seen then.
    fn it_comes_behind_the_writes_before_it(link: Link) {
        let rig = Rig::new(link);
        let key = keys(rig.region(IBV_ACCESS_REMOTE_WRITE | FLUSH_GLOBAL)).1;
        let (qa, _) = rig.connected(Service::Rc, IBV_ACCESS_REMOTE_WRITE | FLUSH_GLOBAL);
        let address = rig.far.addr();
        for round in 1..50_u8 {
            let bytes = [round; 64];
            let op = SendOp::Write { address, key: Key(key), immediate: None };
            let request = SendRequest {
                wr_id: 2,
                op,
                flags: SendFlags::INLINE,
                sges: &[],
                inline: Some(&[&bytes]),
                remote: Remote::Connected,
            };
            qa.post_send(&request).expect("there is room");
            rig.post(&qa, range(address, 64, key), SendFlags::FENCE, &[]);
            for (wr_id, opcode) in [(2, Opcode::Write), (3, Opcode::Flush)] {
                let completion = rig.wait();
                assert_eq!((completion.wr_id, completion.opcode), (wr_id, opcode));
                assert_eq!(completion.status, Status::Success);
            }
            assert_eq!(rig.far.read(0, 64), bytes);
        }
    }

    /// It brings no data, and UC does not have it: both fail at the origin.
    fn it_fails_at_the_origin(link: Link) {
        let rig = Rig::new(link);
        let key = keys(rig.region(FLUSH_GLOBAL)).1;
        let op = range(rig.far.addr(), 8, key);
        let (qa, qb) = rig.connected(Service::Rc, FLUSH_GLOBAL);
        rig.post(&qa, op, SendFlags::empty(), &[Sge { address: 8, length: 8, key: 1 }]);
        assert_eq!(rig.wait().status, Status::LocalLength);
        assert_eq!(state(qb), IBV_QPS_RTS);
        let (qa, qb) = rig.connected(Service::Uc, FLUSH_GLOBAL);
        rig.post(&qa, op, SendFlags::empty(), &[]);
        assert_eq!(rig.wait().status, Status::LocalQpOperation);
        assert_eq!(state(qb), IBV_QPS_RTS);
        assert!(!rig.end.has_event());
    }
}
