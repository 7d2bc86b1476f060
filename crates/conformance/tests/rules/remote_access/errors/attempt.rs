//! Bringing an error about on a link, and what both ends then see.

use std::fmt;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::explained::explains;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_device::protection::Reason;
use transom_host::Options;

use super::case::{Case, Fault, Op, Service, WORD};

/// A key that nobody has.
const NOBODYS: u32 = 0xdead_beef;
/// What a request without a fault does not reach beyond.
const ROOM: usize = 2 << 20;
const PAGE: usize = 4096;
/// A group that does not leave this host.
const GROUP: [u8; 16] = [0xff, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77];
/// The target's receives.
const RECEIVES: [u64; 2] = [1, 2];

/// What both ends have seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The request and the one behind it: status and `vendor_err`.
    origin: Vec<(ibv_wc_status, u32)>,
    /// Receives that completed: which, how, and for what reason.
    target: Vec<(u64, ibv_wc_status, u32)>,
    origin_events: Vec<ibv_event_type>,
    target_events: Vec<ibv_event_type>,
    /// `None` if it is no more.
    states: [Option<ibv_qp_state>; 2],
}

impl Outcome {
    /// The same over a link: a NAK has no room for the reason.
    pub(crate) fn on(&self, link: Link) -> Self {
        let mut same = self.clone();
        for (status, reason) in &mut same.origin {
            let remote = [IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR];
            if link == Link::Wire && remote.contains(status) {
                *reason = 0;
            }
        }
        same
    }

    /// As cells of the table.
    pub(crate) fn cells(&self) -> String {
        let origin = self.origin.iter().map(|(status, reason)| ended(*status, *reason));
        let target = self.target.iter().map(|(_, status, reason)| ended(*status, *reason));
        let events = |events: &[ibv_event_type]| listed(events.iter().map(|it| event_name(*it)));
        let states = self.states.map(|state| state.map_or("–", state_name)).join(", ");
        assert!(self.origin_events.is_empty(), "the origin has completions");
        let (origin, target) = (listed(origin), listed(target));
        format!("{origin} | {target} | {} | {states}", events(&self.target_events))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.target.iter().map(|(number, ..)| *number).collect();
        let names: Vec<_> = self.origin_events.iter().map(|it| event_name(*it)).collect();
        let rest = Self { origin_events: Vec::new(), ..self.clone() };
        write!(f, "{} (receives {numbers:?}, origin's events {names:?})", rest.cells())
    }
}

fn listed(each: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = each.collect();
    if all.is_empty() { "–".to_owned() } else { all.join(", ") }
}

/// Statuses, without what the names of all begin with.
const NAMES: [&str; 14] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
];

fn ended(status: ibv_wc_status, reason: u32) -> String {
    let name = status_name(status);
    match u8::try_from(reason).ok().and_then(Reason::from_code) {
        Some(reason) => format!("{name} ({reason:?})"),
        None => name.to_owned(),
    }
}

fn event_name(event: ibv_event_type) -> String {
    let name = match event {
        IBV_EVENT_CQ_ERR => "CQ_ERR",
        IBV_EVENT_QP_FATAL => "QP_FATAL",
        IBV_EVENT_QP_REQ_ERR => "QP_REQ_ERR",
        IBV_EVENT_QP_ACCESS_ERR => "QP_ACCESS_ERR",
        IBV_EVENT_QP_LAST_WQE_REACHED => "QP_LAST_WQE_REACHED",
        other => return other.to_string(),
    };
    name.to_owned()
}

fn state_name(state: ibv_qp_state) -> &'static str {
    match state {
        IBV_QPS_RESET => "RESET",
        IBV_QPS_INIT => "INIT",
        IBV_QPS_RTR => "RTR",
        IBV_QPS_RTS => "RTS",
        IBV_QPS_SQE => "SQE",
        IBV_QPS_ERR => "ERR",
        _ => "?",
    }
}

/// Two ends on a link, and a connection between them that works.
pub(crate) struct Ends {
    a: End,
    b: End,
    follower: Follower,
}

impl Ends {
    pub(crate) fn new(link: Link) -> Self {
        let (a, b) = ends(link, Options::default());
        let follower = Follower::new(&a, &b);
        Self { a, b, follower }
    }

    /// Brings an error about.
    pub(crate) fn outcome(&self, case: &Case) -> Outcome {
        let attempt = Attempt::new(self, *case);
        // What is posted behind a request that has gone out may be carried out although it fails.
        let origin = [Attempt::post, Attempt::post_behind].map(|post| {
            post(&attempt);
            self.a.wait()
        });
        assert_eq!(origin.map(|wc| wc.wr_id), [1, 2]);
        // What was on its way has come.
        self.follower.follow();
        let target: Vec<_> = std::iter::from_fn(|| poll(self.b.cq)).collect();
        attempt.is_explained(&origin, &target);
        let target = target.iter().map(|wc| (wc.wr_id, wc.status, wc.vendor_err)).collect();
        let (origin_events, target_events) = (events(&self.a), events(&self.b));
        let states = [attempt.qa, attempt.qb].map(|qp| (!qp.is_null()).then(|| state(qp)));
        self.a.expect_nothing();
        attempt.end();
        Outcome {
            origin: origin.iter().map(|wc| (wc.status, wc.vendor_err)).collect(),
            target,
            origin_events,
            target_events,
            states,
        }
    }
}

/// All events that are there now, acknowledged.
fn events(end: &End) -> Vec<ibv_event_type> {
    std::iter::from_fn(|| end.has_event().then(|| end.event().0)).collect()
}

/// The name of a status.
fn status_name(status: ibv_wc_status) -> &'static str {
    NAMES.get(status as usize).copied().unwrap_or("?")
}

/// Queue pairs and memory for one error.
struct Attempt<'a> {
    ends: &'a Ends,
    case: Case,
    near: Buffer,
    far: Buffer,
    inbox: Buffer,
    qa: *mut ibv_qp,
    /// Null if it is no more.
    qb: *mut ibv_qp,
    /// Its number.
    number: u32,
    /// The shared receive queue, or null.
    srq: *mut ibv_srq,
    xrcd: *mut ibv_xrcd,
}

impl<'a> Attempt<'a> {
    /// Asserts that each completion in error has a sentence, at either end.
    fn is_explained(&self, origin: &[ibv_wc], target: &[ibv_wc]) {
        let (qa, qb) = (number(self.qa), self.number);
        let ends = [(qa, qb, origin), (qb, qa, target)];
        for (here, there, completions) in ends {
            for wc in completions.iter().filter(|wc| wc.status != IBV_WC_SUCCESS) {
                let status = format!("IBV_WC_{}", status_name(wc.status));
                let explained = explains(here, there, &status, wc.wr_id);
                assert!(explained, "{}: nothing explains {status} of QP {here:#x}", self.case);
            }
        }
    }

    fn new(ends: &'a Ends, case: Case) -> Self {
        let (a, b) = (&ends.a, &ends.b);
        let kind = match case.service {
            Service::Rc | Service::RcShared => IBV_QPT_RC,
            Service::Uc => IBV_QPT_UC,
            Service::Ud => IBV_QPT_UD,
            Service::Xrc => IBV_QPT_XRC_SEND,
        };
        let qa = if kind == IBV_QPT_RC { qp_ex(a, kind, IBV_QP_EX_WITH_FLUSH) } else { a.qp(kind) };
        let (mut shared, mut domain) = (null_mut(), null_mut());
        let qb = match case.service {
            Service::RcShared => {
                shared = srq(b.pd, 4);
                qp_of_srq(b, kind, shared)
            }
            Service::Xrc => {
                domain = xrcd(b.context);
                let init = xrc_srq_init(b.pd, domain, b.cq);
                shared = try_srq_ex(b.context, &init).expect("a queue");
                xrc_target(b.context, domain)
            }
            _ => b.qp(kind),
        };
        let [near, far, inbox] = [(); 3].map(|()| Buffer::apart(ROOM));
        let (srq, xrcd, number) = (shared, domain, number(qb));
        let mut attempt = Self { ends, case, near, far, inbox, qa, qb, number, srq, xrcd };
        attempt.connect();
        if !case.fault.leaves_no_receive() {
            attempt.receive();
        }
        attempt.spoil_target();
        attempt
    }

    /// Connects both ends, with what is wrong with that.
    fn connect(&self) {
        let Case { service, fault, .. } = self.case;
        if service == Service::Ud {
            [self.qa, self.qb].iter().for_each(|qp| bring_up_ud(*qp, QKEY));
            return;
        }
        let (timeout, retry_cnt) = if fault.is_silence() { (11, 1) } else { (19, 7) };
        let usual = |peer| ibv_qp_attr {
            timeout,
            retry_cnt,
            rnr_retry: if fault.leaves_no_receive() { 1 } else { 7 },
            qp_access_flags: REMOTE | IBV_ACCESS_FLUSH_GLOBAL,
            ..usual_attr(peer)
        };
        let (mut origin, mut target) = (usual(self.qb), usual(self.qa));
        match fault {
            Fault::NoReadsAsked => origin.max_rd_atomic = 0,
            Fault::NoReadsAnswered => target.max_dest_rd_atomic = 0,
            Fault::QpRight => target.qp_access_flags = 0,
            Fault::OtherPsn => origin.sq_psn = target.rq_psn + 1000,
            Fault::NoSuchNumber => origin.dest_qp_num = self.ended_number(),
            _ => {}
        }
        match fault {
            Fault::TargetInit => assert_eq!(modify(self.qb, &target, IBV_QPS_INIT), 0),
            _ => bring_up(self.qb, &target),
        }
        bring_up(self.qa, &origin);
    }

    /// The number of a queue pair of the target's process that is no more.
    fn ended_number(&self) -> u32 {
        let ended = self.ends.b.qp(IBV_QPT_UD);
        let number = number(ended);
        assert_eq!(destroy_qp(ended), 0);
        number
    }

    /// Posts the target's receives.
    fn receive(&self) {
        let Case { service, op, fault, length } = self.case;
        let front = if service == Service::Ud { GRH as u32 } else { 0 };
        let (b, all) = (&self.ends.b, self.ends.b.reg(&self.inbox, ALL));
        let length = if op.receives() { front + length } else { front };
        let mut first = sge(self.inbox.addr(), length, all);
        // The request behind brings no data.
        let behind = sge(self.inbox.addr() + (ROOM - PAGE) as u64, front, all);
        match fault {
            Fault::ShortReceive => first.length -= 1,
            Fault::ReceiveKey => first.lkey = NOBODYS,
            Fault::ReceiveRight => first.lkey = keys(b.reg(&self.inbox, 0)).0,
            Fault::ReceivePd => first.lkey = keys(reg(b.another_pd(), &self.inbox, ALL)).0,
            Fault::ReceiveGone => self.inbox.unmap(0, ROOM - PAGE),
            _ => {}
        }
        for (number, element) in RECEIVES.into_iter().zip([first, behind]) {
            let mut sges = [element];
            if self.srq.is_null() {
                recv(self.qb, number, &mut sges);
            } else {
                srq_recv(self.srq, number, &mut sges);
            }
        }
    }

    fn spoil_target(&mut self) {
        match self.case.fault {
            Fault::TargetReset => assert_eq!(set_state(self.qb, IBV_QPS_RESET), 0),
            Fault::TargetError => assert_eq!(set_state(self.qb, IBV_QPS_ERR), 0),
            Fault::TargetEnded => {
                assert_eq!(destroy_qp(self.qb), 0);
                self.qb = null_mut();
            }
            _ => {}
        }
    }

    /// What the request names of the target: an address and a key.
    fn named(&self) -> (u64, u32) {
        let (b, far) = (&self.ends.b, &self.far);
        let Case { op, fault, length, .. } = self.case;
        let rights = ALL | IBV_ACCESS_FLUSH_GLOBAL as i32;
        let key = keys(b.reg(far, rights)).1;
        let end = |whole: usize| far.addr() + whole as u64 - u64::from(length) + 8;
        match fault {
            Fault::UnknownKey | Fault::NoReceiveUnknownKey | Fault::InvalidatesNothing => {
                (far.addr(), NOBODYS)
            }
            Fault::StaleKey => (far.addr(), key ^ 1),
            Fault::EndedRegion => {
                let region = b.reg(far, rights);
                let key = keys(region).1;
                assert_eq!(dereg(region), 0);
                (far.addr(), key)
            }
            Fault::OtherPd => (far.addr(), keys(reg(b.another_pd(), far, rights)).1),
            Fault::RightMissing => (far.addr(), keys(b.reg(far, IBV_ACCESS_LOCAL_WRITE as i32)).1),
            Fault::BelowStart => (far.addr() - 8, key),
            Fault::PastEnd => (end(ROOM), key),
            Fault::Wraps => (u64::MAX - 3, key),
            Fault::Gone => {
                far.unmap(0, ROOM);
                (far.addr(), key)
            }
            Fault::Unbound => (far.addr(), rkey(b.mw(IBV_MW_TYPE_1))),
            Fault::BeyondWindow => (end(PAGE), self.window(b.mw(IBV_MW_TYPE_1), self.qb)),
            Fault::OtherOwner => {
                let owner = b.qp(IBV_QPT_RC);
                take_to(b, owner, IBV_QPS_RTS);
                (far.addr(), self.window(b.mw(IBV_MW_TYPE_2), owner))
            }
            Fault::Misaligned => (far.addr() + 1, key),
            Fault::InvalidatesRegion => (far.addr(), key),
            // One that may be invalidated.
            _ if op == Op::SendInvalidate => {
                (far.addr(), self.window(b.mw(IBV_MW_TYPE_2), self.qb))
            }
            _ => (far.addr(), key),
        }
    }

    /// Binds a window of the target to the first page of its memory; its key.
    fn window(&self, mw: *mut ibv_mw, qp: *mut ibv_qp) -> u32 {
        let mr = self.ends.b.reg(&self.far, ALL);
        let range = Range { mr, addr: self.far.addr(), length: PAGE as u64, access: REMOTE };
        bind(&self.ends.b, qp, mw, range)
    }

    /// The origin's memory.
    fn sge(&self) -> ibv_sge {
        let (a, near) = (&self.ends.a, &self.near);
        let mut element = sge(near.addr(), self.case.length, a.reg(near, ALL));
        match self.case.fault {
            Fault::LocalKey => element.lkey = NOBODYS,
            Fault::LocalBounds => element.addr += ROOM as u64 - 4,
            Fault::LocalRight => element.lkey = keys(a.reg(near, 0)).0,
            Fault::LocalPd => element.lkey = keys(reg(a.another_pd(), near, ALL)).0,
            Fault::LocalGone => near.unmap(0, ROOM),
            Fault::WordLength => element.length = 4,
            Fault::TooLong => element.length = (1 << 31) + 1,
            Fault::DatagramTooLong => element.length = 4097,
            _ => {}
        }
        element
    }

    /// Posts the request.
    fn post(&self) {
        let Case { op, fault, .. } = self.case;
        let (a, (address, key)) = (&self.ends.a, self.named());
        let mut sges = [self.sge()];
        let data = |opcode, sges: &mut [ibv_sge]| rdma_wr(opcode, sges, address, key);
        let word = |opcode, sges: &mut [ibv_sge]| atomic_wr(opcode, sges, address, key, 1, 2);
        let request = match op {
            Op::Send => with_sges(wr(IBV_WR_SEND), &mut sges),
            Op::SendImmediate => with_sges(wr(IBV_WR_SEND_WITH_IMM), &mut sges),
            Op::SendInvalidate => {
                let mut request = with_sges(wr(IBV_WR_SEND_WITH_INV), &mut sges);
                request.imm.invalidate_rkey = key;
                request
            }
            Op::Write => data(IBV_WR_RDMA_WRITE, &mut sges),
            Op::WriteImmediate => data(IBV_WR_RDMA_WRITE_WITH_IMM, &mut sges),
            Op::Read => data(IBV_WR_RDMA_READ, &mut sges),
            Op::FetchAdd => word(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sges),
            Op::CompareSwap => word(IBV_WR_ATOMIC_CMP_AND_SWP, &mut sges),
            Op::AtomicWrite => data(IBV_WR_ATOMIC_WRITE, &mut sges),
            Op::Flush => {
                let code = Builder::of(self.qa).batch(|build| {
                    build.signaled(1).flush(key, address, WORD as usize, 1, IBV_FLUSH_RANGE);
                });
                assert_eq!(code, 0);
                return;
            }
            Op::Bind => {
                let (mr, addr) = (a.reg(&self.near, ALL), self.near.addr() + ROOM as u64);
                let range = Range { mr, addr, length: 8, access: REMOTE };
                bind2_wr(a.mw(IBV_MW_TYPE_2), 5, range)
            }
            Op::LocalInvalidate => local_inv_wr(NOBODYS),
        };
        let mut request = match self.case.service {
            Service::Ud => {
                let pd = if fault == Fault::AddressPd { a.another_pd() } else { a.pd };
                let to = if fault == Fault::GroupsAddress { to_gid(GROUP) } else { here() };
                let qpn = match fault {
                    Fault::NoSuchNumber => self.ended_number(),
                    Fault::MembersNumber => 0xff_ffff,
                    _ => self.number,
                };
                let qkey = if fault == Fault::OtherQkey { QKEY + 1 } else { QKEY };
                addressed(request, ah(pd, &to), qpn, qkey)
            }
            Service::Xrc => {
                let unknown = if fault == Fault::UnknownQueue { 0x4000 } else { 0 };
                naming(request, srq_number(self.srq) ^ unknown)
            }
            _ => request,
        };
        post(self.qa, &mut request);
    }

    /// Posts a SEND with nothing wrong and no data.
    fn post_behind(&self) {
        let request = ibv_send_wr { wr_id: 2, ..wr(IBV_WR_SEND) };
        let mut request = match self.case.service {
            Service::Ud => addressed(request, ah(self.ends.a.pd, &here()), self.number, QKEY),
            Service::Xrc => naming(request, srq_number(self.srq)),
            _ => request,
        };
        post(self.qa, &mut request);
    }

    /// Ends what the next case does not need.
    fn end(self) {
        for qp in [self.qa, self.qb].into_iter().filter(|qp| !qp.is_null()) {
            assert_eq!(destroy_qp(qp), 0);
        }
        if !self.srq.is_null() {
            assert_eq!(destroy_srq(self.srq), 0);
        }
        if !self.xrcd.is_null() {
            assert_eq!(close_xrcd(self.ends.b.context, self.xrcd), 0);
        }
        // Nothing of it is left for the next.
        for end in [&self.ends.a, &self.ends.b] {
            assert_eq!(poll(end.cq).map(|wc| wc.wr_id), None);
        }
    }
}
