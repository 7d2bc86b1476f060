//! The programs on the two devices: what they register, connect and post, and what they take away.

mod requests;
mod rights;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use transom_device::Access;
use transom_device::execution::{Receives, RequesterLimits};
use transom_device::protection::WindowKind;
use transom_device::qp::{Gate, QpNumber, QpState, Service};
use transom_device::queue::{Body, ReceiveRequest, SendFlags, SendOp, Sge};
use transom_wire::Psn;

use crate::device::Alone;
use crate::endpoint::{Attributes, Endpoint};
use crate::model::posted::{PostedReceive, PostedSend};
use crate::model::rights::{Kind, Object};
use crate::model::{At, Cause, End};
use crate::node::{QUEUE_PAIRS, Qp};
use crate::plan::{Connection, Plan, Step};
use crate::port::Port;
use crate::random::Random;
use crate::world::Shared;

/// Most scatter/gather entries of a posted list.
const MAX_SGE: usize = 4;
/// Bytes that can be posted inline.
const INLINE: usize = 300;
/// The Q_Key of all UD queue pairs.
const QKEY: u32 = 0x1234;

/// Memory for local buffers: where it begins, and how much there is. A region covers each; the
/// second may be taken away.
const LOCAL: [(u64, u64); 2] = [(0, 0xc_0000), (0xc_0000, 0x8_0000)];
/// Memory for what peers may reach.
const EXPOSED: (u64, u64) = (0x14_0000, 0x1_0000);

/// Objects of a device: where in its list what is.
const LOCAL_REGIONS: std::ops::Range<usize> = 0..2;
const EXPOSED_REGIONS: std::ops::Range<usize> = 2..6;
const WINDOWS: std::ops::Range<usize> = 6..13;

/// What all windows of a device are.
const WINDOW_KINDS: [WindowKind; 7] = [
    WindowKind::Type1,
    WindowKind::Type1,
    WindowKind::Type2A,
    WindowKind::Type2A,
    WindowKind::Type2B,
    WindowKind::Type2B,
    WindowKind::Type2B,
];

/// The programs.
pub struct Programs<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    /// The queue pair at each device that a connection of the plan uses now; a broken one is
    /// replaced.
    current: RefCell<Vec<usize>>,
    /// How much of each device's local memory is used up.
    used: [[Cell<u64>; 2]; 2],
    /// The object of each device that the last request was aimed at.
    aimed_at: [Cell<Option<usize>>; 2],
    /// Work requests so far.
    posted: Cell<u64>,
}

impl<'a> Programs<'a> {
    /// The programs, with what they set up before anything is sent.
    pub fn new(shared: &'a Shared, plan: &'a Plan) -> Self {
        let programs = Self {
            shared,
            plan,
            current: RefCell::default(),
            used: Default::default(),
            aimed_at: Default::default(),
            posted: Cell::new(0),
        };
        let mut random = Random::new(plan.seed ^ 0xb161);
        for device in 0..2 {
            programs.set_up(device, &mut random);
        }
        for connection in &plan.connections {
            let qp = programs.connect(connection);
            programs.current.borrow_mut().extend(qp);
        }
        programs
    }

    /// Registers regions and allocates windows.
    fn set_up(&self, device: usize, random: &mut Random) {
        for index in 0..WINDOWS.end {
            let kind = match index.checked_sub(WINDOWS.start) {
                Some(window) => Kind::Window(WINDOW_KINDS[window]),
                None => Kind::Region,
            };
            let other = random.chance(self.plan.wildness) && index > 0;
            let object = Object {
                kind,
                pd: if other { 2 } else { 1 },
                handle: None,
                grants: None,
                past: Vec::new(),
            };
            self.shared.model().rights[device].objects.push(object);
            self.make(device, index, random);
        }
    }

    /// Makes two queue pairs and connects them; their place in the devices' lists, if there is room.
    fn connect(&self, plan: &Connection) -> Option<usize> {
        let index = self.shared.nodes[0].qps.borrow().len();
        if index == QUEUE_PAIRS {
            return None;
        }
        for device in 0..2 {
            let qp = self.queue_pair(device, index, plan);
            self.shared.nodes[device].qps.borrow_mut().push(Rc::new(qp));
            let end = End {
                number: number(device, index),
                service: plan.service,
                pd: plan.pd[device],
                access: plan.access[device],
                peer: index,
                mtu: plan.mtu,
                retries: (plan.retries, plan.rnr_retries),
                timeout: (plan.timeout > 0).then(|| 4_096 << plan.timeout),
                first: Psn::new(plan.first[device]),
                sends: Default::default(),
                receives: Default::default(),
                inbound: Default::default(),
                fallen: None,
                disturbed: false,
                hardy: plan.retries == 7 && self.plan.faults.are_few(),
                held: false,
                slow: false,
                acknowledged: 0,
                gap: None,
            };
            self.shared.model().ends[device].push(end);
        }
        Some(index)
    }

    fn queue_pair(&self, device: usize, index: usize, plan: &Connection) -> Qp {
        let number = number(device, index);
        let attributes = Attributes {
            service: plan.service,
            qp_num: number,
            dest_qp_num: self::number(1 - device, index),
            path_mtu: plan.mtu,
            sq_psn: plan.first[device],
            rq_psn: plan.first[1 - device],
            timeout: plan.timeout,
            retry_cnt: plan.retries,
            rnr_retry: plan.rnr_retries,
            min_rnr_timer: plan.rnr_timer,
            max_rd_atomic: plan.reads,
            max_dest_rd_atomic: plan.reads,
            qp_access_flags: plan.access[device],
            pd: plan.pd[device],
            qkey: QKEY,
            send: RequesterLimits {
                size: plan.size,
                max_sge: MAX_SGE,
                inline_room: INLINE,
                signal_all: false,
            },
            receives: Receives::Own { size: 1024, max_sge: MAX_SGE },
            max_recv_sge: MAX_SGE,
            burst: self.shared.burst,
            window: plan.window,
        };
        let endpoint = Endpoint::new(&attributes, self.shared.nodes[device].device.summary(number));
        let (endpoint, alarm) = (RefCell::new(endpoint), Cell::new(None));
        let given_back = Default::default();
        Qp { number, mtu: plan.mtu, endpoint, size: plan.size, given_back, alarm }
    }

    /// Does a step.
    pub fn step(&self, step: &Step) {
        let mut random = Random::new(step.draw);
        let device = step.device;
        let at = At { device, qp: self.current.borrow()[step.connection] };
        let broken =
            [0, 1].iter().any(|device| self.model_end_fallen(At { device: *device, ..at }));
        if broken && random.chance(600) {
            let mut connection = Connection::draw(&mut random, self.plan.wildness);
            connection.service = self.plan.connections[step.connection].service;
            if let Some(qp) = self.connect(&connection) {
                self.current.borrow_mut()[step.connection] = qp;
            }
            return;
        }
        match random.below(100) {
            0..30 => {
                for _ in 0..=random.below(3) {
                    self.post_receive(at, &mut random);
                }
            }
            30..80 => self.post_send(at, &mut random),
            80..98 => self.change_rights(at, &mut random),
            _ if random.chance(100) => self.fail(at),
            _ => {}
        }
    }

    fn model_end_fallen(&self, at: At) -> bool {
        self.shared.model().end(at).fallen.is_some()
    }

    /// A fresh range of local memory, and the region that covers it.
    fn memory(&self, device: usize, length: u64, random: &mut Random) -> Option<(u64, usize)> {
        let region = usize::from(random.chance(150));
        let used = &self.used[device][region];
        // Guard bytes between, and any alignment.
        let start = used.get() + random.within(0..=9);
        if start + length > LOCAL[region].1 {
            return None;
        }
        used.set(start + length);
        Some((self.shared.nodes[device].device.base + LOCAL[region].0 + start, region))
    }

    /// A scatter/gather list of fresh memory with so many bytes in all.
    fn sges(&self, device: usize, length: u64, random: &mut Random) -> Option<Vec<Sge>> {
        let count = random.one_of(&[1, 1, 1, 2, 4]);
        let mut sges = Vec::new();
        let mut rest = length;
        for number in 0..count {
            let part = if number + 1 == count { rest } else { random.within(0..=rest) };
            rest -= part;
            let (address, region) = self.memory(device, part, random)?;
            let key = self.shared.model().rights[device].objects[region].handle?.1;
            sges.push(Sge { address, length: part as u32, key });
        }
        Some(sges)
    }

    fn next_id(&self) -> u64 {
        self.posted.set(self.posted.get() + 1);
        self.posted.get()
    }

    fn post_receive(&self, at: At, random: &mut Random) {
        let (mtu, datagram) = {
            let model = self.shared.model();
            (model.end(at).mtu, model.end(at).service == Service::Ud)
        };
        let most = if datagram { mtu + 40 } else { 6 * mtu };
        let length = if random.chance(self.plan.wildness) { random.within(0..=most) } else { most };
        let _ = self.post_receive_of(at, length, random);
    }

    /// Posts a receive of this length, if there is memory.
    fn post_receive_of(&self, at: At, length: u64, random: &mut Random) -> Option<()> {
        let sges = self.sges(at.device, length, random)?;
        let wr_id = self.next_id();
        self.shared.say(|| format!("{at} posts receive {wr_id:#x} of {length} bytes"));
        let posted = PostedReceive { wr_id, sges: sges.clone(), length };
        self.shared.model().end_mut(at).receives.push(posted);
        let qp = self.shared.nodes[at.device].qp(at.qp);
        let port = Port { shared: self.shared, at, qp: &qp, cause: &Cause::Itself };
        let request = ReceiveRequest { wr_id, sges: &sges };
        if qp.endpoint.borrow_mut().post_receive(&port, &request).is_err() {
            self.shared.model().end_mut(at).receives.take_back();
        }
        Some(())
    }

    /// Moves a queue pair into error.
    pub fn fail(&self, at: At) {
        self.shared.say(|| format!("{at} is moved into error"));
        let node = &self.shared.nodes[at.device];
        let (qp, summary) = (node.qp(at.qp), node.summary(at.qp));
        summary.set_gate(Gate { state: QpState::Error, ..summary.gate() });
        node.device.keys().drain_queue_pair(at.qp as u16, &Alone);
        self.shared.model().end_mut(at).fallen.get_or_insert("its program said so");
        let port = Port { shared: self.shared, at, qp: &qp, cause: &Cause::Itself };
        qp.endpoint.borrow_mut().flush(&port);
        self.shared.advance(at);
    }

    /// Does what is needed for everything to end: posts receives for what waits for one, and a signaled
    /// request after those that end silently. Whether everything has ended.
    pub fn settle(&self, random: &mut Random) -> bool {
        let mut settled = true;
        for device in 0..2 {
            let count = self.shared.nodes[device].qps.borrow().len();
            for at in (0..count).map(|qp| At { device, qp }) {
                let (done, silent, wanted) = {
                    let model = self.shared.model();
                    let (end, peer) = (model.end(at), &model.ends[1 - device][at.qp]);
                    let wanted = peer.sends.waiting().iter().find(|send| send.takes_receive());
                    let short = end.receives.waiting().is_empty() && end.fallen.is_none();
                    let length = wanted.filter(|_| short).map(|send| send.length.max(1));
                    let signaled = |send: &PostedSend| send.flags.contains(SendFlags::SIGNALED);
                    let silent = end.sends.last().is_some_and(|send| !signaled(send));
                    (end.sends.waiting().is_empty(), silent, length)
                };
                settled &= done;
                if silent && !done {
                    self.post(at, SendOp::Message(Body::Send), 0, random);
                }
                if let Some(length) = wanted
                    && self.post_receive_of(at, length, random).is_none()
                {
                    // Without memory nothing goes on here.
                    self.fail(at);
                }
            }
        }
        settled
    }
}

/// The number of a queue pair.
fn number(device: usize, index: usize) -> QpNumber {
    QpNumber::new(device as u8 + 1, index as u16)
}

/// Rights of a region that peers may reach, as most have them.
fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND | Access::FLUSH_GLOBAL
}
