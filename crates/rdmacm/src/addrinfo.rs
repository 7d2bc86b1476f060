//! Names and services: `rdma_getaddrinfo(3)`.
//!
//! An answer and its parts are allocated by the C library's `malloc`. Each part may be null.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use transom_abi::*;

use crate::address::{self, AF_IB};
use crate::entry::{answered, attempt};
use crate::sanitized;
use crate::wrong::{Wrong, last_errno};

/// The code for a type of queue pair that does not fit the port space.
const EAI_QPTYPE: c_int = libc::EAI_SOCKTYPE;

/// A copy of bytes in memory of `malloc`. Null if there are none.
///
/// # Safety
/// `from` has `length` bytes.
unsafe fn copied<T>(from: *const T, length: usize) -> Result<*mut T, Wrong> {
    if from.is_null() || length == 0 {
        return Ok(null_mut());
    }
    // SAFETY: the call takes any size.
    let to = unsafe { libc::malloc(length) };
    if to.is_null() {
        return Err(Wrong::no_memory());
    }
    // SAFETY: by the contract of this function, and the copy has room.
    unsafe { to.copy_from_nonoverlapping(from.cast::<c_void>(), length) };
    sanitized::bytes_written(to.cast(), length);
    Ok(to.cast())
}

/// An answer. It is freed unless it is given to the program.
#[derive(Debug)]
pub(crate) struct Answer(*mut rdma_addrinfo);

// SAFETY: it owns its memory and that of its parts.
unsafe impl Send for Answer {}

impl Answer {
    fn new() -> Result<Self, Wrong> {
        // SAFETY: the call takes any size.
        let answer = unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) };
        if answer.is_null() { Err(Wrong::no_memory()) } else { Ok(Self(answer.cast())) }
    }

    fn fields(&mut self) -> &mut rdma_addrinfo {
        // SAFETY: it lives, and this is its only user.
        unsafe { &mut *self.0 }
    }

    /// Gives it to the program.
    pub(crate) fn given(self) -> *mut rdma_addrinfo {
        let answer = self.0;
        sanitized::written(answer);
        std::mem::forget(self);
        answer
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: the answer belongs to this value.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

/// The reason for no answer: a code of `getaddrinfo(3)`, or -1 and an errno.
pub(crate) enum No {
    Code(c_int),
    Wrong(Wrong),
}

impl From<Wrong> for No {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

/// How many characters of a name are told.
const NAMED: usize = 48;

/// A string of C, if there is one.
///
/// # Safety
/// Null or a string that lives as long as it is used.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a CStr> {
    // SAFETY: by the contract of this function.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
}

/// The fault for a code of `getaddrinfo(3)`.
pub(crate) fn not_found(node: Option<&CStr>, service: Option<&CStr>, code: c_int) -> Wrong {
    // SAFETY: it returns a constant string for any number.
    let text = unsafe { CStr::from_ptr(libc::gai_strerror(code)) }.to_string_lossy();
    let named = |what, name: Option<&CStr>| {
        let name = name.map(|name| name.to_string_lossy());
        name.map(|name| format!("{what} {}", name.chars().take(NAMED).collect::<String>()))
    };
    let all = [named("node", node), named("service", service)];
    let all: Vec<_> = all.into_iter().flatten().collect();
    let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
    let said = format!("{all} cannot be found: {text} (code {code} of getaddrinfo)");
    Wrong::told(last_errno(), said)
}

/// Whether the node is the text of a GID, for an InfiniBand address.
fn is_gid(hints: &rdma_addrinfo) -> bool {
    let flags = RAI_FAMILY | RAI_NUMERICHOST;
    hints.ai_flags & flags == flags && hints.ai_family == AF_IB.into()
}

/// The hints for the C library's look-up.
fn wanted(hints: &rdma_addrinfo) -> Result<libc::addrinfo, No> {
    // SAFETY: all zeros are valid hints.
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    for (flag, theirs) in [(RAI_PASSIVE, libc::AI_PASSIVE), (RAI_NUMERICHOST, libc::AI_NUMERICHOST)]
    {
        if hints.ai_flags & flag != 0 {
            wanted.ai_flags |= theirs;
        }
    }
    // A GID is written like an IPv6 address.
    wanted.ai_family = if is_gid(hints) { libc::AF_INET6 } else { hints.ai_family };
    let datagrams = hints.ai_qp_type as u32 == IBV_QPT_UD;
    let space = hints.ai_port_space as u32;
    wanted.ai_socktype = match space {
        RDMA_PS_UDP | RDMA_PS_IPOIB if hints.ai_qp_type == 0 || datagrams => libc::SOCK_DGRAM,
        RDMA_PS_TCP if !datagrams => libc::SOCK_STREAM,
        RDMA_PS_UDP | RDMA_PS_IPOIB | RDMA_PS_TCP => return Err(No::Code(EAI_QPTYPE)),
        _ if datagrams => libc::SOCK_DGRAM,
        _ if hints.ai_qp_type != 0 => libc::SOCK_STREAM,
        _ => 0,
    };
    Ok(wanted)
}

/// Looks up a node and a service by the C library. Takes the first address found.
///
/// # Safety
/// Both are null or strings.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    to: &mut rdma_addrinfo,
) -> Result<(), No> {
    let wanted = wanted(hints)?;
    let mut found = null_mut();
    // SAFETY: by the contract of this function.
    match unsafe { libc::getaddrinfo(node, service, &wanted, &mut found) } {
        0 => {}
        code => return Err(No::Code(code)),
    }
    // SAFETY: without an error there is at least one.
    let first = unsafe { &*found };
    let mut take = || {
        if first.ai_socktype == libc::SOCK_DGRAM {
            (to.ai_qp_type, to.ai_port_space) = (IBV_QPT_UD as c_int, RDMA_PS_UDP as c_int);
        } else {
            (to.ai_qp_type, to.ai_port_space) = (IBV_QPT_RC as c_int, RDMA_PS_TCP as c_int);
        }
        // SAFETY: the address has `ai_addrlen` bytes, and the name ends with a zero.
        let (address, length, name) = unsafe {
            let length = first.ai_addrlen;
            let (address, length) = if is_gid(hints) {
                let space =
                    if hints.ai_port_space == 0 { to.ai_port_space } else { hints.ai_port_space };
                let address = address::of_gid(&*first.ai_addr.cast(), space as u32);
                (copied(address.as_ptr().cast(), address.len())?, address.len() as u32)
            } else {
                (copied(first.ai_addr.cast::<sockaddr>(), length as usize)?, length)
            };
            let name = first.ai_canonname;
            let bytes = if name.is_null() { 0 } else { libc::strlen(name) + 1 };
            (address, length, copied(name, bytes)?)
        };
        if hints.ai_flags & RAI_PASSIVE != 0 {
            (to.ai_src_addr, to.ai_src_canonname) = (address, name);
            to.ai_src_len = length;
        } else {
            (to.ai_dst_addr, to.ai_dst_canonname) = (address, name);
            to.ai_dst_len = length;
        }
        to.ai_family = if is_gid(hints) { AF_IB.into() } else { first.ai_family };
        Ok(())
    };
    let result = take();
    // SAFETY: it is freed once.
    unsafe { libc::freeaddrinfo(found) };
    result
}

/// Finds the answer for a node, a service and hints.
///
/// # Safety
/// The strings are null or end with a zero; the hints are null, or their parts are as long as they say.
pub(crate) unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<Answer, No> {
    if node.is_null() && service.is_null() && hints.is_none() {
        return Err(No::Wrong(Wrong::invalid("node, service and hints are all null")));
    }
    let none = rdma_addrinfo { ai_port_space: RDMA_PS_TCP as c_int, ..Default::default() };
    let hints = hints.unwrap_or(&none);
    let mut answer = Answer::new()?;
    let to = answer.fields();
    if !node.is_null() || !service.is_null() {
        // SAFETY: by the contract of this function.
        unsafe { look_up(node, service, hints, to) }?;
    }
    to.ai_flags = hints.ai_flags;
    if to.ai_family == 0 {
        to.ai_family = hints.ai_family;
    }
    if hints.ai_qp_type != 0 {
        to.ai_qp_type = hints.ai_qp_type;
    }
    if hints.ai_port_space != 0 {
        to.ai_port_space = hints.ai_port_space;
    }
    // SAFETY: by the contract of this function.
    unsafe {
        if to.ai_src_len == 0 {
            to.ai_src_addr = copied(hints.ai_src_addr, hints.ai_src_len as usize)?;
            to.ai_src_len = if to.ai_src_addr.is_null() { 0 } else { hints.ai_src_len };
        }
        if to.ai_dst_len == 0 && hints.ai_flags & RAI_PASSIVE == 0 {
            to.ai_dst_addr = copied(hints.ai_dst_addr, hints.ai_dst_len as usize)?;
            to.ai_dst_len = if to.ai_dst_addr.is_null() { 0 } else { hints.ai_dst_len };
        }
        to.ai_route = copied(hints.ai_route, hints.ai_route_len)?;
        to.ai_route_len = if to.ai_route.is_null() { 0 } else { hints.ai_route_len };
        to.ai_connect = copied(hints.ai_connect, hints.ai_connect_len)?;
        to.ai_connect_len = if to.ai_connect.is_null() { 0 } else { hints.ai_connect_len };
    }
    Ok(answer)
}

/// Finds the address of a node and a service, for `rdma_create_ep`. Returns 0, -1 with `errno`, or a code of
/// `getaddrinfo(3)`.
///
/// # Safety
/// The strings are null or end with a zero; the hints are null, or their parts are as long as they say.
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let mut code = -1;
    let found = attempt(|| {
        if res.is_null() {
            return Err(Wrong::invalid("res is null"));
        }
        // SAFETY: by the contract of this function.
        match unsafe { find(node, service, hints.as_ref()) } {
            Ok(answer) => Ok(answer.given()),
            Err(No::Wrong(wrong)) => Err(wrong),
            Err(No::Code(theirs)) => {
                code = theirs;
                // SAFETY: null or strings, by the contract of this function.
                let [node, service] = unsafe { [node, service].map(|it| text(it)) };
                Err(not_found(node, service, theirs))
            }
        }
    });
    match answered(c"rdma_getaddrinfo", found) {
        Some(answer) => {
            // SAFETY: by the contract of this function.
            unsafe { sanitized::give(res, answer) };
            0
        }
        None => code,
    }
}

/// Frees an answer, and those linked to it.
///
/// # Safety
/// It is null, or an answer of this library that was not freed.
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    while !next.is_null() {
        // SAFETY: by the contract of this function.
        unsafe {
            let this = *next;
            for part in [this.ai_src_addr, this.ai_dst_addr] {
                libc::free(part.cast());
            }
            for part in [this.ai_src_canonname, this.ai_dst_canonname] {
                libc::free(part.cast());
            }
            libc::free(this.ai_route);
            libc::free(this.ai_connect);
            libc::free(next.cast());
            next = this.ai_next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_with_what_goes_with_it() {
        let hints = rdma_addrinfo {
            ai_flags: RAI_PASSIVE | RAI_NUMERICHOST,
            ai_port_space: RDMA_PS_UDP as c_int,
            ..Default::default()
        };
        let mut found = null_mut();
        // SAFETY: the strings end with zeroes, and the rest is there.
        let code = unsafe {
            rdma_getaddrinfo(c"127.0.0.1".as_ptr(), c"7471".as_ptr(), &hints, &mut found)
        };
        assert_eq!(code, 0);
        // SAFETY: it was just found.
        let answer = unsafe { *found };
        assert_eq!((answer.ai_src_len, answer.ai_dst_len), (16, 0));
        assert_eq!(answer.ai_family, libc::AF_INET);
        assert_eq!(answer.ai_qp_type as u32, IBV_QPT_UD);
        // SAFETY: it was not freed.
        unsafe { rdma_freeaddrinfo(found) };
    }

    /// Rules: CM-57
    #[test]
    fn a_gid_becomes_an_address_of_infiniband() {
        let hints = rdma_addrinfo {
            ai_flags: RAI_PASSIVE | RAI_NUMERICHOST | RAI_FAMILY,
            ai_family: AF_IB.into(),
            ai_port_space: RDMA_PS_TCP as c_int,
            ..Default::default()
        };
        let ask = |hints: &rdma_addrinfo| {
            let mut found = null_mut();
            let (node, service) = (c"::ffff:10.1.2.3".as_ptr(), c"7471".as_ptr());
            // SAFETY: the strings end with zeroes, and the rest is there.
            (unsafe { rdma_getaddrinfo(node, service, hints, &mut found) }, found)
        };
        let (code, found) = ask(&hints);
        assert_eq!(code, 0);
        // SAFETY: it was just found, and its address is as long as it says.
        let (answer, bytes) = unsafe {
            let answer = *found;
            assert_eq!((answer.ai_src_len, answer.ai_dst_len), (48, 0));
            (answer, *answer.ai_src_addr.cast::<[u8; 48]>())
        };
        assert_eq!((answer.ai_family, answer.ai_port_space), (AF_IB.into(), hints.ai_port_space));
        assert_eq!(bytes[2..4], [0xff, 0xff]);
        assert_eq!(bytes[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(bytes[24..32], 0x0106_1d2f_u64.to_be_bytes());
        assert_eq!(bytes[32..40], u64::MAX.to_be_bytes());
        // SAFETY: it was not freed.
        unsafe { rdma_freeaddrinfo(found) };
        // A name has no GID.
        let flags = RAI_PASSIVE | RAI_FAMILY;
        assert_eq!(ask(&rdma_addrinfo { ai_flags: flags, ..hints }).0, libc::EAI_FAMILY);
    }

    #[test]
    fn what_cannot_be_found_is_said_by_a_code_or_an_errno() {
        let ask = |node: Option<&CStr>, hints: Option<&rdma_addrinfo>| {
            let mut found = null_mut();
            let node = node.map_or(std::ptr::null(), CStr::as_ptr);
            let hints = hints.map_or(std::ptr::null(), |hints| &raw const *hints);
            // SAFETY: the string ends with a zero, and the rest is there.
            unsafe { rdma_getaddrinfo(node, std::ptr::null(), hints, &mut found) }
        };
        assert_eq!((ask(None, None), last_errno()), (-1, libc::EINVAL));
        let numeric = rdma_addrinfo { ai_flags: RAI_NUMERICHOST, ..Default::default() };
        assert_eq!(ask(Some(c"no.such.host"), Some(&numeric)), libc::EAI_NONAME);
        let odd = rdma_addrinfo {
            ai_port_space: RDMA_PS_TCP as c_int,
            ai_qp_type: IBV_QPT_UD as c_int,
            ..numeric
        };
        assert_eq!(ask(Some(c"127.0.0.1"), Some(&odd)), EAI_QPTYPE);
    }
}
