//! Memory windows that the peer binds and this side uses.

use transom::{RemoteSlice, Rights, Status};

use crate::end::{pattern, wait};
use crate::stage::{AT, Row, Stage, part, same};
use crate::talk::Service::Reliable;
use crate::talk::WindowType::{One, Two};
use crate::talk::{Ask, Received, WindowType};

pub(crate) const ROWS: &[Row] = &[
    (Reliable, "type 1 window: WRITE, READ, FETCH_ADD", |stage| used(stage, One)),
    (Reliable, "type 1 window: its rights", |stage| rights(stage, One)),
    (Reliable, "type 1 window: its bounds", |stage| bounds(stage, One)),
    (Reliable, "type 1 window: refused after it is unbound", |stage| revoked(stage, One)),
    (Reliable, "type 2 window: WRITE, READ, FETCH_ADD", |stage| used(stage, Two)),
    (Reliable, "type 2 window: its rights", |stage| rights(stage, Two)),
    (Reliable, "type 2 window: its bounds", |stage| bounds(stage, Two)),
    (Reliable, "type 2 window: refused after LOCAL_INV", |stage| revoked(stage, Two)),
    (Reliable, "SEND with invalidate", invalidated),
];

/// The bytes of the window.
const LENGTH: usize = 20_000;

fn used(stage: &mut Stage<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = stage.bind(window_type, AT..AT + LENGTH, Rights::all())?;
    stage.fill(6);
    wait(stage.qp().write(&[stage.slice(0..LENGTH)], grant))?;
    let mut expected = pattern(6, 0..LENGTH);
    stage.peer_has(AT, &expected, 0)?;
    let into = 64 << 10;
    let read = wait(stage.qp().read(&[stage.slice(into..into + LENGTH)], grant))?;
    same("the length", read.length(), LENGTH)?;
    stage.here_is(into, &expected)?;
    let word = part(grant, 8..16);
    wait(stage.qp().fetch_add(&stage.slice(0..8), word, 1))?;
    stage.here_is(0, &expected[8..16])?;
    let before = u64::from_ne_bytes(expected[8..16].try_into().expect("eight bytes"));
    expected[8..16].copy_from_slice(&before.wrapping_add(1).to_ne_bytes());
    stage.peer_has(AT, &expected, 0)
}

fn rights(stage: &mut Stage<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = stage.bind(window_type, AT..AT + LENGTH, Rights::READ)?;
    wait(stage.qp().read(&[stage.slice(0..LENGTH)], grant))?;
    stage.here_is(0, &pattern(0, AT..AT + LENGTH))?;
    let written = stage.qp().write(&[stage.slice(0..8)], grant);
    stage.refused(written, Status::RemoteAccess)?;
    stage.peer_has(0, &[], 0)
}

/// Rules: RA-33
fn bounds(stage: &mut Stage<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = stage.bind(window_type, AT..AT + LENGTH, Rights::all())?;
    let past = RemoteSlice { addr: grant.addr + LENGTH as u64 - 7, rkey: grant.rkey, length: 8 };
    stage.fill(1);
    let written = stage.qp().write(&[stage.slice(0..8)], past);
    if stage.peer_is_rxe {
        // Rule RXE-01: its bounds are those of the region.
        return wait(written).map(drop);
    }
    stage.refused(written, Status::RemoteAccess)?;
    stage.peer_has(0, &[], 0)
}

fn revoked(stage: &mut Stage<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = stage.bind(window_type, AT..AT + LENGTH, Rights::all())?;
    wait(stage.qp().write(b"a word", part(grant, 0..6)))?;
    stage.peer_has(AT, b"a word", 0)?;
    stage.ask(&Ask::Fill(0))?;
    stage.ask(&Ask::Invalidate)?;
    let written = stage.qp().write(b"too late", grant);
    stage.refused(written, Status::RemoteAccess)?;
    stage.peer_has(0, &[], 0)
}

/// Rules: INV-30
fn invalidated(stage: &mut Stage<'_>) -> Result<(), String> {
    for length in [0, 100, 3 * stage.mtu] {
        stage.ask(&Ask::Fill(0))?;
        let grant = stage.bind(Two, AT..AT + LENGTH, Rights::all())?;
        stage.ask(&Ask::Receive(2 * LENGTH..2 * LENGTH + length))?;
        stage.fill(4);
        wait(stage.qp().send_invalidate(&[stage.slice(0..length)], grant.rkey))?;
        // Rule RXE-26: its completion does not say which key it was.
        let invalidated = (!stage.peer_is_rxe).then_some(grant.rkey);
        let expected = Received { length, immediate: None, invalidated };
        same("what was received", stage.received()?, expected)?;
        stage.peer_has(2 * LENGTH, &pattern(4, 0..length), 0)?;
        if length != 0 && length != 100 {
            let written = stage.qp().write(b"too late", grant);
            stage.refused(written, Status::RemoteAccess)?;
        }
    }
    Ok(())
}
