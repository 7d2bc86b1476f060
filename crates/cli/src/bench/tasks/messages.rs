//! SEND.

use std::time::Instant;

use transom_abi::*;

use super::{WARM_UP, time};
use crate::bench::end::{DEPTH, request};
use crate::bench::process::Process;
use crate::failure::Result;

/// As `ib_send_lat`, with or without its option `-e`.
pub(super) fn send_and_back(
    process: &mut Process,
    size: usize,
    asleep: bool,
    count: usize,
) -> Result<f64> {
    let is_near = process.is_near();
    let (mut incoming, mut outgoing) = (process.end.incoming(size), process.end.outgoing(size));
    process.end.receive(&mut incoming)?;
    process.meet()?;
    let end = &process.end;
    let (mut sent, rounds) = (0, WARM_UP + count);
    // Completions of SENDs come in between.
    let receive = |sent: &mut usize| -> Result {
        loop {
            let wc = if asleep { end.wait_asleep()? } else { end.wait()? };
            if wc.opcode == IBV_WC_RECV {
                return Ok(());
            }
            *sent += 1;
        }
    };
    let mut wr = request(IBV_WR_SEND, &mut outgoing);
    let round_trip = time(count, |round| {
        if is_near {
            end.post(0, &mut wr)?;
        }
        receive(&mut sent)?;
        if round + 1 < rounds {
            end.receive(&mut incoming)?;
        }
        if !is_near {
            end.post(0, &mut wr)?;
        }
        Ok(())
    })?;
    while sent < rounds {
        end.wait()?;
        sent += 1;
    }
    Ok(round_trip / 2.0)
}

/// As `ib_send_bw`. There is always a receive for the next message, so no sender gets an RNR NAK.
pub(super) fn send_stream(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    const UNDER_WAY: usize = DEPTH as usize / 2;
    let mut incoming = process.end.incoming(size);
    let mut posted = 0;
    if !process.is_near() {
        while posted < count.min(DEPTH as usize) {
            process.end.receive(&mut incoming)?;
            posted += 1;
        }
    }
    process.meet()?;
    let end = &process.end;
    if !process.is_near() {
        for _ in 0..count {
            end.wait()?;
            if posted < count {
                end.receive(&mut incoming)?;
                posted += 1;
            }
        }
        return Ok(0.0);
    }
    let mut outgoing = end.outgoing(size);
    let mut wr = request(IBV_WR_SEND, &mut outgoing);
    let (mut sent, mut done) = (0, 0);
    let start = Instant::now();
    while done < count {
        while sent < count && sent - done < UNDER_WAY {
            end.post(0, &mut wr)?;
            sent += 1;
        }
        end.wait()?;
        done += 1;
    }
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}
