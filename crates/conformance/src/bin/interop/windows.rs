//! Memory windows that the peer binds and this side uses.

use transom::{RemoteSlice, Rights, Status};

use crate::driver::{AT, Driver, Row, part, same};
use crate::end::{pattern, wait};
use crate::talk::Service::Reliable;
use crate::talk::WindowType::{One, Two};
use crate::talk::{Ask, Received, WindowType};

pub(crate) const ROWS: &[Row] = &[
    (Reliable, "type 1 window: WRITE, READ, FETCH_ADD", |driver| used(driver, One)),
    (Reliable, "type 1 window: its rights", |driver| rights(driver, One)),
    (Reliable, "type 1 window: its bounds", |driver| bounds(driver, One)),
    (Reliable, "type 1 window: refused after it is unbound", |driver| revoked(driver, One)),
    (Reliable, "type 2 window: WRITE, READ, FETCH_ADD", |driver| used(driver, Two)),
    (Reliable, "type 2 window: its rights", |driver| rights(driver, Two)),
    (Reliable, "type 2 window: its bounds", |driver| bounds(driver, Two)),
    (Reliable, "type 2 window: refused after LOCAL_INV", |driver| revoked(driver, Two)),
    (Reliable, "SEND with invalidate", invalidated),
];

/// The length of the window in bytes.
const LENGTH: usize = 20_000;

fn used(driver: &mut Driver<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = driver.bind(window_type, AT..AT + LENGTH, Rights::all())?;
    driver.fill(6);
    wait(driver.qp().write(&[driver.slice(0..LENGTH)], grant))?;
    let mut expected = pattern(6, 0..LENGTH);
    driver.peer_has(AT, &expected, 0)?;
    let into = 64 << 10;
    let read = wait(driver.qp().read(&[driver.slice(into..into + LENGTH)], grant))?;
    same("the length", read.length(), LENGTH)?;
    driver.here_is(into, &expected)?;
    let word = part(grant, 8..16);
    wait(driver.qp().fetch_add(&driver.slice(0..8), word, 1))?;
    driver.here_is(0, &expected[8..16])?;
    let before = u64::from_ne_bytes(expected[8..16].try_into().expect("eight bytes"));
    expected[8..16].copy_from_slice(&before.wrapping_add(1).to_ne_bytes());
    driver.peer_has(AT, &expected, 0)
}

fn rights(driver: &mut Driver<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = driver.bind(window_type, AT..AT + LENGTH, Rights::READ)?;
    wait(driver.qp().read(&[driver.slice(0..LENGTH)], grant))?;
    driver.here_is(0, &pattern(0, AT..AT + LENGTH))?;
    let written = driver.qp().write(&[driver.slice(0..8)], grant);
    driver.refused(written, Status::RemoteAccess)?;
    driver.peer_has(0, &[], 0)
}

/// Rules: RA-33
fn bounds(driver: &mut Driver<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = driver.bind(window_type, AT..AT + LENGTH, Rights::all())?;
    let past = RemoteSlice { addr: grant.addr + LENGTH as u64 - 7, rkey: grant.rkey, length: 8 };
    driver.fill(1);
    let written = driver.qp().write(&[driver.slice(0..8)], past);
    if driver.peer_is_rxe {
        // Rule RXE-01: its bounds are those of the region.
        return wait(written).map(drop);
    }
    driver.refused(written, Status::RemoteAccess)?;
    driver.peer_has(0, &[], 0)
}

fn revoked(driver: &mut Driver<'_>, window_type: WindowType) -> Result<(), String> {
    let grant = driver.bind(window_type, AT..AT + LENGTH, Rights::all())?;
    wait(driver.qp().write(b"a word", part(grant, 0..6)))?;
    driver.peer_has(AT, b"a word", 0)?;
    driver.ask(&Ask::Fill(0))?;
    driver.ask(&Ask::Invalidate)?;
    let written = driver.qp().write(b"too late", grant);
    driver.refused(written, Status::RemoteAccess)?;
    driver.peer_has(0, &[], 0)
}

/// Rules: INV-30
fn invalidated(driver: &mut Driver<'_>) -> Result<(), String> {
    for length in [0, 100, 3 * driver.mtu] {
        driver.ask(&Ask::Fill(0))?;
        let grant = driver.bind(Two, AT..AT + LENGTH, Rights::all())?;
        driver.ask(&Ask::Receive(2 * LENGTH..2 * LENGTH + length))?;
        driver.fill(4);
        wait(driver.qp().send_invalidate(&[driver.slice(0..length)], grant.rkey))?;
        // Rule RXE-26: its completion does not name the key.
        let invalidated = (!driver.peer_is_rxe).then_some(grant.rkey);
        let expected = Received { length, immediate: None, invalidated };
        same("what was received", driver.received()?, expected)?;
        driver.peer_has(2 * LENGTH, &pattern(4, 0..length), 0)?;
        if length != 0 && length != 100 {
            let written = driver.qp().write(b"too late", grant);
            driver.refused(written, Status::RemoteAccess)?;
        }
    }
    Ok(())
}
