//! Datagrams, which the peer sends back.

use crate::end::{HEADER, pattern, text, wait};
use crate::stage::{Row, Stage, of_length, same};
use crate::talk::Service::Datagram;
use crate::talk::{Ask, PATIENCE, Received};

pub(crate) const ROWS: &[Row] = &[
    (Datagram, "UD SEND and an answer", |stage| answered(stage, None)),
    (Datagram, "UD SEND with immediate and an answer", |stage| answered(stage, Some(77))),
];

fn answered(stage: &mut Stage<'_>, immediate: Option<u32>) -> Result<(), String> {
    let to = stage.destination()?;
    // The receive is behind what is sent.
    let back = 64 << 10;
    for (seed, length) in (1..).zip([0, 1, stage.mtu - 1, stage.mtu]) {
        let outcome = (|| {
            stage.ask(&Ask::ReceiveDatagram)?;
            stage.fill(seed);
            let qp = stage.datagrams();
            let mut answer =
                qp.receive(&stage.slice(back..back + HEADER + length)).map_err(text)?;
            let payload = [stage.slice(0..length)];
            wait(match immediate {
                None => qp.send(&to, &payload),
                Some(immediate) => qp.send_immediate(&to, &payload, immediate),
            })?;
            let expected = Received { length, immediate, invalidated: None };
            same("what was received", stage.hear_received(&Ask::Echo)?, expected)?;
            let answer = answer.wait_timeout(PATIENCE).map_err(text)?.ok_or("no answer came")?;
            same("the answer's sender", answer.source().queue_pair, to.queue_pair)?;
            same("its immediate data", answer.completion().immediate(), immediate)?;
            same("its payload", answer.to_vec() == pattern(seed, 0..length), true)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}
