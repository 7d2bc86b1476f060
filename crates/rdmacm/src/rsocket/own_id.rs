//! The id of a socket, on an event channel of its own.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

use crate::arrival;
use crate::channel::Channel;
use crate::event::Event;
use crate::id::{Id, New};
use crate::migrate::migrate;
use crate::provider::Provider;
use crate::wrong::Wrong;

/// An id and its channel. Both end with this value.
#[derive(Debug)]
pub(crate) struct OwnId {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
}

// SAFETY: any thread may use ids and channels, and these belong to this value.
unsafe impl Send for OwnId {}
// SAFETY: as for `Send`.
unsafe impl Sync for OwnId {}

/// An event of an id, with the fields that sockets need.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) event: rdma_cm_event_type,
    pub(crate) status: c_int,
    /// The id of a request.
    pub(crate) request: *mut rdma_cm_id,
    /// The peer's private data.
    pub(crate) data: Vec<u8>,
}

impl OwnId {
    /// Makes an id of a port space.
    pub(crate) fn create(
        provider: &'static Provider,
        ps: rdma_port_space,
        qp_type: ibv_qp_type,
    ) -> Result<Self, Wrong> {
        let channel = open(provider)?;
        let new = New { channel, context: null_mut(), ps, qp_type, synchronous: false };
        // SAFETY: the channel was just made, and nobody else has it.
        let id = unsafe { Id::create(provider, new).inspect_err(|_| Channel::close(channel)) }?;
        Ok(Self { channel, id })
    }

    /// Takes over the id of a request. If that fails, the id is ended.
    ///
    /// # Safety
    /// The id has just arrived, and nobody else has it.
    pub(crate) unsafe fn of_request(
        provider: &'static Provider,
        id: *mut rdma_cm_id,
    ) -> Result<Self, Wrong> {
        let moved = open(provider).and_then(|channel| {
            // SAFETY: by the contract of this function.
            let moved = unsafe { migrate(id, channel) };
            // SAFETY: the channel was just made, and nobody else has it.
            moved.inspect_err(|_| unsafe { Channel::close(channel) }).map(|()| channel)
        });
        match moved {
            Ok(channel) => Ok(Self { channel, id }),
            Err(wrong) => {
                // SAFETY: by the contract of this function.
                let _ = unsafe { Id::destroy(id) };
                Err(wrong)
            }
        }
    }

    pub(crate) fn id(&self) -> &Id {
        // SAFETY: the id lives as long as this value.
        unsafe { Id::of(self.id) }.expect("an id is no null")
    }

    /// A descriptor that is readable while there are events.
    pub(crate) fn descriptor(&self) -> c_int {
        // SAFETY: the channel lives as long as this value.
        unsafe { (*self.channel).fd }
    }

    /// The next event, if there is one. It does not wait.
    pub(crate) fn next(&self) -> Option<Happened> {
        // SAFETY: the channel belongs to this value.
        let event = unsafe { arrival::fetch(self.channel) }.ok()?;
        // SAFETY: the event was just fetched.
        let event = unsafe { Event::back(event) }?;
        let public = &event.public;
        let data = if self.id().is_datagram() {
            Vec::new()
        } else {
            // SAFETY: the parameters have the form of a connection, and the data has the length that they say.
            unsafe {
                let conn = public.param.conn;
                match conn.private_data_len {
                    0 => Vec::new(),
                    length => {
                        let data = conn.private_data.cast::<u8>();
                        std::slice::from_raw_parts(data, length.into()).to_vec()
                    }
                }
            }
        };
        let request =
            if public.event == RDMA_CM_EVENT_CONNECT_REQUEST { public.id } else { null_mut() };
        let happened = Happened { event: public.event, status: public.status, request, data };
        event.acknowledge();
        Some(happened)
    }
}

fn open(provider: &'static Provider) -> Result<*mut rdma_event_channel, Wrong> {
    let channel = Channel::open(provider)?;
    // SAFETY: the channel was just made.
    let descriptor = unsafe { (*channel).fd };
    // SAFETY: the descriptor is open.
    unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
    Ok(channel)
}

impl Drop for OwnId {
    fn drop(&mut self) {
        // SAFETY: nobody else has them, and its events are acknowledged.
        unsafe {
            let _ = Id::destroy(self.id);
            Channel::close(self.channel);
        }
    }
}
