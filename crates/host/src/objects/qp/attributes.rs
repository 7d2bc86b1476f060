//! Attributes of a queue pair, and its changes of state (rules G.3).

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use tracing::debug;
use transom_device::Access;
use transom_device::execution::{Counted, MAX_DATAGRAM};
use transom_device::qp::{
    Attributes, Bypass, Gate, Mask, ModifyError, Peering, QpNumber, QpState, Service,
    check_transition,
};
use transom_device::queue::Address;
use transom_system::addresses::{LOOPBACK, Unreachable};
use transom_system::{tools, watched_bypass};
use transom_wire::{Psn, RnrTimer};

use super::QueuePair;
use crate::device::{Door, Limits};
use crate::objects::cq::Feed;
use crate::objects::{Deferred, Link};

/// The rights to flush. Queue pairs grant them, windows do not.
const FLUSH: Access = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);

/// The bit of a traffic class that asks a congested network to mark packets rather than drop them.
const ECN_CAPABLE: u8 = 2;

/// All attributes that a modify can set, with the values that programs use.
#[derive(Clone, Copy, Debug)]
pub struct QpAttributes {
    /// `qp_state`
    pub state: QpState,
    /// `cur_qp_state`
    pub current: Option<QpState>,
    /// `path_mtu`, as `enum ibv_mtu` counts.
    pub path_mtu: u32,
    /// `qkey`
    pub qkey: u32,
    /// `rq_psn`
    pub rq_psn: u32,
    /// `sq_psn`
    pub sq_psn: u32,
    /// `dest_qp_num`
    pub dest_qpn: u32,
    /// `qp_access_flags`
    pub access: u32,
    /// The address in `ah_attr`, once it is set.
    pub destination: Option<Address>,
    /// `pkey_index`
    pub pkey_index: u16,
    /// `port_num`
    pub port: u8,
    /// `en_sqd_async_notify`
    pub notify_drained: bool,
    /// `max_rd_atomic`
    pub max_rd_atomic: u8,
    /// `max_dest_rd_atomic`
    pub max_dest_rd_atomic: u8,
    /// `min_rnr_timer`
    pub min_rnr_timer: u8,
    /// `timeout`
    pub timeout: u8,
    /// `retry_cnt`
    pub retry_count: u8,
    /// `rnr_retry`
    pub rnr_retry: u8,
}

/// Why a modify is refused. The variants with a number carry their own errno; `NoMemory` and `Inherited` have one too.
/// All others are `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyFailure {
    /// By the table of transitions.
    #[error(transparent)]
    Transition(ModifyError),
    /// An attribute is out of its range (rule ST-07).
    #[error("attributes out of their range: {0:?}")]
    OutOfRange(Mask),
    /// The send queue is still draining (rule ST-17).
    #[error("the send queue is still draining")]
    Draining,
    /// There is no memory for the records of READs and atomics: `ENOMEM`.
    #[error("no memory for what is kept of READs and atomics")]
    NoMemory,
    /// It goes over the wire, and the port cannot be opened. The program has been told why.
    #[error("the port cannot be had: {}", io::Error::from_raw_os_error(*.0))]
    NoPort(i32),
    /// It belongs to the process that this one was forked from: `EIO`.
    #[error("the queue pair is of the process that this one was forked from")]
    Inherited,
    /// The process at the other end exists, but the system does not let this one reach it, or it is in another
    /// registry.
    #[error("the process at the other end cannot be reached: {}", io::Error::from_raw_os_error(*.0))]
    NoPeer(i32),
    /// No packet can be sent to the address.
    #[error(transparent)]
    Unreachable(Unreachable),
}

impl QpAttributes {
    /// As they are in RESET.
    pub fn reset() -> Self {
        Self {
            state: QpState::Reset,
            current: None,
            path_mtu: 0,
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qpn: 0,
            access: 0,
            destination: None,
            pkey_index: 0,
            port: 0,
            notify_drained: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
        }
    }

    /// The attributes of `mask` that are out of range.
    fn out_of_range(&self, mask: Mask) -> Mask {
        let limits = Limits::here();
        let checks = [
            (Mask::PORT, self.port == 1),
            (Mask::PKEY_INDEX, self.pkey_index == 0),
            (Mask::PATH_MTU, (1..=5).contains(&self.path_mtu)),
            (Mask::TIMEOUT, self.timeout <= 31),
            (Mask::RETRY_CNT, self.retry_count <= 7),
            (Mask::RNR_RETRY, self.rnr_retry <= 7),
            (Mask::MIN_RNR_TIMER, self.min_rnr_timer <= 31),
            (Mask::MAX_QP_RD_ATOMIC, self.max_rd_atomic <= limits.initiated_reads),
            (Mask::MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic <= limits.read_resources),
        ];
        checks
            .into_iter()
            .filter(|(bit, fits)| mask.contains(*bit) && !fits)
            .fold(Mask::empty(), |wrong, (bit, _)| wrong | bit)
    }

    /// Copies the attributes that `mask` names.
    fn take(&mut self, new: &Self, mask: Mask) {
        macro_rules! take {
            ($($bit:ident => $($field:ident),+;)+) => {
                $(if mask.contains(Mask::$bit) { $(self.$field = new.$field;)+ })+
            };
        }
        take! {
            PATH_MTU => path_mtu;
            QKEY => qkey;
            ACCESS_FLAGS => access;
            AV => destination;
            PKEY_INDEX => pkey_index;
            PORT => port;
            EN_SQD_ASYNC_NOTIFY => notify_drained;
            MAX_QP_RD_ATOMIC => max_rd_atomic;
            MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
            MIN_RNR_TIMER => min_rnr_timer;
            TIMEOUT => timeout;
            RETRY_CNT => retry_count;
            RNR_RETRY => rnr_retry;
        }
        // 24-bit attributes lose their upper bits (rule ST-06).
        if mask.contains(Mask::RQ_PSN) {
            self.rq_psn = Psn::new(new.rq_psn).value();
        }
        if mask.contains(Mask::SQ_PSN) {
            self.sq_psn = Psn::new(new.sq_psn).value();
        }
        if mask.contains(Mask::DEST_QPN) {
            self.dest_qpn = QpNumber::from_bits(new.dest_qpn).bits();
        }
    }
}

impl QueuePair {
    /// The attributes as they were set, with the current state.
    pub fn query(&self) -> (QpAttributes, bool) {
        let half = self.send.lock();
        let mut attributes = half.attributes;
        attributes.state = self.summary().gate().state;
        let draining = attributes.state == QpState::Sqd && half.requester.is_draining();
        (attributes, draining)
    }

    /// Changes attributes and state. On an error nothing has changed (rules ST-01 to ST-08).
    pub fn modify(&self, new: &QpAttributes, mask: Mask) -> Result<(), ModifyFailure> {
        if self.device.process().is_inherited() {
            return Err(ModifyFailure::Inherited);
        }
        let becomes = |state| mask.contains(Mask::STATE) && new.state == state;
        let (resets, fails) = (becomes(QpState::Reset), becomes(QpState::Error));
        let peer = match &self.receive.half.lock().link {
            Link::Local(peer) if resets || fails => Some(peer.clone()),
            _ => None,
        };
        if fails {
            // A request whose answer has arrived is done, though nobody has polled.
            self.adapter.take_all(peer.as_ref());
        }
        let mut deferred = Deferred::default();
        let result = self.modify_locked(new, mask, &mut deferred);
        deferred.run(&self.adapter);
        if result.is_ok() && resets {
            // Programs connect again with the same numbers, and could not tell old packets and messages from new ones.
            self.adapter.take_all(peer.as_ref());
        }
        if result.is_ok() && (resets || fails) {
            self.tell_of_end();
        }
        self.advance();
        result
    }

    fn modify_locked(
        &self,
        new: &QpAttributes,
        mask: Mask,
        deferred: &mut Deferred,
    ) -> Result<(), ModifyFailure> {
        let mut half = self.send.lock();
        let mut receive = self.receive.half.lock();
        let mask = mask.difference(self.config.service.unheeded());
        let from = self.summary().gate().state;
        let asked = Attributes {
            state: if mask.contains(Mask::STATE) { new.state } else { from },
            current: new.current.filter(|_| mask.contains(Mask::CUR_STATE)),
        };
        check_transition(self.config.service, from, &asked, mask)
            .map_err(ModifyFailure::Transition)?;
        let wrong = new.out_of_range(mask);
        if !wrong.is_empty() {
            return Err(ModifyFailure::OutOfRange(wrong));
        }
        if from == QpState::Sqd && asked.state == QpState::Rts && half.requester.is_draining() {
            return Err(ModifyFailure::Draining);
        }
        let mut attributes = match asked.state {
            QpState::Reset => QpAttributes::reset(),
            _ => half.attributes,
        };
        attributes.take(new, mask);
        // Everything that can fail comes before the first change that others see.
        let peer = QpNumber::from_bits(attributes.dest_qpn);
        let link = match mask.intersects(Mask::AV | Mask::DEST_QPN) {
            true => Some(self.link_to(peer, &attributes)?),
            false => None,
        };
        let first = Psn::new(attributes.rq_psn);
        if matches!(link, Some(Link::Wire(_)))
            && receive.packets.keep(Limits::here().read_resources).is_err()
        {
            return Err(ModifyFailure::NoMemory);
        }
        half.attributes = attributes;
        self.note_mtu(&attributes);
        // Acknowledge the messages carried out until now. They stay so, whatever changes.
        receive.acknowledge(self);
        if asked.state == QpState::Reset {
            // Its earlier completions belong to the connection that is over: a program that connects again waits for
            // its new work only. All places of the queues are free then.
            self.rehearse_anew();
            self.feeds.all().for_each(Feed::forget);
            half.requester.reset();
            receive.reset(self, deferred);
            half.lead(Link::None, QpNumber::from_bits(0), self);
        }
        if let Some(link) = link {
            half.lead(link.clone(), peer, self);
            receive.lead(link, peer, self);
        }
        half.requester.connection.qkey = attributes.qkey;
        receive.responder.qkey = attributes.qkey;
        half.requester.connection.max_rd_atomic = attributes.max_rd_atomic;
        half.requester.set_timeout(attributes.timeout);
        half.requester.retry.count = attributes.retry_count;
        half.requester.retry.rnr_count = attributes.rnr_retry;
        if let Some(timer) = RnrTimer::new(attributes.min_rnr_timer) {
            receive.responder.set_min_rnr_timer(timer, self.summary());
        }
        match (from, asked.state) {
            (QpState::Init, QpState::Rtr) => {
                if self.config.service == Service::Ud {
                    self.device.port().expect_datagrams();
                }
                receive.packets.start(first);
                receive.responder.start(first, self.summary());
                self.summary().set_peering(Peering {
                    from: half.peer,
                    first,
                    mtu_code: attributes.path_mtu as u8,
                    established: false,
                });
                self.capture_connection(half.peer, &attributes);
            }
            (QpState::Rtr, QpState::Rts) => {
                let first = Psn::new(attributes.sq_psn);
                half.first = first;
                self.summary().set_first_sent(first);
                half.requester.connection.window_limit =
                    self.device.port().wire().map_or(0, |wire| wire.window_limit());
                self.capture_connection(self.number, &attributes);
                half.requester.start(first);
            }
            _ => {}
        }
        self.open_gate(asked.state, &attributes);
        debug!(qp = %self.number, ?from, to = ?asked.state, "queue pair modified");
        // Wait for those that came in under the old rights: after RESET, ERR or a loss of rights nothing arrives any
        // more.
        let keys = self.device.process().segment().keys();
        keys.drain_queue_pair(self.number.index(), &**self.device.process());
        match asked.state {
            QpState::Reset => self.told.begin_anew(),
            QpState::Error => {
                self.told.moved_by_program(from != QpState::Error);
                half.flush(self, deferred);
                receive.flush(self, deferred);
            }
            // Each modify asks anew.
            QpState::Sqd
                if mask.contains(Mask::EN_SQD_ASYNC_NOTIFY)
                    && new.notify_drained
                    && from == QpState::Rts =>
            {
                half.notify_drained(self, deferred);
            }
            _ => {}
        }
        Ok(())
    }

    /// A datagram is always one packet.
    fn note_mtu(&self, attributes: &QpAttributes) {
        let mtu = match self.config.service {
            Service::Ud => MAX_DATAGRAM,
            _ => 128 << attributes.path_mtu,
        };
        self.mtu_shift.store(mtu.trailing_zeros() as u8, Relaxed);
    }

    /// Chooses the connection whose requests the capture records from now on: this queue pair's own. Before it sends,
    /// it is that of the queue pair at the other end.
    fn capture_connection(&self, from: QpNumber, attributes: &QpAttributes) {
        let Some(observer) = self.device.observer() else { return };
        let address = attributes.destination.unwrap_or(LOOPBACK);
        let mtu = match self.config.service {
            Service::Ud => MAX_DATAGRAM,
            _ => 128 << attributes.path_mtu,
        };
        let path = self.device.port().path(&address, self.number, mtu);
        observer.connects(from, if from == self.number { path } else { path.back(from) });
    }

    /// The link to the queue pair at the other end.
    fn link_to(&self, peer: QpNumber, attributes: &QpAttributes) -> Result<Link, ModifyFailure> {
        let (slot, port) = (peer.slot(), self.device.port());
        let Some(address) = attributes.destination else { return Ok(Link::None) };
        if port.is_over_wire(&address, slot) {
            return self.link_over_wire(address, attributes);
        }
        if slot == self.number.slot() {
            return Ok(Link::Loopback);
        }
        match self.device.reach(slot) {
            Ok(Some(peer)) => return Ok(Link::Local(peer)),
            Ok(None) => {}
            Err(out_of_reach) => return Err(ModifyFailure::NoPeer(out_of_reach.errno())),
        }
        if port.is_another_users(slot) {
            return self.link_over_wire(address, attributes);
        }
        port.check_same_registry(slot).map_err(ModifyFailure::NoPeer)?;
        Ok(Link::None)
    }

    fn link_over_wire(
        &self,
        address: Address,
        attributes: &QpAttributes,
    ) -> Result<Link, ModifyFailure> {
        // Check this before the port: an address that cannot be reached needs no port.
        if self.config.service != Service::Ud {
            let reachable = self.device.port().check_reachable(&address, false);
            reachable.map_err(ModifyFailure::Unreachable)?;
        }
        self.device.port().open_wire().map_err(ModifyFailure::NoPort)?;
        let mtu = 128 << attributes.path_mtu;
        let mut path = self.device.port().path(&address, self.number, mtu);
        if self.device.options().congestion {
            path.traffic_class |= ECN_CAPABLE;
        }
        Ok(Link::Wire(path))
    }

    /// Messages of the receiving end of XRC may have taken receives in other processes. They hear of its end.
    pub(super) fn tell_of_end(&self) {
        if self.config.service == Service::XrcTarget {
            self.device.peers.tell_of_ended_targets();
        }
    }

    /// Shows initiators the state and the rights that it grants.
    pub(super) fn open_gate(&self, state: QpState, attributes: &QpAttributes) {
        self.change_gate(state, attributes);
        self.tell_door(attributes.destination.map(|address| address.gid));
    }

    /// Tells a listener whom the queue pair lets in from now on, and to what. Several threads may do so at once, and not
    /// all of them have both halves locked. Each looks when it is its turn, so what is told last is how it is.
    pub(crate) fn tell_door(&self, gid: Option<[u8; 16]>) {
        if tools::any() {
            let _turn = self.tells.lock();
            self.device.lets_in(self.number, || {
                let look = self.summary().look();
                Door { gate: look.gate(), peer: look.peering().from, gid }
            });
        }
    }

    fn change_gate(&self, state: QpState, attributes: &QpAttributes) {
        let watched = || watched_bypass(self.device.process().segment());
        self.summary().open_gate(Gate {
            state,
            service: self.config.service,
            access: Access::from_bits_retain(attributes.access) & (Access::REMOTE | FLUSH),
            read_resources: attributes.max_dest_rd_atomic,
            pd: self.pd_number(),
            bypass: match self.counters.any(Counted::REMOTE) || self.sees_all() {
                true => Bypass::Forbidden,
                false => watched(),
            },
        });
        // If somebody wants to know of writes since then, this has undone what they asked of the gate.
        self.summary().restrict(watched());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::{fs, thread};

    use parking_lot::Mutex;
    use transom_device::qp::QpNumber;
    use transom_system::failure::fail;

    use super::*;
    use crate::device::{Device, Listener, listen};
    use crate::objects::qp::testing::queue_pair;
    use crate::testing::alone;
    use crate::{Adapter, Options};

    /// Hears of states. It takes its time for the first one.
    struct Slow {
        has_begun: AtomicBool,
        begins: Sender<()>,
        goes_on: Mutex<Receiver<()>>,
        heard: Mutex<Vec<QpState>>,
    }

    impl Listener for Slow {
        fn lets_in(&self, _: &Device, _: QpNumber, door: &Door) {
            if !self.has_begun.swap(true, SeqCst) {
                self.begins.send(()).expect("the test waits");
                self.goes_on.lock().recv().expect("the test goes on");
            }
            self.heard.lock().push(door.gate.state);
        }
    }

    /// The device fails while somebody is still told of the state before.
    ///
    /// Rules: EXP-02
    #[test]
    fn the_last_state_that_is_told_is_the_state_that_is() {
        if !alone(concat!(
            "objects::qp::attributes::tests::",
            "the_last_state_that_is_told_is_the_state_that_is"
        )) {
            return;
        }
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let qp = queue_pair(&adapter, Service::Rc, 0);
        let ((begins, has_begun), (lets_go, goes_on)) = (mpsc::channel(), mpsc::channel());
        let goes_on = Mutex::new(goes_on);
        let slow =
            Slow { has_begun: AtomicBool::new(false), begins, goes_on, heard: Mutex::default() };
        let slow: &'static Slow = Box::leak(Box::new(slow));
        listen(slow);
        thread::scope(|scope| {
            scope.spawn(|| qp.tell_door(None));
            has_begun.recv().expect("it is told");
            let (says, id) = mpsc::channel();
            let fails = scope.spawn(move || {
                says.send(rustix::thread::gettid().as_raw_nonzero()).expect("the test waits");
                fail();
            });
            let stat = format!("/proc/self/task/{}/stat", id.recv().expect("it runs"));
            let is_asleep = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
            // It has told, or waits for its turn.
            while qp.summary().gate().state != QpState::Error
                || !(fails.is_finished() || is_asleep() || !slow.heard.lock().is_empty())
            {
                thread::yield_now();
            }
            lets_go.send(()).expect("it waits");
        });
        let heard = slow.heard.lock();
        assert_eq!((heard.first(), heard.last()), (Some(&QpState::Rts), Some(&QpState::Error)));
    }
}
