//! The operations of reliable and unreliable connections.

use transom::{RemoteSlice, Status};

use crate::driver::{AT, Driver, Row, came, of_length, same};
use crate::end::{pattern, text, wait};
use crate::talk::Service::{Reliable, Unreliable};
use crate::talk::{Ask, Received};

pub(crate) const ROWS: &[Row] = &[
    (Reliable, "RC SEND", |driver| sends(driver, None)),
    (Reliable, "RC SEND with immediate", |driver| sends(driver, Some(0x8765_4321))),
    (Reliable, "RC SEND before its receive", send_before_receive),
    (Reliable, "RC SEND longer than its receive", too_long),
    (Reliable, "RC WRITE", writes),
    (Reliable, "RC WRITE with immediate", writes_with_immediate),
    (Reliable, "RC READ", reads),
    (Reliable, "RC FETCH_ADD", fetch_add),
    (Reliable, "RC CMP_SWAP", compare_swap),
    (Reliable, "RC misaligned FETCH_ADD", misaligned),
    (Reliable, "RC WRITE with a wrong key", |driver| wrong_key(driver, false)),
    (Reliable, "RC READ with a wrong key", |driver| wrong_key(driver, true)),
    (Reliable, "RC many at once", many),
    (Unreliable, "UC SEND", |driver| sends(driver, None)),
    (Unreliable, "UC SEND with immediate", |driver| sends(driver, Some(0x1234_5678))),
    (Unreliable, "UC WRITE with immediate", writes_with_immediate),
];

/// Messages of every length into the peer's memory. On an unreliable connection a lost message stays lost. So the
/// messages there are short enough that the network has room for all their packets.
fn sends(driver: &mut Driver<'_>, immediate: Option<u32>) -> Result<(), String> {
    for (seed, length) in (1..).zip(driver.lengths()) {
        let outcome = (|| {
            driver.ask(&Ask::Fill(0))?;
            driver.ask(&Ask::Receive(AT..AT + length))?;
            driver.fill(seed);
            let payload = [driver.slice(0..length)];
            let sent = match immediate {
                None => driver.qp().send(&payload),
                Some(immediate) => driver.qp().send_immediate(&payload, immediate),
            };
            wait(sent)?;
            let expected = Received { length, immediate, invalidated: None };
            same("what was received", driver.received()?, expected)?;
            driver.peer_has(AT, &pattern(seed, 0..length), 0)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

/// The peer posts its receive after the message, which must then be sent again.
fn send_before_receive(driver: &mut Driver<'_>) -> Result<(), String> {
    driver.fill(5);
    let length = 3 * driver.mtu + 7;
    let sent = driver.qp().send(&[driver.slice(0..length)]);
    driver.ask(&Ask::Receive(AT..AT + length))?;
    wait(sent)?;
    same("the length", driver.received()?.length, length)?;
    driver.peer_has(AT, &pattern(5, 0..length), 0)
}

/// Rules: RA-53
fn too_long(driver: &mut Driver<'_>) -> Result<(), String> {
    driver.ask(&Ask::Receive(AT..AT + 8))?;
    let sent = driver.qp().send(&[driver.slice(0..9)]);
    // Rule RXE-29.
    let status = match driver.peer_is_rxe {
        true => Status::RemoteOperation,
        false => Status::RemoteInvalidRequest,
    };
    driver.refused(sent, status)?;
    let came = driver.received();
    if came.is_ok() { Err("the receive succeeds".into()) } else { Ok(()) }
}

fn writes(driver: &mut Driver<'_>) -> Result<(), String> {
    for (seed, length) in (1..).zip(driver.lengths()) {
        let outcome = (|| {
            driver.ask(&Ask::Fill(0))?;
            driver.fill(seed);
            let remote = driver.remote(AT..AT + length);
            wait(driver.qp().write(&[driver.slice(0..length)], remote))?;
            driver.peer_has(AT, &pattern(seed, 0..length), 0)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

fn writes_with_immediate(driver: &mut Driver<'_>) -> Result<(), String> {
    for (seed, length) in (1..).zip(driver.lengths()) {
        let outcome = (|| {
            driver.ask(&Ask::Fill(0))?;
            driver.ask(&Ask::Receive(0..0))?;
            driver.fill(seed);
            let (payload, remote) = ([driver.slice(0..length)], driver.remote(AT..AT + length));
            wait(driver.qp().write_immediate(&payload, remote, seed.into()))?;
            let immediate = Some(seed.into());
            let expected = Received { length, immediate, invalidated: None };
            same("what was received", driver.received()?, expected)?;
            driver.peer_has(AT, &pattern(seed, 0..length), 0)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

fn reads(driver: &mut Driver<'_>) -> Result<(), String> {
    for length in driver.lengths() {
        let outcome = (|| {
            driver.fill(9);
            let remote = driver.remote(AT..AT + length);
            came(&wait(driver.qp().read(&[driver.slice(64..64 + length)], remote))?, length)?;
            driver.here_is(0, &pattern(9, 0..64))?;
            driver.here_is(64, &pattern(0, AT..AT + length))?;
            driver.here_is(64 + length, &pattern(9, 64 + length..128 + length))
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

/// The word at the place of atomics in memory filled with pattern 0.
fn first_word() -> u64 {
    word(&pattern(0, AT..AT + 8))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

fn local_word(driver: &Driver<'_>) -> Result<u64, String> {
    crate::end::read(&driver.memory, 0..8).map(|bytes| word(&bytes))
}

fn fetch_add(driver: &mut Driver<'_>) -> Result<(), String> {
    let mut expected = first_word();
    for add in [1, u64::MAX, 0x0123_4567_89ab_cdef] {
        let remote = driver.remote(AT..AT + 8);
        came(&wait(driver.qp().fetch_add(&driver.slice(0..8), remote, add))?, 8)?;
        same("the word before", local_word(driver)?, expected)?;
        expected = expected.wrapping_add(add);
        driver.peer_has(AT, &expected.to_ne_bytes(), 0)?;
    }
    Ok(())
}

fn compare_swap(driver: &mut Driver<'_>) -> Result<(), String> {
    let first = first_word();
    for (compare, swap, before, after) in
        [(first ^ 1, 5, first, first), (first, 7, first, 7), (7, u64::MAX, 7, u64::MAX)]
    {
        let remote = driver.remote(AT..AT + 8);
        wait(driver.qp().compare_swap(&driver.slice(0..8), remote, compare, swap))?;
        same("the word before", local_word(driver)?, before)?;
        driver.peer_has(AT, &after.to_ne_bytes(), 0)?;
    }
    Ok(())
}

fn misaligned(driver: &mut Driver<'_>) -> Result<(), String> {
    let remote = driver.remote(AT + 4..AT + 12);
    let posted = driver.qp().fetch_add(&driver.slice(0..8), remote, 1);
    match posted {
        // rxe's library checks this itself.
        Err(error) if error.errno() == Some(libc::EINVAL) => {}
        posted => driver.refused(posted, Status::RemoteInvalidRequest)?,
    }
    driver.peer_has(0, &[], 0)
}

fn wrong_key(driver: &mut Driver<'_>, read: bool) -> Result<(), String> {
    let length = 2 * driver.mtu;
    let right = driver.remote(AT..AT + length);
    let wrong = RemoteSlice { rkey: right.rkey ^ 0x0100_0001, ..right };
    driver.fill(3);
    let local = [driver.slice(0..length)];
    let posted =
        if read { driver.qp().read(&local, wrong) } else { driver.qp().write(&local, wrong) };
    driver.refused(posted, Status::RemoteAccess)?;
    driver.here_is(0, &pattern(3, 0..length))?;
    driver.peer_has(0, &[], 0)
}

/// As many requests as there is room for, of all kinds in turn, again and again.
fn many(driver: &mut Driver<'_>) -> Result<(), String> {
    const ROUNDS: usize = 20;
    const EACH: usize = 5000;
    let counter = 16 * EACH + AT;
    for round in 0..ROUNDS {
        let seed = round as u8 + 1;
        driver.fill(seed);
        // The peer's copy of this side's SGEs, read back to a later place.
        let back = 512 << 10;
        let mut posted = Vec::new();
        for index in 0..16 {
            let (here, there) = (index * EACH, AT + index * EACH);
            let remote = driver.remote(there..there + EACH);
            posted.push(driver.qp().write(&[driver.slice(here..here + EACH)], remote));
            let into = back + here..back + here + EACH;
            posted.push(driver.qp().read(&[driver.slice(into)], remote));
            let word = driver.slice((1 << 20) + 8 * index..(1 << 20) + 8 * index + 8);
            posted.push(driver.qp().fetch_add(&word, driver.remote(counter..counter + 8), 1));
        }
        for (index, posted) in posted.into_iter().enumerate() {
            let outcome = wait(posted);
            outcome.map_err(|problem| format!("request {index} of round {round}: {problem}"))?;
        }
        driver.here_is(back, &pattern(seed, 0..16 * EACH))?;
        let first = word(&pattern(0, counter..counter + 8)).wrapping_add(16 * round as u64);
        let counted = crate::end::read(&driver.memory, 1 << 20..(1 << 20) + 128).map_err(text)?;
        for (index, bytes) in counted.chunks(8).enumerate() {
            same("a counted word", word(bytes), first.wrapping_add(index as u64))?;
        }
    }
    Ok(())
}
