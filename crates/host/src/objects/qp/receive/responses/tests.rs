use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use transom_device::protection::Key;
use transom_device::queue::{Body, Completion, Sge, Status};
use transom_wire::Syndrome;
use transom_wire::packet::{Aeth, Operation};

use super::*;
use crate::objects::More;
use crate::objects::qp::testing::*;
use crate::testing::OnTheWire;

fn answer(operation: Operation, psn: u32) -> Packet<'static> {
    Packet::new(Transport::Rc, operation, 0, Psn::new(psn))
}

/// Answers to later requests do not overtake a delayed acknowledgement, and the acknowledgement does not overtake
/// repeated answers to earlier ones.
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
    let (acknowledgement, read) = (Operation::Acknowledge(aeth), Operation::ReadResponseOnly(aeth));
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

/// An answer that finds no room is not lost either. Its requester would wait for the timeout, and here it would not ask
/// a second time. Later answers queue behind it.
#[test]
fn an_answer_that_finds_no_room_leaves_later_and_in_order() {
    let network = Arc::new(FillsUp(AtomicU32::new(u32::MAX)));
    let adapter = OnTheWire::open_over(Some(network.clone()));
    let qp = queue_pair(&adapter, Service::Rc, 20);
    let (pd, cq) = (qp.config.pd.as_ref(), qp.config.send_cq.as_ref());
    let (pd, cq) = (pd.expect("it has one"), cq.expect("it has one"));
    let memory = Box::leak(vec![0_u64; 64].into_boxed_slice());
    let address = memory.as_ptr() as u64;
    let region = registered(pd, memory);
    let key = region.key();
    let old = [Sge { address: address + 256, length: 8, key: key.0 }];
    let write = Body::Write { address, key, immediate: None };
    let add = Body::FetchAdd { address: address + 8, key, add: 1 };
    let mut added = 0;
    for bodies in [&[write][..], &[add], &[add, write, write], &[write, add, write]] {
        for full in 0..8 {
            network.0.store(full, Relaxed);
            for (wr_id, body) in bodies.iter().enumerate() {
                let request = message(wr_id as u64, *body, &old);
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

/// If another thread is about to take an answer when the time is up, the answer is in time, even if that thread has had
/// no processor for long.
#[test]
fn an_answer_that_another_thread_is_taking_is_in_time() {
    let adapter = OnTheWire::open();
    // 4.096 us << 10 is some 4 ms, and there is no second attempt.
    let (timeout, once, ten_times) = (10, Duration::from_millis(4), Duration::from_millis(40));
    let wire = adapter.device().port().wire().expect("it leads over the wire");
    let read = Body::Read { address: 0, key: Key(0) };
    let request = message(1, read, &[]);
    let begun = Instant::now();
    let (qp, arrivals) = loop {
        let qp = queue_pair(&adapter, Service::Rc, timeout);
        let working = adapter.device().work.working.lock();
        let posted = Instant::now();
        qp.post_send(&request, More::Nothing).expect("there is room");
        // Carries out the request. The answer then lies in the socket.
        adapter.progress();
        let arrivals = wire.turn();
        drop(working);
        // If the machine ran others meanwhile, the answer may have been taken after the time was up.
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
