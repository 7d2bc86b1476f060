//! The parts of both ends: a device and a domain, and the objects made from them for each operation.

use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use transom::{
    Access, Address, AddressHandle, Completion, CompletionQueue, Connected, Context, Datagram,
    Destination, Endpoint, Error, Gid, Initialized, MemoryRegion, Pages, Posted, ProtectionDomain,
    Provider, QueuePair,
};

use crate::talk::{Service, TIMEOUT};

/// The length of each end's memory in bytes: the longest message, and room around it.
pub(crate) const MEMORY: usize = (1 << 20) + 2 * 4096;

/// The key of all datagrams here.
pub(crate) const QKEY: u32 = 0x1234_5678;

/// The length of the header before a datagram, in bytes.
pub(crate) const HEADER: usize = 40;

/// A device with an address.
pub(crate) struct End {
    provider: Provider,
    context: Context,
    pd: ProtectionDomain,
    gid_index: u8,
}

/// A queue pair of any service.
pub(crate) enum Queue {
    Initialized(QueuePair<Initialized>),
    Connected(QueuePair<Connected>),
    Datagram(QueuePair<Datagram>),
}

impl End {
    /// The first device that has this address.
    pub(crate) fn new(system: bool, address: IpAddr) -> Result<Self, String> {
        let provider = if system { Provider::system() } else { Ok(Provider::software()) };
        let provider = provider.map_err(text)?;
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        for device in transom::devices(&provider).map_err(text)? {
            let context = device.open().map_err(text)?;
            if let Some(gid_index) = gid_index(&context, address) {
                let pd = ProtectionDomain::new(&context).map_err(text)?;
                return Ok(Self { provider, context, pd, gid_index });
            }
        }
        Err(format!("no device has the address {address}"))
    }

    pub(crate) fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(crate) fn device(&self) -> &str {
        self.context.name()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// A queue pair whose peer is not known yet.
    pub(crate) fn queue_pair(&self, service: Service) -> Result<Queue, String> {
        let cq = CompletionQueue::new(&self.context, 256).map_err(text)?;
        let of = match service {
            Service::Reliable => transom::Service::ReliableConnection,
            Service::Unreliable => transom::Service::UnreliableConnection,
            Service::Datagram => {
                let builder = QueuePair::datagram(&self.pd, &cq).qkey(QKEY);
                let built = builder.gid_index(self.gid_index).build();
                return built.map(Queue::Datagram).map_err(text);
            }
        };
        let builder = QueuePair::builder(&self.pd, &cq).service(of).gid_index(self.gid_index);
        builder.build().map(Queue::Initialized).map_err(text)
    }

    /// Memory that this side and the peer may use in every way.
    pub(crate) fn memory(&self) -> Result<MemoryRegion<Pages>, String> {
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::MW_BIND;
        let pages = Pages::new(MEMORY).map_err(text)?;
        MemoryRegion::register(&self.pd, pages, access).map_err(|refused| text(refused.error))
    }

    /// The destination for datagrams to this endpoint.
    pub(crate) fn destination(&self, endpoint: Endpoint) -> Result<Destination, String> {
        let to = Address { gid_index: self.gid_index, ..endpoint.into() };
        let address = AddressHandle::new(&self.pd, to).map_err(text)?;
        Ok(Destination { address, queue_pair: endpoint.qpn, qkey: QKEY })
    }
}

impl Queue {
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self {
            Self::Initialized(qp) => qp.endpoint(),
            Self::Connected(qp) => qp.endpoint(),
            Self::Datagram(qp) => qp.endpoint(),
        }
    }

    /// Connects it. A queue pair for datagrams needs no connection.
    pub(crate) fn connect(self, peer: &Endpoint) -> Result<Self, String> {
        match self {
            Self::Initialized(qp) => qp.connect(peer).map(Self::Connected).map_err(text),
            other => Ok(other),
        }
    }

    pub(crate) fn connected(&self) -> Result<&QueuePair<Connected>, String> {
        match self {
            Self::Connected(qp) => Ok(qp),
            _ => Err("the queue pair is not connected".into()),
        }
    }

    pub(crate) fn datagram(&self) -> Result<&QueuePair<Datagram>, String> {
        match self {
            Self::Datagram(qp) => Ok(qp),
            _ => Err("the queue pair is not for datagrams".into()),
        }
    }
}

/// The index of the port's GID with this address.
fn gid_index(context: &Context, address: Ipv6Addr) -> Option<u8> {
    let entries = context.port(1).ok()?.gids.min(256) as u16;
    let is_it = |index: &u8| context.gid(1, *index) == Ok(Gid(address.octets()));
    (0..entries).map(|index| index as u8).find(is_it)
}

/// Waits for a request.
pub(crate) fn wait(posted: transom::Result<Posted>) -> Result<Completion, String> {
    wait_for(posted).map_err(text)
}

/// Waits for a request. The error says how it failed.
pub(crate) fn wait_for(posted: transom::Result<Posted>) -> Result<Completion, Failure> {
    let waited = posted?.wait_timeout(TIMEOUT)?;
    waited.ok_or(Failure::Nothing)
}

/// The reason why a request did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    Error(Error),
    /// It did not complete at all.
    Nothing,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Nothing => write!(f, "no completion after {TIMEOUT:?}"),
        }
    }
}

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The bytes at these places of memory filled with this seed.
pub(crate) fn pattern(seed: u8, range: Range<usize>) -> Vec<u8> {
    range.map(|at| (at * 7 + at / 251) as u8 ^ seed).collect()
}

/// A short value that stands for many bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Copies bytes out of memory.
pub(crate) fn read(memory: &MemoryRegion<Pages>, range: Range<usize>) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; range.len()];
    memory.read_at(range.start, &mut bytes).map_err(text)?;
    Ok(bytes)
}
