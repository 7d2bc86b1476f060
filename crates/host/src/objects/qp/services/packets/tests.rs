use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use transom_device::protection::Key;
use transom_device::queue::{
    Body, Completion, ReceiveRequest, SendFlags, SendRequest, Sge, Status,
};

use super::*;
use crate::objects::More;
use crate::objects::qp::testing::*;
use crate::testing::OnTheWire;

/// Any send of a message or an answer may find no room. All of it goes out in the end, though nothing would repeat it:
/// UC repeats nothing, and this RC has no retries. `port_xmit_wait` counts each time once.
///
/// Rules: SEE-04
#[test]
fn what_finds_no_room_waits_and_arrives_whole() {
    const LENGTH: usize = 200_000;
    let network = Arc::new(FillsUp(AtomicU32::new(u32::MAX)));
    let adapter = OnTheWire::open_over(Some(network.clone()));
    for service in [Service::Uc, Service::Rc] {
        let qp = queue_pair(&adapter, service, 20);
        let pd = qp.config.pd.as_ref().expect("it has one");
        for full in 0..8 {
            let bytes: Vec<u8> =
                (0..2 * LENGTH).map(|at| if at < LENGTH { (at / 7) as u8 } else { 0 }).collect();
            let memory = Box::leak(bytes.into_boxed_slice());
            let address = memory.as_ptr() as u64;
            let region = registered(pd, memory);
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
            let counters = adapter.device().port().wire().expect("it is open").counters();
            let before = counters.no_room.load(Relaxed);
            network.0.store(full, Relaxed);
            let request = message(1, body, sges);
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
            // Below zero it says that there was no room once. Few packets may all have found room.
            let was_full = network.0.swap(u32::MAX, Relaxed) > u32::MAX / 2;
            let counted = || counters.no_room.load(Relaxed) - before;
            while was_full && counted() == 0 {
                assert!(start.elapsed() < Duration::from_secs(20), "{service:?} {full}");
            }
            assert_eq!(counted(), u64::from(was_full), "{service:?} {full}");
            assert!(was_full || full > 3, "{service:?} {full}");
            let (sent, received) = memory.split_at(LENGTH);
            assert!(sent == received, "{service:?} {full}");
            region.deregister().expect("nothing is bound");
        }
    }
}

/// Messages of a list leave in one burst, with one system call for each run of one length. Any of these may find no
/// room; all messages arrive.
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
        let address = memory.as_ptr() as u64;
        let region = registered(pd, memory);
        // The background thread would send the rest.
        let working = adapter.device().work.working.lock();
        network.0.store(full, Relaxed);
        let mut from = address;
        for (number, length) in (1..).zip(lengths) {
            let to = from + u64::from(total);
            let body = Body::Write { address: to, key: region.key(), immediate: None };
            let sges = [Sge { address: from, length, key: region.key().0 }];
            let ends = number == lengths.len() as u64;
            let more = if ends { More::Nothing } else { More::Follows };
            qp.post_send(&message(number, body, &sges), more).expect("there is room");
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

/// If many packets are on their way, posted requests leave with the next poll, in one burst. They leave at once if
/// there are many of them, or if the program does not poll regularly.
#[test]
fn what_is_posted_while_much_is_on_its_way_leaves_with_the_next_poll() {
    const MESSAGES: u64 = 100;
    let adapter = OnTheWire::open();
    let qp = queue_pair(&adapter, Service::Rc, 20);
    let wire = adapter.device().port().wire().expect("it leads over the wire");
    let sent = || wire.counters().sent.load(Relaxed);
    for (listens, expected) in [(true, MESSAGES), (false, 8 + 64)] {
        // The background thread would change it, and give waiting requests their turn.
        let working = adapter.device().work.working.lock();
        adapter.device().work.polling.listen(listens);
        wire.stalled.each(|_| {});
        let before = sent();
        for wr_id in 0..MESSAGES {
            // The address is invalid: only their arrival counts.
            let body = Body::Write { address: 0, key: Key(0), immediate: None };
            let request = message(wr_id, body, &[]);
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

/// Messages that are never repeated wait for their turn. Messages that are answered have a window instead.
#[test]
fn unreliable_queue_pairs_alone_keep_to_the_pace() {
    let adapter = OnTheWire::open();
    for (service, waits) in [(Service::Rc, false), (Service::Uc, true)] {
        let qp = queue_pair(&adapter, service, 20);
        let wire = adapter.device().port().wire().expect("it leads over the wire");
        // The background thread would give it its turn in time.
        let _working = adapter.device().work.working.lock();
        wire.stalled.each(|_| {});
        // Others have sent enough to keep the receiver busy for a minute.
        assert!(wire.admits(30_000_000_000, clock::steady()) || waits);
        let sent = wire.counters().sent.load(Relaxed);
        let request = SendRequest { flags: SendFlags::empty(), ..message(1, Body::Send, &[]) };
        qp.post_send(&request, More::Nothing).expect("there is room");
        assert_eq!(wire.counters().sent.load(Relaxed) - sent, u64::from(!waits));
        assert_eq!(wire.stalled.any(), waits);
    }
}
