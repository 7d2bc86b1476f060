//! Commands of `<rdma/rdma_user_cm.h>`, as any program may write them to a file of rdma_cm: each is carried out or
//! refused, and writes nothing but its answer.
//!
//! Addresses of memory are the target's own, or nobody's; numbers of ids are mostly those that there are. What is sent
//! goes nowhere, for the target has a network of its own.

use std::ffi::c_int;
use std::mem::offset_of;
use std::process::Command;

use transom_abi::*;
use transom_ibverbs::{transom_rdma_cm_close, transom_rdma_cm_open, transom_rdma_cm_write};

/// Bytes of room for an answer, and of what is seen to stay as it was behind it.
const ROOM: usize = 1024;
const BEHIND: usize = 64;

/// What is known of a command: its bytes, and where it has an address of memory and the number of an id.
struct Known {
    bytes: usize,
    memory: Option<usize>,
    id: Option<usize>,
}

macro_rules! known {
    ($body:ty $(, memory $memory:ident)? $(, id $id:ident)?) => {
        Known {
            bytes: size_of::<$body>(),
            memory: [$(offset_of!($body, $memory),)?].first().copied(),
            id: [$(offset_of!($body, $id),)?].first().copied(),
        }
    };
}

fn known(number: u32) -> Known {
    match number {
        RDMA_USER_CM_CMD_CREATE_ID => known!(rdma_ucm_create_id, memory response),
        RDMA_USER_CM_CMD_DESTROY_ID | RDMA_USER_CM_CMD_LEAVE_MCAST => {
            known!(rdma_ucm_destroy_id, memory response, id id)
        }
        RDMA_USER_CM_CMD_BIND_IP => known!(rdma_ucm_bind_ip, id id),
        RDMA_USER_CM_CMD_RESOLVE_IP => known!(rdma_ucm_resolve_ip, id id),
        RDMA_USER_CM_CMD_RESOLVE_ROUTE => known!(rdma_ucm_resolve_route, id id),
        RDMA_USER_CM_CMD_QUERY_ROUTE | RDMA_USER_CM_CMD_QUERY => {
            known!(rdma_ucm_query, memory response, id id)
        }
        RDMA_USER_CM_CMD_CONNECT => known!(rdma_ucm_connect, id id),
        RDMA_USER_CM_CMD_LISTEN => known!(rdma_ucm_listen, id id),
        RDMA_USER_CM_CMD_ACCEPT => known!(rdma_ucm_accept, id id),
        RDMA_USER_CM_CMD_REJECT => known!(rdma_ucm_reject, id id),
        RDMA_USER_CM_CMD_DISCONNECT => known!(rdma_ucm_disconnect, id id),
        RDMA_USER_CM_CMD_INIT_QP_ATTR => known!(rdma_ucm_init_qp_attr, memory response, id id),
        RDMA_USER_CM_CMD_GET_EVENT => known!(rdma_ucm_get_event, memory response),
        RDMA_USER_CM_CMD_SET_OPTION => known!(rdma_ucm_set_option, memory optval, id id),
        RDMA_USER_CM_CMD_NOTIFY => known!(rdma_ucm_notify, id id),
        RDMA_USER_CM_CMD_JOIN_IP_MCAST => known!(rdma_ucm_join_ip_mcast, memory response, id id),
        RDMA_USER_CM_CMD_MIGRATE_ID => known!(rdma_ucm_migrate_id, memory response, id id),
        RDMA_USER_CM_CMD_BIND => known!(rdma_ucm_bind, id id),
        RDMA_USER_CM_CMD_RESOLVE_ADDR => known!(rdma_ucm_resolve_addr, id id),
        RDMA_USER_CM_CMD_JOIN_MCAST => known!(rdma_ucm_join_mcast, memory response, id id),
        RDMA_USER_CM_CMD_WRITE_CM_EVENT => known!(rdma_ucm_write_cm_event, id id),
        // It has none, and must be refused.
        _ => Known { bytes: 0, memory: None, id: None },
    }
}

/// A file, and the ids that were made there.
struct File {
    descriptor: c_int,
    ids: Vec<u32>,
}

impl File {
    fn open() -> Self {
        let descriptor = transom_rdma_cm_open();
        assert!(descriptor >= 0, "no device: {}", std::io::Error::last_os_error());
        // SAFETY: this sets a flag of a descriptor that is open: who fetches an event does not wait for one.
        unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) };
        Self { descriptor, ids: Vec::new() }
    }

    /// Writes a command whose body begins with these bytes. The lowest bits of `shape` say what is wrong with it, if
    /// anything.
    fn write(&mut self, number: u32, shape: u8, given: &[u8]) {
        let known = known(number);
        let [is_cut, is_nowhere, is_tight, is_strange] = [1, 2, 4, 8].map(|bit| shape & bit != 0);
        let mut memory = [0xEE_u8; ROOM + BEHIND];
        let room = if is_tight { usize::from(shape >> 4) * 4 } else { ROOM };
        let header = rdma_ucm_cmd_hdr {
            cmd: number,
            in_: if is_cut { given.len() } else { known.bytes } as u16,
            out: room as u16,
        };
        let mut body = vec![0; known.bytes.max(given.len())];
        body[..given.len()].copy_from_slice(given);
        if let Some(at) = known.memory {
            // Nothing is at 8.
            let address = if is_nowhere { 8 } else { memory.as_mut_ptr().addr() as u64 };
            body[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        }
        if let Some(at) = known.id
            && let Some(id) = self.ids.get(usize::from(body[at]) % self.ids.len().max(1))
            && !is_strange
        {
            body[at..at + 4].copy_from_slice(&id.to_ne_bytes());
        }
        // SAFETY: both are plain numbers, which are borrowed for as long.
        let header = unsafe { std::mem::transmute::<rdma_ucm_cmd_hdr, [u8; 8]>(header) };
        let command = [&header[..], &body].concat();
        // SAFETY: the command, and the memory that it names, are this function's own or nobody's.
        let written = unsafe {
            transom_rdma_cm_write(self.descriptor, command.as_ptr().cast(), command.len())
        };
        assert!(written == -1 || written == command.len() as isize);
        assert!(memory[room.min(ROOM)..].iter().all(|byte| *byte == 0xEE), "{number}");
        // What it tells of an id, which the next commands can be about.
        let at = match number {
            RDMA_USER_CM_CMD_CREATE_ID
            | RDMA_USER_CM_CMD_JOIN_MCAST
            | RDMA_USER_CM_CMD_JOIN_IP_MCAST => 0,
            RDMA_USER_CM_CMD_GET_EVENT => offset_of!(rdma_ucm_event_resp, id),
            _ => return,
        };
        if written > 0 && room >= at + 4 {
            self.ids.push(u32::from_ne_bytes(*memory[at..].first_chunk().expect("a number")));
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        assert_eq!(transom_rdma_cm_close(self.descriptor), 0);
    }
}

/// Goes where nobody else is, as `unshare --net` does; and keeps the device open.
pub fn alone() {
    // SAFETY: this asks the kernel for numbers, and for a network; it has no other thread yet.
    let made = unsafe {
        let (user, group) = (libc::getuid(), libc::getgid());
        let of_root = if user == 0 { 0 } else { libc::CLONE_NEWUSER };
        let made = libc::unshare(libc::CLONE_NEWNET | of_root) == 0;
        if made && of_root != 0 {
            // As itself, so that what is the user's is.
            let _ = std::fs::write("/proc/self/setgroups", "deny");
            let _ = std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"));
            let _ = std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"));
        }
        made
    };
    if !made {
        eprintln!("not run: no network namespace can be made here (unshare)");
        std::process::exit(0);
    }
    let _ = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    std::mem::forget(File::open());
}

/// Takes commands, each a number, what is wrong with it, a length and so many bytes.
pub fn commands(bytes: &[u8]) {
    let mut file = File::open();
    let mut rest = bytes;
    while let [number, shape, length, more @ ..] = rest {
        let (body, after) = more.split_at(usize::from(*length).min(more.len()));
        file.write(u32::from(number % 26), *shape, body);
        rest = after;
    }
}
