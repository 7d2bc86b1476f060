//! WRITE, READ and atomics.

use std::time::Instant;

use transom_abi::*;

use super::{LIST, time, time_near};
use crate::bench::end::{DEPTH, LARGEST, one_sided, request, spin};
use crate::bench::process::Process;
use crate::failure::Result;

pub(super) fn write(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    let mut sge = process.end.outgoing(size);
    let mut wr = one_sided(IBV_WR_RDMA_WRITE, &mut sge, &process.peer);
    time_near(process, count, |process| process.end.carry_out(&mut wr))
}

pub(super) fn read(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    let mut sge = process.end.outgoing(size);
    let mut wr = one_sided(IBV_WR_RDMA_READ, &mut sge, &process.peer);
    time_near(process, count, |process| process.end.carry_out(&mut wr))
}

pub(super) fn fetch_and_add(process: &mut Process, count: usize) -> Result<f64> {
    let mut sge = process.end.outgoing(8);
    let mut wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sge);
    wr.wr.atomic = ibv_send_wr_atomic {
        remote_addr: process.peer.address + LARGEST as u64,
        compare_add: 1,
        rkey: process.peer.key,
        ..ibv_send_wr_atomic::default()
    };
    time_near(process, count, |process| process.end.carry_out(&mut wr))
}

/// As `ib_write_lat`: the last byte tells that all bytes have arrived.
pub(super) fn write_and_back(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    let (sent, received) = (size - 1, LARGEST + size - 1);
    process.end.memory.set_byte(received, 0);
    process.meet()?;
    let Process { end, peer, .. } = &*process;
    let mut sge = end.outgoing(size);
    let mut wr = one_sided(IBV_WR_RDMA_WRITE, &mut sge, peer);
    let mut write = |mark: u8| {
        end.memory.set_byte(sent, mark);
        end.carry_out(&mut wr)
    };
    let see = |mark: u8| spin("a WRITE", || Ok((end.memory.byte(received) == mark).then_some(())));
    let round_trip = time(count, |round| {
        // Differs from the mark before, and from the byte that was there at first.
        let mark = (round % 250) as u8 + 1;
        if process.is_near() {
            write(mark)?;
            see(mark)
        } else {
            see(mark)?;
            write(mark)
        }
    })?;
    Ok(round_trip / 2.0)
}

/// As `ib_write_bw`: one of this many requests is signaled, and completes for all before it.
const PORTION: usize = DEPTH as usize / 4;

pub(super) fn write_stream(
    process: &mut Process,
    size: usize,
    queue_pairs: usize,
    count: usize,
) -> Result<f64> {
    if !process.is_near() {
        return Ok(0.0);
    }
    let Process { end, peer, .. } = &*process;
    let mut sge = end.outgoing(size);
    let mut wr = one_sided(IBV_WR_RDMA_WRITE, &mut sge, peer);
    // The portions under way on each queue pair.
    let mut under_way = vec![0; queue_pairs];
    let complete = |under_way: &mut [usize]| -> Result {
        under_way[end.wait()?.wr_id as usize] -= 1;
        Ok(())
    };
    let portions = count.div_ceil(PORTION * queue_pairs);
    let start = Instant::now();
    for _ in 0..portions {
        while under_way.contains(&(DEPTH as usize / PORTION)) {
            complete(&mut under_way)?;
        }
        for number in 1..=PORTION {
            wr.send_flags = if number == PORTION { IBV_SEND_SIGNALED } else { 0 };
            for qp in 0..queue_pairs {
                wr.wr_id = qp as u64;
                end.post(qp, &mut wr)?;
            }
        }
        under_way.iter_mut().for_each(|portions| *portions += 1);
    }
    while under_way.iter().any(|portions| *portions > 0) {
        complete(&mut under_way)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / (portions * PORTION * queue_pairs) as f64)
}

/// As `ib_write_bw -s 8 -l 16`: the last request of each list is signaled, and completes for all before it.
pub(super) fn write_lists(process: &mut Process, queue_pairs: usize, count: usize) -> Result<f64> {
    if !process.is_near() {
        return Ok(0.0);
    }
    let Process { end, peer, .. } = &*process;
    let mut sge = end.outgoing(8);
    let mut list = [(); LIST].map(|()| one_sided(IBV_WR_RDMA_WRITE, &mut sge, peer));
    list.iter_mut().for_each(|wr| wr.send_flags = 0);
    list[LIST - 1].send_flags = IBV_SEND_SIGNALED;
    let mut next = std::ptr::null_mut();
    for wr in list.iter_mut().rev() {
        wr.next = next;
        next = wr;
    }
    let rounds = count.div_ceil(LIST * queue_pairs);
    // The lists under way on each queue pair.
    let mut under_way = vec![0; queue_pairs];
    let start = Instant::now();
    for qp in (0..queue_pairs).cycle().take(rounds * queue_pairs) {
        while under_way[qp] == DEPTH as usize / LIST {
            under_way[end.wait()?.wr_id as usize] -= 1;
        }
        list[LIST - 1].wr_id = qp as u64;
        end.post(qp, &mut list[0])?;
        under_way[qp] += 1;
    }
    while under_way.iter().any(|lists| *lists > 0) {
        under_way[end.wait()?.wr_id as usize] -= 1;
    }
    Ok(start.elapsed().as_nanos() as f64 / (rounds * queue_pairs * LIST) as f64)
}
