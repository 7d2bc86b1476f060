//! Operations of connections, reliable and not.

use transom::{RemoteSlice, Status};

use crate::end::{pattern, text, wait};
use crate::stage::{AT, Row, Stage, came, of_length, same};
use crate::talk::Service::{Reliable, Unreliable};
use crate::talk::{Ask, Received};

pub(crate) const ROWS: &[Row] = &[
    (Reliable, "RC SEND", |stage| sends(stage, None)),
    (Reliable, "RC SEND with immediate", |stage| sends(stage, Some(0x8765_4321))),
    (Reliable, "RC SEND before its receive", send_before_receive),
    (Reliable, "RC SEND longer than its receive", too_long),
    (Reliable, "RC WRITE", writes),
    (Reliable, "RC WRITE with immediate", writes_with_immediate),
    (Reliable, "RC READ", reads),
    (Reliable, "RC FETCH_ADD", fetch_add),
    (Reliable, "RC CMP_SWAP", compare_swap),
    (Reliable, "RC misaligned FETCH_ADD", misaligned),
    (Reliable, "RC WRITE with a wrong key", |stage| wrong_key(stage, false)),
    (Reliable, "RC READ with a wrong key", |stage| wrong_key(stage, true)),
    (Reliable, "RC many at once", many),
    (Unreliable, "UC SEND", |stage| sends(stage, None)),
    (Unreliable, "UC SEND with immediate", |stage| sends(stage, Some(0x1234_5678))),
    (Unreliable, "UC WRITE with immediate", writes_with_immediate),
];

/// Messages of every length into memory of the peer. One that is lost on an unreliable connection is
/// lost, so those there are not so long that the network has no room for all their packets.
fn sends(stage: &mut Stage<'_>, immediate: Option<u32>) -> Result<(), String> {
    for (seed, length) in (1..).zip(stage.lengths()) {
        let outcome = (|| {
            stage.ask(&Ask::Fill(0))?;
            stage.ask(&Ask::Receive(AT..AT + length))?;
            stage.fill(seed);
            let payload = [stage.slice(0..length)];
            let sent = match immediate {
                None => stage.qp().send(&payload),
                Some(immediate) => stage.qp().send_immediate(&payload, immediate),
            };
            wait(sent)?;
            let expected = Received { length, immediate, invalidated: None };
            same("what was received", stage.received()?, expected)?;
            stage.peer_has(AT, &pattern(seed, 0..length), 0)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

/// The peer's receive comes after the message, which is sent again then.
fn send_before_receive(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.fill(5);
    let length = 3 * stage.mtu + 7;
    let sent = stage.qp().send(&[stage.slice(0..length)]);
    stage.ask(&Ask::Receive(AT..AT + length))?;
    wait(sent)?;
    same("the length", stage.received()?.length, length)?;
    stage.peer_has(AT, &pattern(5, 0..length), 0)
}

/// Rules: RA-53
fn too_long(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.ask(&Ask::Receive(AT..AT + 8))?;
    let sent = stage.qp().send(&[stage.slice(0..9)]);
    // Rule RXE-29.
    let status = match stage.peer_is_rxe {
        true => Status::RemoteOperation,
        false => Status::RemoteInvalidRequest,
    };
    stage.refused(sent, status)?;
    let came = stage.received();
    if came.is_ok() { Err("the receive succeeds".into()) } else { Ok(()) }
}

fn writes(stage: &mut Stage<'_>) -> Result<(), String> {
    for (seed, length) in (1..).zip(stage.lengths()) {
        let outcome = (|| {
            stage.ask(&Ask::Fill(0))?;
            stage.fill(seed);
            let remote = stage.remote(AT..AT + length);
            wait(stage.qp().write(&[stage.slice(0..length)], remote))?;
            stage.peer_has(AT, &pattern(seed, 0..length), 0)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

fn writes_with_immediate(stage: &mut Stage<'_>) -> Result<(), String> {
    for (seed, length) in (1..).zip(stage.lengths()) {
        let outcome = (|| {
            stage.ask(&Ask::Fill(0))?;
            stage.ask(&Ask::Receive(0..0))?;
            stage.fill(seed);
            let (payload, remote) = ([stage.slice(0..length)], stage.remote(AT..AT + length));
            wait(stage.qp().write_immediate(&payload, remote, seed.into()))?;
            let immediate = Some(seed.into());
            let expected = Received { length, immediate, invalidated: None };
            same("what was received", stage.received()?, expected)?;
            stage.peer_has(AT, &pattern(seed, 0..length), 0)
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

fn reads(stage: &mut Stage<'_>) -> Result<(), String> {
    for length in stage.lengths() {
        let outcome = (|| {
            stage.fill(9);
            let remote = stage.remote(AT..AT + length);
            came(&wait(stage.qp().read(&[stage.slice(64..64 + length)], remote))?, length)?;
            stage.here_is(0, &pattern(9, 0..64))?;
            stage.here_is(64, &pattern(0, AT..AT + length))?;
            stage.here_is(64 + length, &pattern(9, 64 + length..128 + length))
        })();
        of_length(length, outcome)?;
    }
    Ok(())
}

/// The word that memory filled with pattern 0 has where atomics go.
fn first_word() -> u64 {
    word(&pattern(0, AT..AT + 8))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

fn local_word(stage: &Stage<'_>) -> Result<u64, String> {
    crate::end::read(&stage.memory, 0..8).map(|bytes| word(&bytes))
}

fn fetch_add(stage: &mut Stage<'_>) -> Result<(), String> {
    let mut expected = first_word();
    for add in [1, u64::MAX, 0x0123_4567_89ab_cdef] {
        let remote = stage.remote(AT..AT + 8);
        came(&wait(stage.qp().fetch_add(&stage.slice(0..8), remote, add))?, 8)?;
        same("the word before", local_word(stage)?, expected)?;
        expected = expected.wrapping_add(add);
        stage.peer_has(AT, &expected.to_ne_bytes(), 0)?;
    }
    Ok(())
}

fn compare_swap(stage: &mut Stage<'_>) -> Result<(), String> {
    let first = first_word();
    for (compare, swap, before, after) in
        [(first ^ 1, 5, first, first), (first, 7, first, 7), (7, u64::MAX, 7, u64::MAX)]
    {
        let remote = stage.remote(AT..AT + 8);
        wait(stage.qp().compare_swap(&stage.slice(0..8), remote, compare, swap))?;
        same("the word before", local_word(stage)?, before)?;
        stage.peer_has(AT, &after.to_ne_bytes(), 0)?;
    }
    Ok(())
}

fn misaligned(stage: &mut Stage<'_>) -> Result<(), String> {
    let remote = stage.remote(AT + 4..AT + 12);
    let posted = stage.qp().fetch_add(&stage.slice(0..8), remote, 1);
    match posted {
        // The library of rxe looks itself.
        Err(error) if error.errno() == Some(libc::EINVAL) => {}
        posted => stage.refused(posted, Status::RemoteInvalidRequest)?,
    }
    stage.peer_has(0, &[], 0)
}

fn wrong_key(stage: &mut Stage<'_>, read: bool) -> Result<(), String> {
    let length = 2 * stage.mtu;
    let right = stage.remote(AT..AT + length);
    let wrong = RemoteSlice { rkey: right.rkey ^ 0x0100_0001, ..right };
    stage.fill(3);
    let local = [stage.slice(0..length)];
    let posted =
        if read { stage.qp().read(&local, wrong) } else { stage.qp().write(&local, wrong) };
    stage.refused(posted, Status::RemoteAccess)?;
    stage.here_is(0, &pattern(3, 0..length))?;
    stage.peer_has(0, &[], 0)
}

/// As many requests as there is room for, of all kinds in turn, again and again.
fn many(stage: &mut Stage<'_>) -> Result<(), String> {
    const ROUNDS: usize = 20;
    const EACH: usize = 5000;
    let counter = 16 * EACH + AT;
    for round in 0..ROUNDS {
        let seed = round as u8 + 1;
        stage.fill(seed);
        // The peer's copy of this side's pieces, read back into a place further on.
        let back = 512 << 10;
        let mut posted = Vec::new();
        for index in 0..16 {
            let (here, there) = (index * EACH, AT + index * EACH);
            let remote = stage.remote(there..there + EACH);
            posted.push(stage.qp().write(&[stage.slice(here..here + EACH)], remote));
            let into = back + here..back + here + EACH;
            posted.push(stage.qp().read(&[stage.slice(into)], remote));
            let word = stage.slice((1 << 20) + 8 * index..(1 << 20) + 8 * index + 8);
            posted.push(stage.qp().fetch_add(&word, stage.remote(counter..counter + 8), 1));
        }
        for (index, posted) in posted.into_iter().enumerate() {
            let outcome = wait(posted);
            outcome.map_err(|problem| format!("request {index} of round {round}: {problem}"))?;
        }
        stage.here_is(back, &pattern(seed, 0..16 * EACH))?;
        let first = word(&pattern(0, counter..counter + 8)).wrapping_add(16 * round as u64);
        let counted = crate::end::read(&stage.memory, 1 << 20..(1 << 20) + 128).map_err(text)?;
        for (index, bytes) in counted.chunks(8).enumerate() {
            same("a counted word", word(bytes), first.wrapping_add(index as u64))?;
        }
    }
    Ok(())
}
