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

/// An id and its channel, which end with it.
#[derive(Debug)]
pub(crate) struct OwnId {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
}

// SAFETY: ids and channels may be used by any thread, and these belong to this value.
unsafe impl Send for OwnId {}
// SAFETY: as for `Send`.
unsafe impl Sync for OwnId {}

/// What has happened to an id, as far as sockets need it.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) event: rdma_cm_event_type,
    pub(crate) status: c_int,
    /// The id of a request.
    pub(crate) request: *mut rdma_cm_id,
    /// Private data of the peer's.
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

    /// Takes over the id of a request, which is ended if that fails.
    ///
    /// # Safety
    /// It has just come, and nobody else has it.
    pub(crate) unsafe fn of_request(
        provider: &'static Provider,
        id: *mut rdma_cm_id,
    ) -> Result<Self, Wrong> {
        let moved = open(provider).and_then(|channel| {
            // SAFETY: by the contract of this function.
            let moved = unsafe { migrate(id, channel) };
            // SAFETY: the channel was just made, and nobody has it.
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
        // SAFETY: it lives as long as this value.
        unsafe { Id::of(self.id) }.expect("an id is no null")
    }

    /// Readable while something has happened.
    pub(crate) fn descriptor(&self) -> c_int {
        // SAFETY: the channel lives as long as this value.
        unsafe { (*self.channel).fd }
    }

    /// What has happened next, without a wait.
    pub(crate) fn next(&self) -> Option<Happened> {
        // SAFETY: the channel is this value's.
        let event = unsafe { arrival::fetch(self.channel) }.ok()?;
        // SAFETY: the event was just given.
        let event = unsafe { Event::back(event) }?;
        let public = &event.public;
        let data = if self.id().is_datagram() {
            Vec::new()
        } else {
            // SAFETY: the parameters are those of a connection, and there are so many bytes.
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
    // SAFETY: flags of an open descriptor.
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
