//! Events that programs hold, and the number of acknowledged events of each id.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use transom_abi::*;

use crate::check::{self, Owner};
use crate::entry::{note, zero_of};
use crate::sanitized;
use crate::wrong::Wrong;

/// A function that waits longer than this for acknowledgements says so.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of events of an id, or of a group, that the program has acknowledged. The call that ends the id or group
/// waits until all fetched events are acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    count: Mutex<u32>,
    more: Condvar,
}

impl Acknowledged {
    fn one(&self) {
        sanitized::tells(&raw const *self);
        let mut count = self.count.lock();
        *count = count.wrapping_add(1);
        self.more.notify_all();
    }

    /// Waits until `fetched` events are acknowledged. After a long wait it says so, once: programs that forget to
    /// acknowledge hang here.
    pub(crate) fn wait_for(&self, fetched: u32, waits: &Waits) {
        self.wait(fetched, waits);
        sanitized::is_told(&raw const *self);
    }

    fn wait(&self, fetched: u32, waits: &Waits) {
        // The counts are modulo 2^32, and the program acknowledges no more events than it fetched.
        let missing = |count: u32| (fetched.wrapping_sub(count) as i32).max(0) as u32;
        if missing(*self.count.lock()) == 0 {
            return;
        }
        // Not under the lock, because the report may take a while.
        let for_ever = check::waits(waits.function, waits.owner, false);
        let mut count = self.count.lock();
        let mut is_told = false;
        while missing(*count) > 0 {
            if is_told {
                self.more.wait(&mut count);
            } else if self.more.wait_for(&mut count, PATIENCE).timed_out() {
                let missing = missing(*count);
                MutexGuard::unlocked(&mut count, || waits.for_long(missing, for_ever));
                is_told = true;
            }
        }
    }
}

/// A function that waits until events are acknowledged, and their owner.
pub(crate) struct Waits {
    pub(crate) function: &'static CStr,
    pub(crate) owner: Owner,
}

impl Waits {
    #[cold]
    fn for_long(&self, missing: u32, for_ever: bool) {
        note(self.function, &Wrong::waits_for(missing));
        if !for_ever {
            check::waits(self.function, self.owner, true);
        }
    }
}

/// An event, and everything that is freed with it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Event {
    /// First, because the program has a pointer to it.
    pub(crate) public: rdma_cm_event,
    private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    /// The owners of the event: an id, and perhaps a group.
    owners: [Option<Arc<Acknowledged>>; 2],
    /// The peer's offer for enhanced connection establishment.
    pub(crate) ece: ibv_ece,
}

// SAFETY: its pointers are the program's, or point into itself.
unsafe impl Send for Event {}

impl Event {
    /// `datagrams` says that its parameters are those of a datagram id, not of a connection.
    pub(crate) fn new(
        fetched: &rdma_ucm_event_resp,
        datagrams: bool,
        owners: [Option<Arc<Acknowledged>>; 2],
    ) -> Box<Self> {
        let status = fetched.status as c_int;
        let public = rdma_cm_event { event: fetched.event, status, ..Default::default() };
        let ece = ibv_ece {
            vendor_id: fetched.ece.vendor_id,
            options: fetched.ece.attr_mod,
            comp_mask: 0,
        };
        let private_data = [0; RDMA_MAX_PRIVATE_DATA];
        let mut event = Box::new(Self { public, private_data, owners, ece });
        if datagrams {
            // SAFETY: any bytes are valid parameters.
            event.set_datagram(unsafe { &fetched.param.ud });
        } else {
            // SAFETY: any bytes are valid parameters.
            event.set_connection(unsafe { &fetched.param.conn });
        }
        event
    }

    fn set_connection(&mut self, from: &rdma_ucm_conn_param) {
        let private_data = self.keep(&from.private_data, from.private_data_len);
        self.public.param.conn = rdma_conn_param {
            private_data,
            private_data_len: from.private_data_len,
            responder_resources: from.responder_resources,
            initiator_depth: from.initiator_depth,
            flow_control: from.flow_control,
            retry_count: from.retry_count,
            rnr_retry_count: from.rnr_retry_count,
            srq: from.srq,
            qp_num: from.qp_num,
        };
    }

    fn set_datagram(&mut self, from: &rdma_ucm_ud_param) {
        let private_data = self.keep(&from.private_data, from.private_data_len);
        self.public.param.ud = rdma_ud_param {
            private_data,
            private_data_len: from.private_data_len,
            ah_attr: address_vector(&from.ah_attr),
            qp_num: from.qp_num,
            qkey: from.qkey,
        };
    }

    /// Keeps private data. Returns its address, or null if there is none.
    fn keep(&mut self, bytes: &[u8; RDMA_MAX_PRIVATE_DATA], length: u8) -> *const c_void {
        self.private_data = *bytes;
        if length > 0 { self.private_data.as_ptr().cast() } else { std::ptr::null() }
    }

    /// Gives it to the program.
    pub(crate) fn given(self: Box<Self>) -> *mut rdma_cm_event {
        sanitized::written(&raw const *self);
        Box::into_raw(self).cast()
    }

    /// The program gets it from `rdma_get_cm_event`.
    ///
    /// # Safety
    /// The event was [given](Self::given) to the program, and is not acknowledged.
    pub(crate) unsafe fn is_got(event: *mut rdma_cm_event) {
        // SAFETY: by the contract of this function.
        let this = unsafe { &*event.cast::<Self>() };
        let is_request = this.public.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        let id = if is_request { this.public.listen_id } else { this.public.id };
        let group = this.owners[1].as_ref().map(|group| Arc::as_ptr(group).cast());
        check::event_got(event.cast(), size_of::<Self>(), id, group);
    }

    /// Acknowledges it.
    pub(crate) fn acknowledge(self: Box<Self>) {
        let owners = self.owners.clone();
        check::free_event(self);
        for owner in owners.into_iter().flatten() {
            owner.one();
        }
    }

    /// Takes it back from the program.
    ///
    /// # Safety
    /// The event is null, or was given to the program and is not acknowledged.
    pub(crate) unsafe fn back(event: *mut rdma_cm_event) -> Option<Box<Self>> {
        // SAFETY: by the contract of this function.
        (!event.is_null()).then(|| unsafe { Box::from_raw(event.cast()) })
    }
}

/// An address vector in the form that programs use.
pub(crate) fn address_vector(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: from.grh.dgid },
        flow_label: from.grh.flow_label,
        sgid_index: from.grh.sgid_index,
        hop_limit: from.grh.hop_limit,
        traffic_class: from.grh.traffic_class,
    };
    ibv_ah_attr {
        grh,
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// Frees an event with its content.
///
/// # Safety
/// The event is null, or `rdma_get_cm_event` gave it and it was not acknowledged.
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    zero_of(c"rdma_ack_cm_event", || {
        check::used(event.cast::<Event>(), "the event was acknowledged before")?;
        // SAFETY: by the contract of this function.
        let event = unsafe { Event::back(event) }.ok_or(Wrong::invalid("event is null"))?;
        sanitized::ended(&raw const *event);
        event.acknowledge();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_private_data_until_it_is_acknowledged() {
        let mut fetched = rdma_ucm_event_resp { event: 4, status: 0, ..Default::default() };
        let mut conn = rdma_ucm_conn_param { private_data_len: 3, ..Default::default() };
        conn.private_data[..3].copy_from_slice(b"abc");
        fetched.param.conn = conn;
        let owner = Arc::new(Acknowledged::default());
        let given = Event::new(&fetched, false, [Some(owner.clone()), None]).given();
        // SAFETY: the event is there.
        let data = unsafe {
            let conn = (*given).param.conn;
            std::slice::from_raw_parts(conn.private_data.cast::<u8>(), 3)
        };
        assert_eq!(data, b"abc");
        let waiting = std::thread::spawn({
            let owner = owner.clone();
            move || {
                let owner_id = Owner::Id(std::ptr::null_mut());
                owner.wait_for(1, &Waits { function: c"a_function", owner: owner_id });
            }
        });
        // SAFETY: it was given, and is acknowledged once.
        assert_eq!(unsafe { rdma_ack_cm_event(given) }, 0);
        waiting.join().unwrap();
        // SAFETY: null is allowed.
        assert_eq!(unsafe { rdma_ack_cm_event(std::ptr::null_mut()) }, -1);
    }
}
