//! A queue pair's packets, on their way out: what the wire link needs of its memory.

use std::sync::atomic::Ordering::*;

use transom_device::execution::{Context, CopyError, Payload, Reply, Request, Responder, Sent};
use transom_device::protection::Operation;
use transom_device::qp::Service;
use transom_device::transport::burst::{self, BurstPacket};
use transom_device::transport::{ReadAnswer, ResponseBurst};
use transom_net::{BurstBuffer, Filling, Path, Wire};
use transom_system::clock;
use transom_wire::Psn;
use transom_wire::packet::{Packet, Transport};

use super::{At, Outgoing};
use crate::objects::Link;
use crate::objects::qp::QueuePair;
use crate::objects::qp::receive::ReceiveHalf;

/// Most answers that wait for room: where there is none for so many, the rest is lost, as on a network.
const MOST_UNSENT: usize = 64;

/// Messages of a queue pair that leave in one burst, and so by one system call if they are of one length.
#[derive(Default)]
pub(super) struct Joined {
    burst: Option<BurstBuffer>,
    /// The number of the first of them.
    first: Psn,
    /// There was no room for all of them.
    is_refused: bool,
}

impl At<'_> {
    /// Sends a segment as packets, or has it wait for others that may leave with it.
    pub(super) fn join_or_send(
        &self,
        path: &Path,
        outgoing: Outgoing<'_>,
        joined: &mut Joined,
    ) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let Some(wire) = self.qp.device.port().wire() else { return Sent::Unreachable };
        let may_be_joined = request.may_be_joined();
        let has_room = |burst: &BurstBuffer| burst.has_room(request.length, path.mtu);
        if !(may_be_joined && joined.burst.as_ref().is_none_or(has_room))
            && self.send_joined(joined).is_err()
        {
            return Sent::Busy;
        }
        if !may_be_joined {
            return self.send_packets(path, outgoing);
        }
        let burst = joined.burst.get_or_insert_with(|| {
            joined.first = request.message;
            wire.take_buffer()
        });
        let before = burst.packets();
        let done = self.load(burst, path, request, payload);
        if done.is_err() {
            burst.truncate(before);
        }
        loaded(done)
    }

    /// Sends a segment as packets.
    pub(super) fn send_packets(&self, path: &Path, outgoing: Outgoing<'_>) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let Some(wire) = self.qp.device.port().wire() else { return Sent::Unreachable };
        if self.is_too_early(wire, request.length) {
            wire.stall(self.qp.number.index());
            return Sent::Busy;
        }
        let mut burst = wire.take_buffer();
        let sent = match loaded(self.load(&mut burst, path, request, payload)) {
            Sent::Queued if !self.send_burst(wire, path, &mut burst, request.is_last()) => {
                Sent::Busy
            }
            sent => sent,
        };
        wire.give_back(burst);
        sent
    }

    /// Sends the messages that have been joined.
    ///
    /// # Errors
    ///
    /// The number of the first of them if there was no room, now or when they were to go before. They go again
    /// from there, which the other end knows by their numbers.
    pub(super) fn send_joined(&self, joined: &mut Joined) -> Result<(), Psn> {
        if let (Link::Wire(path), Some(wire)) = (self.link, self.qp.device.port().wire())
            && let Some(mut burst) = joined.burst.take()
        {
            joined.is_refused = !self.send_burst(wire, path, &mut burst, true);
            wire.give_back(burst);
        }
        if joined.is_refused { Err(joined.first) } else { Ok(()) }
    }

    /// Sends a burst; false if there was no room for all of it.
    fn send_burst(
        &self,
        wire: &Wire,
        path: &Path,
        burst: &mut BurstBuffer,
        ends_message: bool,
    ) -> bool {
        // With a message's last packet, so that who polls for it finds all of the message with it. The other
        // end sees it before the packet that it comes with.
        let delayed = if ends_message { self.take_delayed_ack(wire) } else { None };
        let alone = delayed.filter(|packet| !burst.add_behind(packet));
        let is_acknowledged = alone.is_some_and(|packet| send_alone(wire, path, &packet));
        let departed = alone.is_some() == is_acknowledged && wire.send(burst, path);
        if !departed {
            if !is_acknowledged {
                self.give_back_delayed_ack(wire, delayed);
            }
            // It goes again from its beginning, which the other end knows by its numbers.
            wire.stall(self.qp.number.index());
        }
        departed
    }

    /// Whether data that nobody sends again has to wait for its turn.
    fn is_too_early(&self, wire: &Wire, length: u64) -> bool {
        let unreliable = matches!(self.qp.config.service, Service::Uc | Service::Ud);
        unreliable && !wire.admits(length, clock::steady())
    }

    /// The delayed acknowledgement to go with what is sent now.
    fn take_delayed_ack(&self, wire: &Wire) -> Option<Packet<'static>> {
        if !self.qp.receive.delays_ack.load(Acquire) {
            return None;
        }
        // Somebody else may be sending it just now: what is sent here comes after it.
        let mut half = self.qp.receive.half.lock();
        wire.delayed_ack.take_of(self.qp.number.index());
        self.qp.receive.delays_ack.store(false, Release);
        half.delayed_ack.take()
    }

    /// It did not go.
    fn give_back_delayed_ack(&self, wire: &Wire, delayed: Option<Packet<'static>>) {
        if delayed.is_some() {
            let mut half = self.qp.receive.half.lock();
            half.delayed_ack = half.delayed_ack.or(delayed);
            self.qp.receive.delays_ack.store(true, Release);
            wire.stall(self.qp.number.index());
        }
    }

    /// Makes the packets of a segment, behind those that are there. On an error some of them may be there too.
    fn load(
        &self,
        buffer: &mut BurstBuffer,
        path: &Path,
        request: &Request,
        payload: Payload<'_>,
    ) -> Result<(), CopyError> {
        let begin = buffer.payload();
        let mut parts = burst::Burst::new(request, path.mtu);
        while let Some(BurstPacket { packet, payload }) = parts.next() {
            if !buffer.add(&packet, payload.len() as u64)
                || !buffer.repeat(parts.repeats(), packet.psn.plus(1))
            {
                return Err(CopyError::Far);
            }
        }
        if !request.body.carries_data() {
            return Ok(());
        }
        match payload {
            Payload::Inline(bytes) => {
                let range = request.offset as usize..(request.offset + request.length) as usize;
                buffer.put(begin, bytes.get(range).ok_or(CopyError::Far)?);
                Ok(())
            }
            Payload::Buffers(sges) => {
                let local = self.local(sges);
                let copier = &self.qp.device.process().copier();
                let (offset, length) = (request.offset, request.length);
                local.each(Operation::LocalRead, offset, length, |at, piece| {
                    match buffer.copy_in(copier, begin + at, piece) {
                        true => Ok(()),
                        false => Err(CopyError::Near(local.gone(Operation::LocalRead))),
                    }
                })
            }
        }
    }
}

/// What becomes of a segment whose packets have been made, or could not be.
fn loaded(done: Result<(), CopyError>) -> Sent {
    match done {
        Ok(()) => Sent::Queued,
        Err(CopyError::Near(refusal)) => Sent::Near(refusal),
        Err(CopyError::Far) => Sent::Unreachable,
    }
}

/// Sends a packet that goes with nothing else; false if there was no room for it.
fn send_alone(wire: &Wire, path: &Path, packet: &Packet<'_>) -> bool {
    let mut buffer = wire.take_buffer();
    let mut departed = true;
    if buffer.add(packet, packet.payload.len() as u64) {
        buffer.put(0, packet.payload);
        departed = wire.send(&mut buffer, path);
    }
    wire.give_back(buffer);
    departed
}

impl ReceiveHalf {
    /// Sends a packet without data. An acknowledgement may be delayed: it stands for those before it, and
    /// leaves before any answer to what came after what it acknowledges.
    pub(in super::super) fn respond(&mut self, packet: &Packet<'_>, qp: &QueuePair) {
        if packet.is_acknowledgement() && !self.delays_ack_after(packet.psn) {
            // It says what the one that waits would say, and more.
            self.delayed_ack = None;
            if self.may_delay_ack && self.unsent.is_empty() {
                // Whoever sends something because of a completion that is yet to come takes it along.
                qp.receive.delays_ack.store(true, Release);
                self.delayed_ack = Some(packet.headers());
                return;
            }
        }
        if let Some(delayed) = self.take_delayed_ack_before(packet.psn) {
            self.send(&delayed, qp);
        }
        self.send(packet, qp);
    }

    /// Sends a packet now, or behind those that have found no room.
    pub(in super::super) fn send(&mut self, packet: &Packet<'_>, qp: &QueuePair) {
        if let (Some(wire), Link::Wire(path)) = (qp.device.port().wire(), &self.link)
            && !(self.unsent.is_empty() && send_alone(wire, path, packet))
        {
            wire.stall(qp.number.index());
            self.keep_unsent(packet.headers());
        }
    }

    /// Keeps an answer that has found no room.
    #[cold]
    fn keep_unsent(&mut self, packet: Packet<'static>) {
        // An acknowledgement says what the one before it would say, and more.
        let replaces = |last: &&mut Packet<'_>| {
            last.is_acknowledgement()
                && packet.is_acknowledgement()
                && packet.psn.compare(last.psn).is_ge()
        };
        let has_room = self.unsent.len() < MOST_UNSENT;
        match self.unsent.back_mut().filter(replaces) {
            Some(last) => *last = packet,
            None if has_room => self.unsent.push_back(packet),
            None => {}
        }
    }

    /// Sends the answers that have found no room before.
    pub(in super::super) fn send_unsent(&mut self, qp: &QueuePair) {
        while let Some(packet) = self.unsent.front() {
            if let (Some(wire), Link::Wire(path)) = (qp.device.port().wire(), &self.link)
                && !send_alone(wire, path, packet)
            {
                return wire.stall(qp.number.index());
            }
            self.unsent.pop_front();
        }
    }

    /// Sends part of the answer to a READ, if there is data and room. Answers what the device did, or
    /// [`Reply::Silence`] if there was no room.
    pub(in super::super) fn send_answer(&mut self, answer: &ReadAnswer, qp: &QueuePair) -> Reply {
        self.send_data(&answer.burst, qp, |responder, sink, cx| answer.fetch(responder, sink, cx))
    }

    fn send_data(
        &mut self,
        burst: &ResponseBurst,
        qp: &QueuePair,
        fetch: impl FnOnce(&mut Responder, &mut Filling<'_>, &mut Context<'_, At<'_>>) -> Reply,
    ) -> Reply {
        let Some(wire) = qp.device.port().wire() else { return Reply::Dropped };
        if let Some(delayed) = self.take_delayed_ack_before(burst.psn) {
            self.send(&delayed, qp);
        }
        if !self.unsent.is_empty() {
            // It comes behind them.
            self.room = 0;
            return Reply::Silence;
        }
        let Link::Wire(path) = &self.link else { return Reply::Dropped };
        let mut buffer = wire.take_buffer();
        let transport = match qp.config.service {
            Service::XrcTarget => Transport::Xrc { srq: 0 },
            _ => Transport::Rc,
        };
        let mut packets = burst.packets(transport, self.peer.bits(), path.mtu);
        while let Some((packet, length)) = packets.next() {
            if !buffer.add(&packet, length) || !buffer.repeat(packets.repeats(), packet.psn.plus(1))
            {
                // Longer than the path allows: nothing of it is sent.
                wire.give_back(buffer);
                return Reply::Dropped;
            }
        }
        let at = qp.here();
        let mut sink = Filling { burst: &mut buffer, copier: qp.device.process().copier() };
        let mut cx = at.context(&mut self.effects);
        let mut reply = fetch(&mut self.responder, &mut sink, &mut cx);
        if matches!(reply, Reply::Data { .. }) {
            if wire.send(&mut buffer, path) {
                self.room = self.room.saturating_sub(buffer.packets());
            } else {
                self.room = 0;
                reply = Reply::Silence;
            }
        }
        wire.give_back(buffer);
        reply
    }

    /// The acknowledgement that waits, for the answer of this number is about to leave: unless that is an
    /// older one, said again, which an origin expects before it.
    fn take_delayed_ack_before(&mut self, answer: Psn) -> Option<Packet<'static>> {
        if self.delays_ack_after(answer) { None } else { self.delayed_ack.take() }
    }

    /// Whether an acknowledgement waits that is of something later.
    fn delays_ack_after(&self, psn: Psn) -> bool {
        self.delayed_ack.is_some_and(|delayed| delayed.psn.compare(psn).is_gt())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::{Duration, Instant};

    use transom_device::Access;
    use transom_device::execution::RequesterLimits;
    use transom_device::protection::Key;
    use transom_device::qp::{Mask, QpState};
    use transom_device::queue::{
        Body, Completion, CompletionOptions, ReceiveRequest, Remote, SendFlags, SendOp,
        SendRequest, Sge, Status,
    };
    use transom_net::udp::{Port, SendError, Way};
    use transom_net::{Network, Run};
    use transom_system::addresses::LOOPBACK;
    use transom_wire::Syndrome;
    use transom_wire::packet::{Aeth, Operation};

    use super::*;
    use crate::Adapter;
    use crate::events::EventQueue;
    use crate::objects::{
        Cq, CqConfig, MemoryRegion, More, ProtectionDomain, QpAttributes, QpConfig, QpReceives,
        QueuePair, Registration,
    };
    use crate::testing::OnTheWire;

    const UNCONNECTED: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::ACCESS_FLAGS);
    const TO_PEER: Mask = Mask::AV.union(Mask::PATH_MTU).union(Mask::DEST_QPN).union(Mask::RQ_PSN);
    const RESPONDS: Mask = Mask::MAX_DEST_RD_ATOMIC.union(Mask::MIN_RNR_TIMER);
    const RETRIES: Mask = Mask::TIMEOUT.union(Mask::RETRY_CNT).union(Mask::RNR_RETRY);
    const REQUESTS: Mask = RETRIES.union(Mask::MAX_QP_RD_ATOMIC);

    /// A network that has no room for one send, after so many that it has room for.
    struct FillsUp(AtomicU32);

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
    fn queue_pair(adapter: &Arc<Adapter>, service: Service, timeout: u8) -> Arc<QueuePair> {
        let events = Arc::new(EventQueue::new().expect("a queue of events"));
        let (options, channel) = (CompletionOptions::default(), None);
        let config = CqConfig { capacity: 128, options, channel, events: events.clone(), id: 0 };
        let cq = Arc::new(Cq::new(adapter.device(), config).expect("a completion queue"));
        let send = RequesterLimits { size: 128, max_sge: 1, inline_room: 0, signal_all: true };
        let config = QpConfig {
            pd: ProtectionDomain::allocate(adapter.device()),
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
            access: Access::REMOTE_READ
                .union(Access::REMOTE_WRITE)
                .union(Access::REMOTE_ATOMIC)
                .bits(),
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

    /// Polls until so many have completed, all of them well; their work requests, in order.
    fn completed(adapter: &Adapter, cq: &Cq, count: usize, what: &str) -> Vec<u64> {
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

    fn answer(operation: Operation, psn: u32) -> Packet<'static> {
        Packet::new(Transport::Rc, operation, 0, Psn::new(psn))
    }

    /// An acknowledgement that waits for something to go with is not passed by what answers later requests, and
    /// does not pass what answers earlier ones once more.
    /// Rules: ACK-05
    #[test]
    fn answers_leave_in_the_order_of_their_numbers() {
        let adapter = OnTheWire::open();
        let qp = queue_pair(&adapter, Service::Rc, 20);
        let mut half = qp.receive.half.lock();
        half.may_delay_ack = true;
        let aeth = Aeth { byte: Syndrome::Ack { credits: 0x1f }.to_byte(), msn: 0 };
        let counters = adapter.device().port().wire().expect("it leads over the wire").counters();
        let before = counters.sent.load(Relaxed);
        let state = |half: &ReceiveHalf| {
            let waits = half.delayed_ack.map(|delayed| delayed.psn.value());
            (waits, counters.sent.load(Relaxed) - before)
        };
        let (acknowledgement, read) =
            (Operation::Acknowledge(aeth), Operation::ReadResponseOnly(aeth));
        let last = 0xff_ffff;
        for (operation, psn, expected) in [
            (acknowledgement, last, (Some(last), 0)),
            (acknowledgement, 2, (Some(2), 0)),
            (acknowledgement, last, (Some(2), 1)),
            (read, 1, (Some(2), 2)),
            (read, 3, (None, 4)),
            (acknowledgement, 4, (Some(4), 4)),
        ] {
            half.respond(&answer(operation, psn), &qp);
            assert_eq!(state(&half), expected, "{psn}");
        }
        for (psn, expected) in [(3, (Some(4), 5)), (5, (None, 7))] {
            let psn = Psn::new(psn);
            let burst = ResponseBurst { psn, length: 0, begins: true, ends: true, msn: 0 };
            half.send_data(&burst, &qp, |_, _, _| Reply::Data { length: 0 });
            assert_eq!(state(&half), expected, "{psn:?}");
        }
        (half.delayed_ack, half.may_delay_ack) = (Some(answer(acknowledgement, 6)), false);
        for (psn, expected) in [(5, (Some(6), 8)), (7, (None, 9))] {
            half.respond(&answer(acknowledgement, psn), &qp);
            assert_eq!(state(&half), expected, "{psn}");
        }
    }

    /// Whatever send of a message or of an answer finds no room, all of it goes out in the end, though
    /// nobody would send it again: UC does not, and this RC has no retries.
    #[test]
    fn what_finds_no_room_waits_and_arrives_whole() {
        const LENGTH: usize = 200_000;
        let network = Arc::new(FillsUp(AtomicU32::new(u32::MAX)));
        let adapter = OnTheWire::open_over(Some(network.clone()));
        for service in [Service::Uc, Service::Rc] {
            let qp = queue_pair(&adapter, service, 20);
            let pd = qp.config.pd.as_ref().expect("it has one");
            for full in 0..8 {
                let bytes: Vec<u8> = (0..2 * LENGTH)
                    .map(|at| if at < LENGTH { (at / 7) as u8 } else { 0 })
                    .collect();
                let memory = Box::leak(bytes.into_boxed_slice());
                let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
                let (address, length) = (memory.as_ptr() as u64, memory.len() as u64);
                let registration = Registration { address, length, iova: address, access };
                let region = MemoryRegion::register(pd, registration).expect("a region");
                let half = |number: u64| {
                    let address = address + number * LENGTH as u64;
                    [Sge { address, length: LENGTH as u32, key: region.key().0 }]
                };
                let (from, to) = (half(0), half(1));
                let (body, sges) = match service {
                    Service::Uc => {
                        qp.post_receive(&ReceiveRequest { wr_id: 2, sges: &[] }).expect("room");
                        let (address, key) = (to[0].address, region.key());
                        // Its first packet is longer than the rest, and goes alone.
                        (Body::Write { address, key, immediate: Some(5) }, &from)
                    }
                    _ => (Body::Read { address, key: region.key() }, &to),
                };
                network.0.store(full, Relaxed);
                let request = SendRequest {
                    wr_id: 1,
                    op: SendOp::Message(body),
                    flags: SendFlags::SIGNALED,
                    sges,
                    inline: None,
                    remote: Remote::Connected,
                };
                qp.post_send(&request, More::Nothing).expect("there is room");
                let mut left = if service == Service::Uc { 2 } else { 1 };
                let start = Instant::now();
                while left > 0 {
                    let cq = qp.config.send_cq.as_ref().expect("it has one");
                    let each = |_: usize, completion: &Completion| {
                        assert_eq!(completion.status, Status::Success, "{service:?} {full}");
                    };
                    left -= adapter.poll(cq, 2, each).expect("no overrun");
                    assert!(start.elapsed() < Duration::from_secs(20), "{service:?} {full}");
                }
                network.0.store(u32::MAX, Relaxed);
                let (sent, received) = memory.split_at(LENGTH);
                assert!(sent == received, "{service:?} {full}");
                region.deregister().expect("nothing is bound");
            }
        }
    }

    /// Nor does an answer get lost that finds no room: whoever waits for it would wait for the timeout, and here ask
    /// no second time. Those that come later are behind it.
    #[test]
    fn an_answer_that_finds_no_room_leaves_later_and_in_order() {
        let network = Arc::new(FillsUp(AtomicU32::new(u32::MAX)));
        let adapter = OnTheWire::open_over(Some(network.clone()));
        let qp = queue_pair(&adapter, Service::Rc, 20);
        let (pd, cq) = (qp.config.pd.as_ref(), qp.config.send_cq.as_ref());
        let (pd, cq) = (pd.expect("it has one"), cq.expect("it has one"));
        let memory = Box::leak(vec![0_u64; 64].into_boxed_slice());
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let (address, length) = (memory.as_ptr() as u64, 8 * memory.len() as u64);
        let registration = Registration { address, length, iova: address, access };
        let region = MemoryRegion::register(pd, registration).expect("a region");
        let key = region.key();
        let write = Body::Write { address, key, immediate: None };
        let add = Body::FetchAdd { address: address + 8, key, add: 1 };
        let mut added = 0;
        for bodies in [&[write][..], &[add], &[add, write, write], &[write, add, write]] {
            for full in 0..8 {
                network.0.store(full, Relaxed);
                for (wr_id, body) in bodies.iter().enumerate() {
                    let request = SendRequest {
                        wr_id: wr_id as u64,
                        op: SendOp::Message(*body),
                        flags: SendFlags::SIGNALED,
                        sges: &[Sge { address: address + 256, length: 8, key: key.0 }],
                        inline: None,
                        remote: Remote::Connected,
                    };
                    qp.post_send(&request, More::Nothing).expect("there is room");
                    added += u64::from(*body == add);
                }
                let done = completed(&adapter, cq, bodies.len(), &format!("{bodies:?} {full}"));
                assert!(done.is_sorted(), "{done:?}");
                assert!(qp.receive.half.lock().unsent.is_empty());
            }
        }
        assert_eq!(memory[1], added);
        region.deregister().expect("nothing is bound");
    }

    /// Messages of a list leave in one burst, a system call for each run of one length; whichever of these finds
    /// no room, all messages arrive.
    #[test]
    fn messages_of_a_list_leave_together() {
        let network = Arc::new(FillsUp(AtomicU32::new(u32::MAX)));
        let adapter = OnTheWire::open_over(Some(network.clone()));
        let qp = queue_pair(&adapter, Service::Rc, 20);
        let (pd, cq) = (qp.config.pd.as_ref(), qp.config.send_cq.as_ref());
        let (pd, cq) = (pd.expect("it has one"), cq.expect("it has one"));
        let (alike, mixed) = ([8; 12], [8, 8, 3000, 3000, 1, 0, 1024, 1024, 1024, 500, 70_000, 8]);
        for (lengths, full, runs) in [
            (alike, u32::MAX, 1),
            (alike, 0, 1),
            (mixed, 0, 1),
            (mixed, 1, 2),
            (mixed, 2, 3),
            (mixed, 4, 5),
        ] {
            let total: u32 = lengths.iter().sum();
            let bytes: Vec<u8> =
                (0..2 * total).map(|at| if at < total { (at / 7) as u8 | 1 } else { 0 }).collect();
            let memory = Box::leak(bytes.into_boxed_slice());
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let (address, length) = (memory.as_ptr() as u64, memory.len() as u64);
            let registration = Registration { address, length, iova: address, access };
            let region = MemoryRegion::register(pd, registration).expect("a region");
            // The background thread would send what is left.
            let working = adapter.device().work.working.lock();
            network.0.store(full, Relaxed);
            let mut from = address;
            for (number, length) in (1..).zip(lengths) {
                let to = from + u64::from(total);
                let body = Body::Write { address: to, key: region.key(), immediate: None };
                let request = SendRequest {
                    wr_id: number,
                    op: SendOp::Message(body),
                    flags: SendFlags::SIGNALED,
                    sges: &[Sge { address: from, length, key: region.key().0 }],
                    inline: None,
                    remote: Remote::Connected,
                };
                let ends = number == lengths.len() as u64;
                let more = if ends { More::Nothing } else { More::Follows };
                qp.post_send(&request, more).expect("there is room");
                from += u64::from(length);
            }
            assert_eq!(full.wrapping_sub(network.0.load(Relaxed)), runs, "{lengths:?} {full}");
            drop(working);
            let done = completed(&adapter, cq, lengths.len(), &format!("{lengths:?} {full}"));
            assert!(done.is_sorted(), "{done:?}");
            let (sent, received) = memory.split_at(total as usize);
            assert!(sent == received, "{lengths:?} {full}");
            region.deregister().expect("nothing is bound");
        }
    }

    /// Where much is on its way, what is posted leaves with the next poll, in one burst; but at once if there is
    /// much of it, or if the program does not poll as it should.
    #[test]
    fn what_is_posted_while_much_is_on_its_way_leaves_with_the_next_poll() {
        const MESSAGES: u64 = 100;
        let adapter = OnTheWire::open();
        let qp = queue_pair(&adapter, Service::Rc, 20);
        let wire = adapter.device().port().wire().expect("it leads over the wire");
        let sent = || wire.counters().sent.load(Relaxed);
        for (listens, expected) in [(true, MESSAGES), (false, 8 + 64)] {
            // The background thread would change it, and give what waits its turn.
            let working = adapter.device().work.working.lock();
            adapter.device().work.listens.store(listens, SeqCst);
            wire.stalled.each(|_| {});
            let before = sent();
            for wr_id in 0..MESSAGES {
                // To nowhere: only whether they arrive counts.
                let request = SendRequest {
                    wr_id,
                    op: SendOp::Message(Body::Write { address: 0, key: Key(0), immediate: None }),
                    flags: SendFlags::SIGNALED,
                    sges: &[],
                    inline: None,
                    remote: Remote::Connected,
                };
                qp.post_send(&request, More::Perhaps).expect("there is room");
            }
            assert_eq!(sent() - before, expected, "{listens}");
            assert_eq!(wire.stalled.any(), !listens);
            drop(working);
            let cq = qp.config.send_cq.as_ref().expect("it has one");
            let done = completed(&adapter, cq, MESSAGES as usize, &listens.to_string());
            assert_eq!(done, (0..MESSAGES).collect::<Vec<_>>());
        }
    }

    /// An answer that another thread is about to take when the time is up is in time, though that thread
    /// has long had no processor.
    #[test]
    fn an_answer_that_another_thread_is_taking_is_in_time() {
        let adapter = OnTheWire::open();
        // 4.096 us << 10 is some 4 ms, and there is no second attempt.
        let (timeout, once, ten_times) = (10, Duration::from_millis(4), Duration::from_millis(40));
        let wire = adapter.device().port().wire().expect("it leads over the wire");
        let read = Body::Read { address: 0, key: Key(0) };
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Message(read),
            flags: SendFlags::SIGNALED,
            sges: &[],
            inline: None,
            remote: Remote::Connected,
        };
        let begun = Instant::now();
        let (qp, arrivals) = loop {
            let qp = queue_pair(&adapter, Service::Rc, timeout);
            let working = adapter.device().work.working.lock();
            let posted = Instant::now();
            qp.post_send(&request, More::Nothing).expect("there is room");
            // The request: the answer lies in the socket then.
            adapter.progress();
            let arrivals = wire.turn();
            drop(working);
            // On a machine that had others run meanwhile it may have been taken when the time was up.
            if posted.elapsed() < once {
                break (qp, arrivals);
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "this machine is too slow");
        };
        let cq = qp.config.send_cq.as_ref().expect("it has one");
        let mut statuses = Vec::new();
        let mut poll = || {
            let each = |_: usize, completion: &Completion| statuses.push(completion.status);
            adapter.poll(cq, 2, each).expect("no overrun")
        };
        let start = Instant::now();
        while start.elapsed() < ten_times {
            assert_eq!(poll(), 0, "while it lies there");
        }
        drop(arrivals);
        while poll() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "it comes");
        }
        assert_eq!(statuses, [Status::Success]);
    }

    /// What nobody sends again waits for its turn; what is answered has a window instead.
    #[test]
    fn unreliable_queue_pairs_alone_keep_to_the_pace() {
        let adapter = OnTheWire::open();
        for (service, waits) in [(Service::Rc, false), (Service::Uc, true)] {
            let qp = queue_pair(&adapter, service, 20);
            let wire = adapter.device().port().wire().expect("it leads over the wire");
            // The background thread would give it its turn when that comes.
            let _working = adapter.device().work.working.lock();
            wire.stalled.each(|_| {});
            // Others have sent so much that it takes the receiver a minute.
            assert!(wire.admits(30_000_000_000, clock::steady()) || waits);
            let sent = wire.counters().sent.load(Relaxed);
            let request = SendRequest {
                wr_id: 1,
                op: SendOp::Message(Body::Send),
                flags: SendFlags::empty(),
                sges: &[],
                inline: None,
                remote: Remote::Connected,
            };
            qp.post_send(&request, More::Nothing).expect("there is room");
            assert_eq!(wire.counters().sent.load(Relaxed) - sent, u64::from(!waits));
            assert_eq!(wire.stalled.any(), waits);
        }
    }
}
