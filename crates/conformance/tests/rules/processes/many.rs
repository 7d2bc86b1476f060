//! Sixteen processes at once, every one connected to every other.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::{on_each_way, path_of};

/// Processes.
const NODES: usize = 16;
/// What one process writes to one other in a round.
const BLOCK: usize = 4096;

fn rounds() -> u64 {
    if is_long() { 500 } else { 12 }
}

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("node", node)]);
}

/// What the process `from` writes to the process `to` in a round, as the seed of a pattern.
fn seed(from: usize, to: usize, round: u64) -> u8 {
    (from * 16 + to) as u8 ^ (round as u8).wrapping_mul(37)
}

/// A place for the blocks of each peer, one for odd rounds and one for even ones: a peer can be one
/// round ahead, for it needs this process's SEND to go on.
fn place(peer: usize, round: u64) -> usize {
    (peer * 2 + (round % 2) as usize) * BLOCK
}

/// One of the processes. In each round it writes a block to every other, tells it so by a SEND with
/// immediate, and adds one to its counter; and checks the blocks of the others once it is told.
fn node(channel: &mut Channel) {
    let end = open();
    let [me] = channel.hear();
    let me = me as usize;
    let (inbox, outbox) = (Buffer::new(NODES * 2 * BLOCK), Buffer::new(NODES * 2 * BLOCK));
    // The counter, and after it the places for what the others' counters were.
    let counters = Buffer::new(8 * (1 + NODES));
    let [mi, mo, mc] = [&inbox, &outbox, &counters].map(|buffer| end.reg(buffer, ALL));
    let qps: Vec<_> = (0..NODES).map(|_| end.qp(IBV_QPT_RC)).collect();

    let mut card = vec![inbox.addr(), u64::from(keys(mi).1)];
    card.extend([counters.addr(), u64::from(keys(mc).1)]);
    card.extend(qps.iter().map(|qp| number(*qp)));
    channel.tell(&card);
    let cards: Vec<Vec<u64>> = (0..NODES).map(|_| channel.hear_all()).collect();
    let peers = || (0..NODES).filter(|peer| *peer != me);
    for peer in peers() {
        bring_up(qps[peer], &attr_to(cards[peer][4 + me]));
        for _ in 0..4 {
            recv(qps[peer], peer as u64, &mut []);
        }
    }
    channel.tell(&[]);
    let [] = channel.hear();

    let mut told = [0; NODES];
    for round in 0..rounds() {
        for peer in peers() {
            let [inbox, inbox_key, counter, counter_key] = cards[peer][..4] else {
                panic!("a card begins with the memory")
            };
            let block: Vec<u8> = (0..BLOCK).map(|at| pattern(at, seed(me, peer, round))).collect();
            outbox.write(place(peer, round), &block);
            let from = outbox.addr() + place(peer, round) as u64;
            let to = inbox + place(me, round) as u64;
            let mut data = [sge(from, BLOCK as u32, mo)];
            let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut data, to, inbox_key as u32);
            write.send_flags = 0;
            post(qps[peer], &mut write);
            let mut send = wr(IBV_WR_SEND_WITH_IMM);
            send.send_flags = 0;
            send.imm.imm_data = (round as u32).to_be();
            post(qps[peer], &mut send);
            let old = counters.addr() + 8 * (1 + peer as u64);
            let (mut old, add) = ([sge(old, 8, mc)], IBV_WR_ATOMIC_FETCH_AND_ADD);
            let mut count = atomic_wr(add, &mut old, counter, counter_key as u32, 1, 0);
            count.wr_id = 1000 + peer as u64;
            post(qps[peer], &mut count);
        }
        // One completion for each atomic, and a SEND of each peer; SENDs of the next round may come
        // early.
        let mut counted = 0;
        while counted < NODES - 1 || peers().any(|peer| told[peer] <= round) {
            let wc = end.expect(IBV_WC_SUCCESS);
            if wc.opcode == IBV_WC_FETCH_ADD {
                counted += 1;
                continue;
            }
            assert_eq!(wc.opcode, IBV_WC_RECV);
            let peer = wc.wr_id as usize;
            // SAFETY: a completion with immediate.
            assert_eq!(u32::from_be(unsafe { wc.imm.imm_data }), told[peer] as u32);
            let block = inbox.read(place(peer, told[peer]), BLOCK);
            let seed = seed(peer, me, told[peer]);
            assert!(block.iter().enumerate().all(|(at, byte)| *byte == pattern(at, seed)));
            told[peer] += 1;
            recv(qps[peer], peer as u64, &mut []);
        }
    }
    // All others have told of their last round, but their last atomic may come behind.
    let total = rounds() * (NODES as u64 - 1);
    until("the last of the others' counts", || {
        let _ = poll(end.cq);
        (counters.word(0) == total).then_some(())
    });
    channel.tell(&[]);
    let [] = channel.hear();
    assert_eq!(counters.word(0), total);
}

on_each_way! {
    /// Every byte, every message and every count arrives, each where it belongs.
    fn everybody_talks_to_everybody() {
        let mut nodes: Vec<Child> = (0..NODES).map(|_| Child::start(path_of!("node"))).collect();
        for (number, node) in nodes.iter_mut().enumerate() {
            node.tell(&[number as u64]);
        }
        let cards: Vec<_> = nodes.iter_mut().map(|node| node.channel.hear_all()).collect();
        for node in &mut nodes {
            cards.iter().for_each(|card| node.tell(card));
        }
        // Connected; done.
        for _ in 0..2 {
            for node in &mut nodes {
                let [] = node.hear();
            }
            nodes.iter_mut().for_each(|node| node.tell(&[]));
        }
        nodes.into_iter().for_each(Child::finish);
    }
}
