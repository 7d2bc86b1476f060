//! Memory of a program that the peer writes to directly: `riomap`, `riounmap`, `riowrite`.

use std::ffi::{c_int, c_void};

use super::entry::{attempt, zero_of};
use super::iovec::Source;
use super::memory::Registration;
use super::protocol::{Buffer, Mapping};
use super::socket::{SOCKETS, State};
use super::stream_socket::Mapped;
use super::transfer::{buffer, deadline, length_of};
use crate::entry::answered;
use crate::sanitized;
use crate::wrong::Wrong;

const BELOW: Wrong = Wrong::invalid("offset is below 0, and not -1");

/// Lets the peer write to memory (`PROT_WRITE`) by an offset, or registers memory for this end's own use (`PROT_NONE`).
/// If the offset is -1, it is the memory's address. Returns the offset.
///
/// # Safety
/// `buf` has `len` bytes until they are unmapped or the socket is closed.
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: i64,
) -> i64 {
    let mapped = attempt(|| {
        let socket = SOCKETS.get(socket)?;
        let length = u32::try_from(len).map_err(|_| Wrong::invalid("len is 2^32 or more"))?;
        if buf.is_null() || length == 0 || prot & !libc::PROT_WRITE != 0 {
            let said = "buf is null, len is 0, or prot is neither PROT_WRITE nor PROT_NONE";
            return Err(Wrong::invalid(said));
        }
        let offset = match offset {
            -1 => i64::try_from(buf.addr()).map_err(|_| BELOW)?,
            0.. => offset,
            _ => return Err(BELOW),
        };
        socket.with(|state| {
            let stream = state.stream()?;
            stream.connected()?.ok_or(Wrong::not_connected())?;
            let writable = prot & libc::PROT_WRITE != 0;
            let index = writable.then(|| stream.free_mapping()).transpose()?;
            let (verbs, pd) = (&stream.id().provider.verbs, stream.id().seen().pd);
            // SAFETY: by the contract of this function.
            let registration = unsafe { Registration::new(verbs, pd, buf, len, writable) }?;
            let mapping = writable.then(|| {
                let (address, key) = (buf.expose_provenance() as u64, registration.key());
                Mapping { offset: offset as u64, buffer: Buffer { address, key, length } }
            });
            let _registration = registration;
            let memory = Mapped { address: buf.addr(), length: len, index, _registration };
            stream.map(memory, mapping);
            Ok(offset)
        })
    });
    answered(c"riomap", mapped).unwrap_or(-1)
}

/// Takes memory back from the peer.
///
/// # Safety
/// None: the memory is only named.
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int {
    zero_of(c"riounmap", || {
        let socket = SOCKETS.get(socket)?;
        socket.with(|state| state.stream()?.unmap(buf.addr(), len))
    })
}

/// Writes to memory that the peer's program has mapped to this offset. The data is there before any data that is sent
/// later. Returns how many bytes were written: fewer if no more are mapped there.
///
/// # Safety
/// `buf` has `count` bytes.
pub unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: usize,
    offset: i64,
    flags: c_int,
) -> isize {
    length_of(c"riowrite", || {
        let socket = SOCKETS.get(socket)?;
        sanitized::tells(&SOCKETS);
        let offset = u64::try_from(offset).map_err(|_| BELOW)?;
        let list = buffer(buf, count);
        // SAFETY: by the contract of this function.
        let mut source = unsafe { Source::new(&list) }?;
        let deadline = deadline(&socket, flags, |state| Ok(state.stream()?.options.send_timeout))?;
        let mut total = 0;
        while source.left() > 0 {
            let written = socket.until(deadline, |state: &mut State| {
                let Some(stream) = state.stream()?.connected()? else { return Ok(None) };
                stream.progress();
                let Some(to) = stream.mapping_at(offset + total as u64) else {
                    return Ok(Some(0));
                };
                let written = stream.write_to(&mut source, to, total == 0)?;
                Ok((written > 0).then_some(written))
            });
            match written {
                Ok(0) => break,
                Ok(length) => total += length,
                Err(_) if total > 0 => break,
                Err(wrong) => return Err(wrong),
            }
        }
        if total == 0 && count > 0 {
            Err(Wrong::invalid("the peer has mapped nothing at this offset"))
        } else {
            Ok(total)
        }
    })
}
