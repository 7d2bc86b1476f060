//! Ids: ends of connections, and listeners; see `rdma_create_id(3)`.

use crate::cm::{Channel, Event, address};
use crate::context::OpenDevice;
use crate::error::check;
use crate::{ConnectionProblem, Error, Provider, Result};
use rustix::io::Errno;
use std::ffi::{CStr, c_int};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use transom_abi::*;

/// How long resolving an address or a route may take, in milliseconds.
const RESOLVING_MS: c_int = 5000;

/// An id with an event channel of its own. It has no queue pair: this crate changes the states of the program's queue
/// pair itself, with the id's attributes.
pub(crate) struct Id {
    raw: *mut rdma_cm_id,
    /// Whether it is for datagrams.
    datagrams: bool,
    provider: Provider,
    /// Others may keep it for its descriptor.
    channel: Arc<Channel>,
}

// SAFETY: librdmacm is thread-safe. Calls that change an id need `self` mutably, or only one thread at a time
// makes them.
unsafe impl Send for Id {}
// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

/// The parameters of an end that asks for a connection or accepts one.
pub(crate) struct Offer<'a> {
    /// At the length that the connection manager carries.
    pub(crate) private_data: &'a [u8],
    /// How many reads at once the peer may make, and how many this end wants to make.
    pub(crate) reads: (u8, u8),
    pub(crate) retries: u8,
    pub(crate) receiver_not_ready_retries: u8,
    /// The number of its queue pair. 0 for a request that only asks where datagrams go.
    pub(crate) queue_pair: u32,
    /// Whether it takes its receives from a shared receive queue.
    pub(crate) shared_receives: bool,
}

impl Id {
    pub(crate) fn create(provider: &Provider, port_space: rdma_port_space) -> Result<Self> {
        let channel = Arc::new(Channel::create(provider)?);
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open and the place to write is valid.
        let result = unsafe {
            let create = channel.calls.rdma_create_id;
            create(channel.raw, &raw mut raw, ptr::null_mut(), port_space)
        };
        check("rdma_create_id", "creating an id", result)?;
        Ok(Self { raw, datagrams: port_space == RDMA_PS_UDP, provider: *provider, channel })
    }

    /// Takes the id of a request from the channel of its listener.
    ///
    /// # Safety
    /// The id came with a request for this listener just now, and nobody else has it.
    pub(crate) unsafe fn of_request(raw: *mut rdma_cm_id, listener: &Self) -> Result<Self> {
        let calls = listener.channel.calls;
        let migrated = Channel::create(&listener.provider).and_then(|channel| {
            // SAFETY: both exist, and no event of the id is held.
            let result = unsafe { (calls.rdma_migrate_id)(raw, channel.raw) };
            check("rdma_migrate_id", "taking a request", result)?;
            Ok(channel)
        });
        match migrated {
            Ok(channel) => {
                let Self { datagrams, provider, .. } = *listener;
                Ok(Self { raw, datagrams, provider, channel: Arc::new(channel) })
            }
            Err(error) => {
                // The peer is refused.
                // SAFETY: nobody else has the id.
                unsafe { (calls.rdma_destroy_id)(raw) };
                Err(error)
            }
        }
    }

    /// The channel of its events.
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(crate) fn is_for_datagrams(&self) -> bool {
        self.datagrams
    }

    /// Fetches the next event, if there is one.
    pub(crate) fn next(&self) -> Result<Option<Event>> {
        self.channel.next(self.datagrams)
    }

    pub(crate) fn bind(&self, to: SocketAddr) -> Result<()> {
        let mut address = address::to_c(to);
        let address = (&raw mut address).cast();
        // SAFETY: the id exists and the address is valid.
        let result = unsafe { (self.channel.calls.rdma_bind_addr)(self.raw, address) };
        check("rdma_bind_addr", format_args!("binding to {to}"), result)
    }

    /// Lets requests arrive. The backlog is the connection manager's default.
    pub(crate) fn listen(&self) -> Result<()> {
        // SAFETY: the id exists.
        let result = unsafe { (self.channel.calls.rdma_listen)(self.raw, 0) };
        check("rdma_listen", "listening", result)
    }

    pub(crate) fn resolve_address(&self, from: Option<SocketAddr>, to: SocketAddr) -> Result<()> {
        let (mut source, mut destination) = (from.map(address::to_c), address::to_c(to));
        let source = source.as_mut().map_or(ptr::null_mut(), |source| (&raw mut *source).cast());
        let destination = (&raw mut destination).cast();
        let resolve = self.channel.calls.rdma_resolve_addr;
        // SAFETY: the id exists, and the addresses are valid or absent.
        let result = unsafe { resolve(self.raw, source, destination, RESOLVING_MS) };
        check("rdma_resolve_addr", format_args!("resolving {to}"), result)
    }

    pub(crate) fn resolve_route(&self) -> Result<()> {
        // SAFETY: the id exists.
        let result = unsafe { (self.channel.calls.rdma_resolve_route)(self.raw, RESOLVING_MS) };
        check("rdma_resolve_route", "resolving a route", result)
    }

    pub(crate) fn connect(&self, offer: &Offer<'_>) -> Result<()> {
        let mut parameters = offer.parameters();
        // SAFETY: the id exists, and the parameters name bytes that live longer than the call.
        let result = unsafe { (self.channel.calls.rdma_connect)(self.raw, &raw mut parameters) };
        check("rdma_connect", "asking the peer", result)
    }

    pub(crate) fn accept(&self, offer: &Offer<'_>) -> Result<()> {
        let mut parameters = offer.parameters();
        // SAFETY: as for `connect`.
        let result = unsafe { (self.channel.calls.rdma_accept)(self.raw, &raw mut parameters) };
        check("rdma_accept", "accepting a request", result)
    }

    /// Confirms that the peer's acceptance has come.
    pub(crate) fn establish(&self) -> Result<()> {
        // SAFETY: the id exists.
        let result = unsafe { (self.channel.calls.rdma_establish)(self.raw) };
        check("rdma_establish", "confirming a connection", result)
    }

    /// Reports that the peer has the acceptance, because its data have come.
    pub(crate) fn data_has_come(&self) -> Result<()> {
        // SAFETY: the id exists.
        let result = unsafe { (self.channel.calls.rdma_notify)(self.raw, IBV_EVENT_COMM_EST) };
        match check("rdma_notify", "confirming a connection", result) {
            // The peer's confirmation has come meanwhile.
            Err(error) if error.errno() == Some(Errno::ISCONN.raw_os_error()) => Ok(()),
            told => told,
        }
    }

    /// `private_data` has the length that the connection manager carries.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<()> {
        let length = u8::try_from(private_data.len()).expect("no message carries more");
        let reject = self.channel.calls.rdma_reject;
        // SAFETY: the id exists, and there are as many bytes as the length says.
        let result = unsafe { reject(self.raw, private_data.as_ptr().cast(), length) };
        check("rdma_reject", "refusing a request", result)
    }

    /// Ends the connection, or confirms that the peer has ended it.
    pub(crate) fn disconnect(&self) -> Result<()> {
        // SAFETY: the id exists.
        let result = unsafe { (self.channel.calls.rdma_disconnect)(self.raw) };
        check("rdma_disconnect", "disconnecting", result)
    }

    /// The attributes for a queue pair's move to a state, and their mask.
    pub(crate) fn attributes(&self, state: ibv_qp_state) -> Result<(ibv_qp_attr, c_int)> {
        let mut attributes = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        let mut mask = 0;
        let init = self.channel.calls.rdma_init_qp_attr;
        // SAFETY: the id exists and the places to write are valid.
        let result = unsafe { init(self.raw, &raw mut attributes, &raw mut mask) };
        check("rdma_init_qp_attr", "asking how to connect a queue pair", result)?;
        Ok((attributes, mask))
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the id exists, and any bytes are such a storage.
        address::from_c(&unsafe { (*self.raw).route.addr.src.src_storage })
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: the id exists, and any bytes are such a storage.
        address::from_c(&unsafe { (*self.raw).route.addr.dst.dst_storage })
    }

    /// The device that leads to the peer, if it is known.
    fn device(&self) -> Option<*mut ibv_device> {
        // SAFETY: the id exists.
        let context = unsafe { (*self.raw).verbs };
        // SAFETY: the device it is bound to stays open. Its library may write the context meanwhile, so this makes no
        // reference to it.
        (!context.is_null()).then(|| unsafe { (*context).device })
    }

    /// The name of the device that leads to the peer.
    pub(crate) fn device_name(&self) -> Option<String> {
        // SAFETY: the device of an open context exists, and its name ends with a NUL.
        self.device().map(|device| unsafe { name(device) })
    }

    /// Checks that this device is of the id's library.
    pub(crate) fn check_provider(&self, given: &OpenDevice) -> Result<()> {
        match self.provider.is(&given.provider) {
            true => Ok(()),
            false => Err(Error::OtherContext { what: "connection" }),
        }
    }

    /// Checks that this device leads to the peer, and also this port if one is given.
    pub(crate) fn check_device(
        &self,
        given: &OpenDevice,
        given_port: Option<u8>,
    ) -> Result<(), ConnectionProblem> {
        // SAFETY: the context of an opened device is open.
        let own = unsafe { (*given.context).device };
        // SAFETY: the id exists.
        let port = unsafe { (*self.raw).port_num };
        // SAFETY: the devices of open contexts exist, and their names end with a NUL.
        let describe = |device, port| format!("{} port {port}", unsafe { name(device) });
        let same = |leads| {
            let guid = |provider: &Provider| provider.verbs.ibv_get_device_guid;
            let (of_id, of_given) = (guid(&self.provider), guid(&given.provider));
            // SAFETY: as above. Each library is asked about its own device.
            let (theirs, ours) = unsafe { (of_id(leads), of_given(own)) };
            theirs == ours && given_port.is_none_or(|given| given == port)
        };
        match self.device() {
            Some(leads) if same(leads) => Ok(()),
            leads => Err(ConnectionProblem::OtherDevice {
                leads: leads.map_or_else(|| "no device".to_owned(), |leads| describe(leads, port)),
                given: describe(own, given_port.unwrap_or(port)),
            }),
        }
    }
}

/// # Safety
/// The device exists.
unsafe fn name(device: *mut ibv_device) -> String {
    // SAFETY: by the contract of this function; libibverbs ends the name with a NUL.
    unsafe { CStr::from_ptr((&raw const (*device).name).cast()) }.to_string_lossy().into_owned()
}

impl Offer<'_> {
    /// The parameters of an end that neither reads nor has a queue pair.
    pub(crate) const NOTHING: Self = Self {
        private_data: &[],
        reads: (0, 0),
        retries: 0,
        receiver_not_ready_retries: 0,
        queue_pair: 0,
        shared_receives: false,
    };

    fn parameters(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len().try_into().expect("no message carries more"),
            responder_resources: self.reads.0,
            initiator_depth: self.reads.1,
            retry_count: self.retries,
            rnr_retry_count: self.receiver_not_ready_retries,
            srq: self.shared_receives.into(),
            qp_num: self.queue_pair,
            ..rdma_conn_param::default()
        }
    }
}

impl AsFd for Id {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if self.channel.process.is_parent() {
            return;
        }
        // SAFETY: nobody else has the id, and every event of it was acknowledged.
        unsafe { (self.channel.calls.rdma_destroy_id)(self.raw) };
    }
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use super::*;

    unsafe extern "C" fn of_another_library(_: *mut ibv_device) -> u64 {
        7
    }

    /// The device of another library may have nothing in common with one of the id's but the beginning.
    #[test]
    fn a_device_is_known_by_its_own_library_alone() {
        let [provider, other] = [
            Provider::software(),
            Provider::changed(|verbs| verbs.ibv_get_device_guid = of_another_library),
        ];
        let open = |provider| crate::devices(provider).unwrap()[0].open().unwrap();
        let (context, other) = (open(&provider), open(&other));
        let id = Id::create(&provider, RDMA_PS_TCP).unwrap();
        id.resolve_address(None, "127.0.0.1:1".parse().unwrap()).unwrap();
        while id.next().unwrap().is_none() {}
        id.check_provider(&context.inner).unwrap();
        let refused = id.check_provider(&other.inner).unwrap_err();
        assert_eq!(refused, Error::OtherContext { what: "connection" });
        // The id's library would say that this device leads there.
        assert!(id.check_device(&other.inner, Some(1)).is_err());
    }

    #[test]
    fn a_queue_pair_of_another_port_than_leads_to_the_peer_is_told_from_one_of_the_same() {
        let provider = Provider::software();
        let device = &crate::devices(&provider).unwrap()[0];
        let context = device.open().unwrap();
        let id = Id::create(&provider, RDMA_PS_TCP).unwrap();
        let other = |leads: &str, given: &str| {
            let full = |port: &str| match port {
                "" => "no device".to_owned(),
                port => format!("{} port {port}", device.name()),
            };
            Err(ConnectionProblem::OtherDevice { leads: full(leads), given: full(given) })
        };
        // Before the route is known, no device leads to the peer.
        assert_eq!(id.check_device(&context.inner, Some(1)), other("", "1"));
        id.resolve_address(None, "127.0.0.1:1".parse().unwrap()).unwrap();
        while id.next().unwrap().is_none() {}
        assert_eq!(id.check_device(&context.inner, Some(1)), Ok(()));
        assert_eq!(id.check_device(&context.inner, None), Ok(()));
        assert_eq!(id.check_device(&context.inner, Some(2)), other("1", "2"));
    }
}
