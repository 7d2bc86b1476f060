//! Datagrams, which the peer sends back.

use crate::driver::{Driver, Row, of_length, same};
use crate::end::{HEADER, pattern, text, wait};
use crate::talk::Service::Datagram;
use crate::talk::{Ask, Received, TIMEOUT};

pub(crate) const ROWS: &[Row] = &[
    (Datagram, "UD SEND and an answer", |driver| answered(driver, None)),
    (Datagram, "UD SEND with immediate and an answer", |driver| answered(driver, Some(77))),
];

fn answered(driver: &mut Driver<'_>, immediate: Option<u32>) -> Result<(), String> {
    let to = driver.destination()?;
    // The receive uses memory behind the sent bytes.
    let back = 64 << 10;
    for (seed, length) in (1..).zip([0, 1, driver.mtu - 1, driver.mtu]) {
        let outcome = (|| {
            driver.ask(&Ask::ReceiveDatagram)?;
            driver.fill(seed);
            let qp = driver.datagrams();
            let mut answer =
                qp.receive(&driver.slice(back..back + HEADER + length)).map_err(text)?;
            let payload = [driver.slice(0..length)];
            wait(match immediate {
                None => qp.send(&to, &payload),
                Some(immediate) => qp.send_immediate(&to, &payload, immediate),
            })?;
            let expected = Received { length, immediate, invalidated: None };
            same("what was received", driver.hear_received(&Ask::Echo)?, expected)?;
            let answer = answer.wait_timeout(TIMEOUT).map_err(text)?.ok_or("no answer came")?;
            same("the answer's sender", answer.source().queue_pair, to.queue_pair)?;
            same("its immediate data", answer.completion().immediate(), immediate)?;
            same("its payload", answer.to_vec() == pattern(seed, 0..length), true)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}
