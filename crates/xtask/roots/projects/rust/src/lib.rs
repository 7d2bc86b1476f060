//! A sample project's crate. It calls libibverbs, and its test needs a device.

use std::ffi::{c_int, c_void};
use std::{io, ptr};

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
struct Attributes {
    qp_context: *mut c_void,
    send_cq: *mut c_void,
    recv_cq: *mut c_void,
    srq: *mut c_void,
    cap: Room,
    qp_type: c_int,
    sq_sig_all: c_int,
}

const RELIABLE_CONNECTED: c_int = 2;

#[link(name = "ibverbs")]
extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_free_device_list(list: *mut *mut c_void);
    fn ibv_open_device(device: *mut c_void) -> *mut c_void;
    fn ibv_close_device(context: *mut c_void) -> c_int;
    fn ibv_alloc_pd(context: *mut c_void) -> *mut c_void;
    fn ibv_dealloc_pd(pd: *mut c_void) -> c_int;
    fn ibv_create_cq(
        context: *mut c_void,
        entries: c_int,
        cq_context: *mut c_void,
        channel: *mut c_void,
        vector: c_int,
    ) -> *mut c_void;
    fn ibv_destroy_cq(cq: *mut c_void) -> c_int;
    fn ibv_create_qp(pd: *mut c_void, attributes: *mut Attributes) -> *mut c_void;
    fn ibv_destroy_qp(qp: *mut c_void) -> c_int;
}

/// The capacity of a queue pair on the first device, if it asks for this many sends.
pub fn room_of_queue_pair(max_send_wr: u32) -> io::Result<Room> {
    unsafe {
        let list = there(ibv_get_device_list(ptr::null_mut()).cast())?.cast::<*mut c_void>();
        let context = match *list {
            first if first.is_null() => Err(io::Error::other("there is no RDMA device")),
            first => there(ibv_open_device(first)),
        };
        ibv_free_device_list(list);
        let context = context?;
        let pd = there(ibv_alloc_pd(context))?;
        let cq = there(ibv_create_cq(context, 1, ptr::null_mut(), ptr::null_mut(), 0))?;
        let mut attributes = Attributes {
            qp_context: ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: ptr::null_mut(),
            cap: Room { max_send_wr, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
            qp_type: RELIABLE_CONNECTED,
            sq_sig_all: 0,
        };
        let qp = there(ibv_create_qp(pd, &mut attributes))?;
        ibv_destroy_qp(qp);
        ibv_destroy_cq(cq);
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
        Ok(attributes.cap)
    }
}

fn there(object: *mut c_void) -> io::Result<*mut c_void> {
    if object.is_null() {
        return Err(io::Error::last_os_error());
    }
    Ok(object)
}

/// With WRONG in the environment, the test asks for more than the device has.
#[test]
fn a_queue_pair_has_the_room_that_it_is_asked_for() {
    let wanted = if std::env::var_os("WRONG").is_some() { 40_000 } else { 64 };
    assert!(room_of_queue_pair(wanted).unwrap().max_send_wr >= wanted);
}
