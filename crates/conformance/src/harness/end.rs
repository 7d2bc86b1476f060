//! One side of a connection: a context with the objects that nearly every test needs.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use transom_abi::*;
use transom_host::{Adapter, Memory, Options};
use transom_ibverbs::*;
use transom_system::rehearsal;

use super::{Buffer, has_shared_memory, poll, readable, reg, until, wait};

/// A context with a protection domain and a completion queue.
///
/// The code that opened the context closes it, with everything in it. A process has room for a limited number of
/// devices, and all tests share one process.
pub struct End {
    /// The context.
    pub context: *mut ibv_context,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    /// The completion queue of all its queue pairs.
    pub cq: *mut ibv_cq,
    /// The context, if the end closes it.
    own: Own,
}

/// A context that is closed with this. Null for none.
struct Own(*mut ibv_context);

impl Drop for Own {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: open until now. Nobody uses its objects any more.
            unsafe { ibv_close_device(self.0) };
        }
    }
}

/// Opens a device. It has shared memory, and is in a rehearsal, if this process was started that way.
pub fn open_adapter(options: Options) -> Arc<Adapter> {
    rehearsal::begin();
    let memory = if has_shared_memory() { Memory::Shared } else { options.memory };
    Adapter::open(Options { memory, ..options }).expect("a device opens")
}

impl End {
    /// An end on a device of its own.
    pub fn new(options: Options) -> Self {
        Self::of_device(open_adapter(options))
    }

    /// An end in a context of its own.
    pub fn of_device(adapter: Arc<Adapter>) -> Self {
        let context = open_context(adapter);
        Self { own: Own(context), ..Self::on(context) }
    }

    /// An end in a context that others use too.
    pub fn on(context: *mut ibv_context) -> Self {
        assert!(!context.is_null());
        // SAFETY: a fresh context.
        let (pd, cq) = unsafe {
            (ibv_alloc_pd(context), ibv_create_cq(context, 4096, null_mut(), null_mut(), 0))
        };
        assert!(!pd.is_null() && !cq.is_null());
        Self::of(context, pd, cq)
    }

    /// An end made of existing objects.
    pub fn of(context: *mut ibv_context, pd: *mut ibv_pd, cq: *mut ibv_cq) -> Self {
        Self { context, pd, cq, own: Own(null_mut()) }
    }

    /// The same end with another protection domain.
    pub fn with_pd(&self, pd: *mut ibv_pd) -> Self {
        Self::of(self.context, pd, self.cq)
    }

    /// Closes the context now.
    pub fn close(&mut self) {
        let context = std::mem::replace(&mut self.own.0, null_mut());
        assert!(!context.is_null(), "somebody else closes it");
        // SAFETY: open until now. Nobody uses its objects any more.
        assert_eq!(unsafe { ibv_close_device(context) }, 0);
    }

    /// Another protection domain.
    pub fn another_pd(&self) -> *mut ibv_pd {
        // SAFETY: the context is open.
        let pd = unsafe { ibv_alloc_pd(self.context) };
        assert!(!pd.is_null());
        pd
    }

    /// A queue pair of the usual size in RESET.
    pub fn qp(&self, kind: ibv_qp_type) -> *mut ibv_qp {
        self.qp_with(&mut self.init(kind))
    }

    /// The usual creation attributes: 64 requests each way, 4 SGEs, 256 bytes inline. Requests are unsignaled
    /// unless they ask.
    pub fn init(&self, kind: ibv_qp_type) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            qp_type: kind,
            cap: ibv_qp_cap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            ..ibv_qp_init_attr::default()
        }
    }

    /// A queue pair with these attributes.
    pub fn qp_with(&self, init: &mut ibv_qp_init_attr) -> *mut ibv_qp {
        // SAFETY: all named objects are live.
        let qp = unsafe { ibv_create_qp(self.pd, init) };
        assert!(!qp.is_null(), "ibv_create_qp: {}", std::io::Error::last_os_error());
        qp
    }

    /// Registers a buffer in the end's domain.
    pub fn reg(&self, buffer: &Buffer, access: c_int) -> *mut ibv_mr {
        reg(self.pd, buffer, access)
    }

    /// Polls until a completion is there.
    pub fn wait(&self) -> ibv_wc {
        wait(self.cq)
    }

    /// Polls until a completion is there and expects this status.
    pub fn expect(&self, status: ibv_wc_status) -> ibv_wc {
        let wc = self.wait();
        assert_eq!(wc.status, status, "{wc:?}");
        wc
    }

    /// There is no completion now.
    pub fn expect_nothing(&self) {
        let wc = poll(self.cq);
        assert!(wc.is_none(), "{wc:?}");
    }

    /// Waits for the next asynchronous event, takes it and acknowledges it.
    pub fn event(&self) -> (ibv_event_type, *mut c_void) {
        until("an event", || self.has_event().then_some(()));
        let mut event = ibv_async_event::default();
        // SAFETY: the context is open; the event is acknowledged before it goes out of scope.
        unsafe {
            assert_eq!(ibv_get_async_event(self.context, &mut event), 0);
            let element = event.element.qp.cast();
            ibv_ack_async_event(&mut event);
            (event.event_type, element)
        }
    }

    /// Whether an asynchronous event is there now.
    pub fn has_event(&self) -> bool {
        // SAFETY: the context is open.
        readable(unsafe { (*self.context).async_fd })
    }
}

/// The attributes that the device reports.
pub fn device_attr(context: *mut ibv_context) -> ibv_device_attr {
    let mut attr = std::mem::MaybeUninit::zeroed();
    // SAFETY: an open context, and a struct of plain numbers that the verb fills.
    unsafe {
        assert_eq!(ibv_query_device(context, attr.as_mut_ptr()), 0);
        attr.assume_init()
    }
}
