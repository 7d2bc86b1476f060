//! Asynchronous look-up of names and services: `rdma_resolve_addrinfo(3)`, `rdma_query_addrinfo(3)`. And events of the
//! program's own: `rdma_write_cm_event(3)`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use parking_lot::Mutex;
use transom_abi::*;

use crate::addrinfo::{No, find, not_found};
use crate::entry::{note, zero_of};
use crate::file::File;
use crate::id::{Id, Lookup};
use crate::sanitized;
use crate::wrong::Wrong;

/// A look-up by a thread, and its id.
struct Work {
    node: Option<CString>,
    service: Option<CString>,
    hints: Option<rdma_addrinfo>,
    /// The id's number in the file.
    handle: u32,
    /// The state of the look-up. The id may have ended when the answer comes; then only this is left of it.
    lookup: Arc<Mutex<Lookup>>,
}

// SAFETY: the hints have no pointers.
unsafe impl Send for Work {}

impl Work {
    fn carry_out(self) {
        let at = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
        // SAFETY: the strings live, and the hints have no pointers.
        let found = unsafe { find(at(&self.node), at(&self.service), self.hints.as_ref()) };
        // While this is locked, the id neither ends nor moves to another file.
        let mut lookup = self.lookup.lock();
        let Lookup::UnderWay(file) = *lookup else { return };
        let status = match found {
            Ok(answer) => {
                *lookup = Lookup::Found(answer);
                0
            }
            Err(no) => {
                *lookup = Lookup::None;
                let (status, wrong) = match no {
                    No::Code(code) => {
                        (code, not_found(self.node.as_deref(), self.service.as_deref(), code))
                    }
                    No::Wrong(wrong) => (-wrong.errno(), wrong),
                };
                note(c"rdma_resolve_addrinfo", &wrong);
                status
            }
        };
        let _ = write_event(file, self.handle, RDMA_CM_EVENT_INTERNAL, status, 0);
    }
}

/// Looks up a node and a service in a thread. An event reports the end. It needs a file that takes events from
/// programs, as Linux does since version 6.15.
///
/// # Safety
/// As for [`rdma_getaddrinfo`](crate::rdma_getaddrinfo); the id is null or live.
pub unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    zero_of(c"rdma_resolve_addrinfo", || {
        // SAFETY: by the contract of this function.
        let (this, hints) = unsafe { (Id::of(id)?, hints.as_ref()) };
        let flags = hints.map_or(0, |hints| hints.ai_flags);
        if flags & RAI_SA != 0 {
            // Ethernet has no subnet administrator.
            let errno = if flags & RAI_DNS != 0 { libc::EINVAL } else { libc::EOPNOTSUPP };
            return Err(Wrong::new(
                errno,
                "RAI_SA: over Ethernet there is no subnet administrator",
            ));
        }
        if node.is_null() && service.is_null() {
            return Err(Wrong::invalid("node and service are both null"));
        }
        let text = |text: *const c_char| {
            // SAFETY: by the contract of this function.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
        };
        // Memory that the hints point to may be gone when the thread runs.
        let hints = hints.map(|hints| rdma_addrinfo {
            ai_flags: hints.ai_flags,
            ai_family: hints.ai_family,
            ai_qp_type: hints.ai_qp_type,
            ai_port_space: hints.ai_port_space,
            ..Default::default()
        });
        let work = Work {
            node: text(node),
            service: text(service),
            hints,
            handle: this.handle,
            lookup: this.lookup.clone(),
        };
        let mut lookup = this.lookup.lock();
        if !matches!(*lookup, Lookup::None) {
            // A look-up is running, or the program has not fetched its answer.
            let said = "a look-up is under way, or rdma_query_addrinfo has not taken what it found";
            return Err(Wrong::new(libc::EBUSY, said));
        }
        let file = this.file()?;
        let started = transom_thread::start("transom-lookup", move || {
            let _inside = sanitized::inside();
            work.carry_out();
        });
        started.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            Wrong::new(errno, "no thread can be started: see `ulimit -u`")
        })?;
        *lookup = Lookup::UnderWay(file);
        Ok(())
    })
}

/// Returns the answer of [`rdma_resolve_addrinfo`].
///
/// # Safety
/// The id is null or live; `info` is null or writable.
pub unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    zero_of(c"rdma_query_addrinfo", || {
        // SAFETY: by the contract of this function.
        let id = unsafe { Id::of(id) }?;
        if info.is_null() {
            return Err(Wrong::invalid("info is null"));
        }
        let answer = id.lookup.lock().take_found();
        let answer = answer.ok_or(Wrong::new(
            libc::ENODATA,
            "there is no answer, or it was taken: wait for RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        ))?;
        // SAFETY: by the contract of this function.
        unsafe { sanitized::give(info, answer.given()) };
        Ok(())
    })
}

fn write_event(
    file: File,
    handle: u32,
    event: rdma_cm_event_type,
    status: c_int,
    argument: u64,
) -> Result<(), Wrong> {
    let write = rdma_ucm_write_cm_event {
        id: handle,
        reserved: 0,
        event,
        status: status as u32,
        param: rdma_ucm_write_cm_event_param { arg: argument },
    };
    file.tell(RDMA_USER_CM_CMD_WRITE_CM_EVENT, write)
}

/// Adds an event of the program's own to the channel of an id. Like [`rdma_resolve_addrinfo`], it needs a file that
/// takes events from programs.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: rdma_cm_event_type,
    status: c_int,
    arg: u64,
) -> c_int {
    zero_of(c"rdma_write_cm_event", || {
        // SAFETY: by the contract of this function.
        let id = unsafe { Id::of(id) }?;
        if event == RDMA_CM_EVENT_USER {
            write_event(id.file()?, id.handle, event, status, arg)
        } else {
            Err(Wrong::invalid("event is not RDMA_CM_EVENT_USER, the only one that programs write"))
        }
    })
}
