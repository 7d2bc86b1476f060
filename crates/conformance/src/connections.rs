//! The connection manager, through the commands of `<rdma/rdma_user_cm.h>` that `librdmacm.so.1` uses.

mod steps;

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use transom_abi::*;
use transom_ibverbs::{transom_rdma_cm_close, transom_rdma_cm_open, transom_rdma_cm_write};

/// How long a peer may take for an answer.
pub const LIMIT: Duration = Duration::from_secs(30);
/// The program's name for the tests' ids, unless a test gives another.
const UID: u64 = 1 << 40;

/// Numbers of two queue pairs that no other connection of this process has.
pub fn qpns() -> [u32; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let next = NEXT.fetch_add(2, Relaxed);
    // The numbers of two processes differ, as those of real queue pairs do.
    let of_process = std::process::id() << 12;
    [next, next + 1].map(|number| (of_process ^ number) & 0xff_ffff)
}

/// An open file of the connection manager.
#[derive(Debug)]
pub struct File(pub c_int);

impl Drop for File {
    fn drop(&mut self) {
        assert_eq!(transom_rdma_cm_close(self.0), 0);
    }
}

/// An id of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub u32);

/// Names for the numbers of events.
pub mod event {
    pub use transom_abi::{
        RDMA_CM_EVENT_ADDR_CHANGE as ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR as ADDR_ERROR,
        RDMA_CM_EVENT_ADDR_RESOLVED as ADDR_RESOLVED,
        RDMA_CM_EVENT_CONNECT_REQUEST as CONNECT_REQUEST,
        RDMA_CM_EVENT_CONNECT_RESPONSE as CONNECT_RESPONSE,
        RDMA_CM_EVENT_DEVICE_REMOVAL as DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED as DISCONNECTED,
        RDMA_CM_EVENT_ESTABLISHED as ESTABLISHED, RDMA_CM_EVENT_MULTICAST_JOIN as MULTICAST_JOIN,
        RDMA_CM_EVENT_REJECTED as REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED as ROUTE_RESOLVED,
        RDMA_CM_EVENT_TIMEWAIT_EXIT as TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE as UNREACHABLE,
    };
}

/// The bytes of a command's struct.
fn bytes<T>(body: &T) -> &[u8] {
    // SAFETY: the structs of commands have no padding, or it is zero by default.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(body).cast(), size_of::<T>()) }
}

/// The address of the place for an answer.
fn room<T>(answer: &mut T) -> u64 {
    std::ptr::from_mut(answer) as u64
}

impl File {
    /// Opens a new file.
    pub fn open() -> Self {
        let file = transom_rdma_cm_open();
        assert!(file >= 0, "{}", io::Error::last_os_error());
        Self(file)
    }

    /// Writes a command whose answer has room for this many bytes.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn write<T>(&self, number: u32, body: &T, out: usize) -> Result<(), c_int> {
        let header = rdma_ucm_cmd_hdr { cmd: number, in_: size_of::<T>() as u16, out: out as u16 };
        self.write_bytes(&[bytes(&header), bytes(body)].concat())
    }

    /// Writes bytes.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn write_bytes(&self, command: &[u8]) -> Result<(), c_int> {
        // SAFETY: this call's own bytes. The library checks the addresses in them.
        let written =
            unsafe { transom_rdma_cm_write(self.0, command.as_ptr().cast(), command.len()) };
        match written {
            -1 => Err(io::Error::last_os_error().raw_os_error().expect("an errno")),
            written => {
                assert_eq!(written as usize, command.len());
                Ok(())
            }
        }
    }

    /// A new id of a port space and kind of queue pair, with the program's name for it.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn create(&self, uid: u64, ps: u32, qp_type: u32) -> Result<Id, c_int> {
        let mut answer = rdma_ucm_create_id_resp::default();
        let response = room(&mut answer);
        let (ps, qp_type) = (ps as u16, qp_type as u8);
        let body = rdma_ucm_create_id { uid, response, ps, qp_type, reserved: [0; 5] };
        self.write(RDMA_USER_CM_CMD_CREATE_ID, &body, size_of_val(&answer))?;
        Ok(Id(answer.id))
    }

    /// A new id for connections.
    pub fn id(&self) -> Id {
        self.create(UID, RDMA_PS_TCP, IBV_QPT_RC).expect("an id")
    }

    /// A new id for datagrams.
    pub fn datagram_id(&self) -> Id {
        self.create(UID, RDMA_PS_UDP, IBV_QPT_UD).expect("an id")
    }

    /// Ends an id. Returns how many of its events have been fetched.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn destroy(&self, id: Id) -> Result<u32, c_int> {
        let mut answer = rdma_ucm_destroy_id_resp::default();
        let response = room(&mut answer);
        let body = rdma_ucm_destroy_id { response, id: id.0, reserved: 0 };
        self.write(RDMA_USER_CM_CMD_DESTROY_ID, &body, size_of_val(&answer))?;
        Ok(answer.events_reported)
    }

    /// Binds an id.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn bind(&self, id: Id, address: &str) -> Result<(), c_int> {
        let (addr, addr_size) = storage(address);
        let body = rdma_ucm_bind { id: id.0, addr_size, reserved: 0, addr };
        self.write(RDMA_USER_CM_CMD_BIND, &body, 0)
    }

    /// Makes an id listen.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn listen(&self, id: Id, backlog: u32) -> Result<(), c_int> {
        self.write(RDMA_USER_CM_CMD_LISTEN, &rdma_ucm_listen { id: id.0, backlog }, 0)
    }

    /// An id that listens on an address.
    pub fn listener(&self, address: &str) -> Id {
        let id = self.id();
        self.bind(id, address).expect("bound");
        self.listen(id, 0).expect("it listens");
        id
    }

    /// Begins to resolve an address.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn resolve_address(&self, id: Id, destination: &str) -> Result<(), c_int> {
        let (dst_addr, dst_size) = storage(destination);
        let body = rdma_ucm_resolve_addr {
            id: id.0,
            timeout_ms: 2000,
            dst_size,
            dst_addr,
            ..rdma_ucm_resolve_addr::default()
        };
        self.write(RDMA_USER_CM_CMD_RESOLVE_ADDR, &body, 0)
    }

    /// Begins to resolve a route.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn resolve_route(&self, id: Id) -> Result<(), c_int> {
        let body = rdma_ucm_resolve_route { id: id.0, timeout_ms: 2000 };
        self.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &body, 0)
    }

    /// Resolves a destination, so that the id is ready for the next step.
    pub fn resolve(&self, id: Id, destination: &str) {
        self.resolve_address(id, destination).expect("an address");
        self.expect(event::ADDR_RESOLVED, id);
        self.resolve_route(id).expect("a route");
        self.expect(event::ROUTE_RESOLVED, id);
    }

    /// Asks for a connection.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn connect(&self, id: Id, qpn: u32, private_data: &[u8]) -> Result<(), c_int> {
        let conn_param = parameters(qpn, private_data);
        let body = rdma_ucm_connect { conn_param, id: id.0, ..rdma_ucm_connect::default() };
        self.write(RDMA_USER_CM_CMD_CONNECT, &body, 0)
    }

    /// Accepts a request.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn accept(&self, id: Id, uid: u64, qpn: u32, private_data: &[u8]) -> Result<(), c_int> {
        let conn_param = parameters(qpn, private_data);
        let body = rdma_ucm_accept { uid, conn_param, id: id.0, ..rdma_ucm_accept::default() };
        self.write(RDMA_USER_CM_CMD_ACCEPT, &body, 0)
    }

    /// Confirms that a connection has been accepted.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn establish(&self, id: Id) -> Result<(), c_int> {
        let body = rdma_ucm_accept { id: id.0, ..rdma_ucm_accept::default() };
        self.write(RDMA_USER_CM_CMD_ACCEPT, &body, 0)
    }

    /// Refuses a request.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn reject(&self, id: Id, private_data: &[u8]) -> Result<(), c_int> {
        let mut body = rdma_ucm_reject { id: id.0, ..rdma_ucm_reject::default() };
        body.private_data[..private_data.len()].copy_from_slice(private_data);
        body.private_data_len = private_data.len() as u8;
        self.write(RDMA_USER_CM_CMD_REJECT, &body, 0)
    }

    /// Ends a connection.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn disconnect(&self, id: Id) -> Result<(), c_int> {
        self.write(RDMA_USER_CM_CMD_DISCONNECT, &rdma_ucm_disconnect { id: id.0 }, 0)
    }

    /// Joins a group, with the program's name `uid` for it. Returns the id of the membership.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn join(&self, id: Id, uid: u64, group: &str) -> Result<Id, c_int> {
        let mut answer = rdma_ucm_create_id_resp::default();
        let response = room(&mut answer);
        let (addr, addr_size) = storage(group);
        let join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER as u16;
        let body = rdma_ucm_join_mcast { response, uid, id: id.0, addr_size, join_flags, addr };
        self.write(RDMA_USER_CM_CMD_JOIN_MCAST, &body, size_of_val(&answer))?;
        Ok(Id(answer.id))
    }

    /// Ends a membership. Returns how many of its events have been fetched.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn leave(&self, membership: Id) -> Result<u32, c_int> {
        let mut answer = rdma_ucm_destroy_id_resp::default();
        let response = room(&mut answer);
        let body = rdma_ucm_destroy_id { response, id: membership.0, reserved: 0 };
        self.write(RDMA_USER_CM_CMD_LEAVE_MCAST, &body, size_of_val(&answer))?;
        Ok(answer.events_reported)
    }

    /// An id's own address and its peer's, if it has them.
    pub fn addresses(&self, id: Id) -> [Option<SocketAddr>; 2] {
        let mut answer = rdma_ucm_query_addr_resp::default();
        let response = room(&mut answer);
        let body = rdma_ucm_query { response, id: id.0, option: RDMA_USER_CM_QUERY_ADDR };
        self.write(RDMA_USER_CM_CMD_QUERY, &body, size_of_val(&answer)).expect("an answer");
        [&answer.src_addr, &answer.dst_addr].map(socket_address)
    }

    /// Sets an option.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn set_option<T: Copy>(
        &self,
        id: Id,
        (level, optname): (u32, u32),
        value: &[T],
    ) -> Result<(), c_int> {
        let body = rdma_ucm_set_option {
            optval: value.as_ptr() as u64,
            id: id.0,
            level,
            optname,
            optlen: size_of_val(value) as u32,
        };
        self.write(RDMA_USER_CM_CMD_SET_OPTION, &body, 0)
    }

    /// The path of an id, as it is on the wire.
    pub fn path(&self, id: Id) -> ibv_path_record {
        let mut answer =
            [0_u8; size_of::<rdma_ucm_query_path_resp>() + size_of::<ib_path_rec_data>()];
        let response = room(&mut answer);
        let body = rdma_ucm_query { response, id: id.0, option: RDMA_USER_CM_QUERY_PATH };
        self.write(RDMA_USER_CM_CMD_QUERY, &body, size_of_val(&answer)).expect("an answer");
        assert_eq!(answer[0], 1, "no path");
        let record = &answer[answer.len() - size_of::<ibv_path_record>()..];
        // SAFETY: it is that long, and any bytes are a valid record.
        unsafe { record.as_ptr().cast::<ibv_path_record>().read_unaligned() }
    }

    /// The path of an id, as an older librdmacm asks for it.
    pub fn route(&self, id: Id) -> ib_user_path_rec {
        let mut answer = rdma_ucm_query_route_resp::default();
        let response = room(&mut answer);
        let body = rdma_ucm_query { response, id: id.0, option: 0 };
        self.write(RDMA_USER_CM_CMD_QUERY_ROUTE, &body, size_of_val(&answer)).expect("an answer");
        assert_eq!(answer.num_paths, 1, "no path");
        answer.ib_route[0]
    }

    /// Fetches the next event, without waiting for it.
    ///
    /// # Errors
    ///
    /// The errno: `EAGAIN` if there is none.
    pub fn try_event(&self) -> Result<rdma_ucm_event_resp, c_int> {
        // SAFETY: this descriptor's own flags.
        unsafe { assert_eq!(libc::fcntl(self.0, libc::F_SETFL, libc::O_NONBLOCK), 0) };
        let fetched = self.fetch();
        // SAFETY: as above.
        unsafe { assert_eq!(libc::fcntl(self.0, libc::F_SETFL, 0), 0) };
        fetched
    }

    /// Fetches the next event. Blocks or not, as the descriptor's flags say.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn fetch(&self) -> Result<rdma_ucm_event_resp, c_int> {
        let mut answer = rdma_ucm_event_resp::default();
        let body = rdma_ucm_get_event { response: room(&mut answer) };
        self.write(RDMA_USER_CM_CMD_GET_EVENT, &body, size_of_val(&answer))?;
        Ok(answer)
    }

    /// Whether the descriptor becomes readable within a time.
    pub fn is_readable(&self, within: Duration) -> bool {
        let mut ready = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor of this call's own.
        unsafe { libc::poll(&mut ready, 1, within.as_millis() as c_int) == 1 }
    }

    /// The attributes for the queue pair's move to a state.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn qp_attributes(&self, id: Id, qp_state: u32) -> Result<ib_uverbs_qp_attr, c_int> {
        let mut answer = ib_uverbs_qp_attr::default();
        let response = room(&mut answer);
        let body = rdma_ucm_init_qp_attr { response, id: id.0, qp_state };
        self.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, &body, size_of_val(&answer))?;
        Ok(answer)
    }
}

/// The parameters of a connection request or an acceptance.
fn parameters(qp_num: u32, data: &[u8]) -> rdma_ucm_conn_param {
    let mut private_data = [0; RDMA_MAX_PRIVATE_DATA];
    private_data[..data.len()].copy_from_slice(data);
    rdma_ucm_conn_param {
        qp_num,
        private_data,
        private_data_len: data.len() as u8,
        responder_resources: 4,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry_count: 7,
        valid: 1,
        ..rdma_ucm_conn_param::default()
    }
}

/// The private data of an event.
pub fn private_data(event: &rdma_ucm_event_resp) -> &[u8] {
    // SAFETY: plain numbers, for which any bytes are valid.
    let conn = unsafe { &event.param.conn };
    &conn.private_data[..usize::from(conn.private_data_len)]
}

/// An address in C's form, and its length.
pub fn storage(address: &str) -> (sockaddr_storage, u16) {
    let address: SocketAddr = address.parse().expect("an address and a port");
    let mut storage = sockaddr_storage::default();
    storage.ss_data[..2].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            storage.ss_family = libc::AF_INET as u16;
            storage.ss_data[2..6].copy_from_slice(&address.ip().octets());
            (storage, 16)
        }
        SocketAddr::V6(address) => {
            storage.ss_family = libc::AF_INET6 as u16;
            storage.ss_data[6..22].copy_from_slice(&address.ip().octets());
            storage.ss_data[22..26].copy_from_slice(&address.scope_id().to_ne_bytes());
            (storage, 28)
        }
    }
}

fn socket_address(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([storage.ss_data[0], storage.ss_data[1]]);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            let ip = IpAddr::from(*storage.ss_data[2..].first_chunk::<4>()?);
            Some(SocketAddr::new(ip, port))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*storage.ss_data[6..].first_chunk::<16>()?);
            let scope = u32::from_ne_bytes(*storage.ss_data[22..].first_chunk()?);
            Some(SocketAddrV6::new(ip, port, 0, scope).into())
        }
        _ => None,
    }
}
