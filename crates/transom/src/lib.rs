#![doc = include_str!("../README.md")]
//!
//! # Kinds of queue pairs
//!
//! | | begins at | reaches |
//! |---|---|---|
//! | connections (RC, UC) | [`QueuePair::builder`] | one peer: messages, its memory, windows |
//! | datagrams (UD) | [`QueuePair::datagram`] | anybody, by an [`AddressHandle`]; groups too |
//! | a peer found by its address | [`Connector`], [`Listener`] | a [`Connection`] |
//! | extended connections (XRC) | [`QueuePair::xrc_initiator`] | the shared queues of an [`XrcDomain`] |
//!
//! The type of a queue pair says which of these it is, so a call that it does not support does not compile.
//! Many queue pairs can take their receives from one [`SharedReceiveQueue`]. A [`Batch`] posts several
//! requests at once, all or none.
//!
//! # Providers
//!
//! A [`Provider`] is a libibverbs: the software device in this crate, or the system's library with the adapters it
//! drives. The same code runs on both. Every call goes through the tables of the verbs ABI, and connections go through
//! the functions of librdmacm. Only `Provider::software` needs the feature `software`.
//!
//! # How peers find each other
//!
//! The example above has both queue pairs in one program. Two programs connect through the connection manager
//! (`rdma_cm`), as they would with sockets: one [listens](Listener) on an address, the other
//! [connects](Connector) to it. Each brings a queue pair of its own, and both get a [`Connection`]. The other
//! side can be any program that uses `rdma_cm`. If two programs already have a channel, they can exchange
//! [`Endpoint`]s over it instead.
//!
//! # Waiting
//!
//! Posting a request returns a [`Posted`]: wait for it, poll it, or await it. You need no executor, and any will do.
//! [`CompletionQueue`] and [`Driver`] say who delivers completions. Connections and requests for them are [`Pending`]
//! in the same way.
//!
//! # Forked children
//!
//! A child of `fork` has none of its parent's threads and connections. It opens a device and makes its own objects, and
//! can await those too. Inherited objects belong to the parent: do not use them in the child. On an adapter, a call
//! changes the parent's object.
//!
//! The child may drop inherited objects. That calls no verb and waits for no lock, so it does not matter what other
//! threads did at the fork, such as that of a [`Driver`]. The parent still has the objects. The child keeps their memory
//! and descriptors until it ends or calls `exec`.
//!
//! If your program forks while memory is registered with an adapter, call [`Provider::fork_init`] first.
//!
//! # Logging
//!
//! The software device reports with events of [`tracing`](https://docs.rs/tracing). Their targets begin with `transom`.
//! Devices, peers and the port are at level `info`; states, refusals and retransmissions are at `debug`. It installs no
//! subscriber. Your subscriber must not call into this crate from an event, because locks are held. Without a
//! subscriber, only messages that a user must see go to standard error.
//!
//! # Safety
//!
//! - Every object holds the objects it was made from. So nothing is freed too early, in whatever order you drop the
//!   handles.
//! - A region owns its buffer until the device has released it. A peer may write the bytes at any time, so you copy
//!   them in and out, and get no references to them.
//! - The completion queue holds the objects that a request names until you have its completion. If you drop its ticket,
//!   the queue holds them until the request is done. If you forget the ticket, they stay. This includes receives of a
//!   shared receive queue, because all of them complete into one queue.
//! - If the device refuses to free an object, the object stays, and so do the objects it depends on.
//!
//! Errors are [`Error`]s. A call that takes a buffer, a region or a window and fails gives it back ([`Refused`]). A
//! queue pair that does not connect is lost, and so are a request that is not accepted and a batch that is not posted.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod accepting;
mod address;
mod allocation;
mod attributes;
mod batch;
mod buffer;
mod builder;
mod channel;
pub mod check;
mod cm;
mod completion;
mod connecting;
mod connection;
mod connection_error;
mod context;
mod copy;
mod created_queue_pair;
mod datagram;
mod delivery;
mod device;
mod domain;
mod driver;
mod endpoint;
mod error;
mod event;
mod extended;
mod functions;
mod grant;
mod keep;
mod listener;
mod modify;
mod moment;
mod outstanding;
mod panics;
mod pending;
mod poll;
mod post;
mod posted;
mod private_data;
mod process;
mod provider;
mod queue;
mod queue_pair;
mod rdma_cm;
mod received;
mod region;
mod request;
mod service;
mod shared;
mod shared_receives;
mod state;
mod transition;
mod unconnected;
mod window;
mod xrc;
mod xrc_domain;

pub use accepting::Accepting;
pub use address::{Address, AddressHandle, Destination};
pub use attributes::{DeviceAttributes, GidType, PortAttributes, Type2Check};
pub use batch::Batch;
pub use buffer::{Buffer, Pages};
pub use builder::{QueuePairBuilder, Service};
pub use completion::{Completion, Operation, Source, Status, WorkError};
pub use connecting::Connector;
pub use connection::Connection;
pub use connection_error::{ConnectionError, ConnectionProblem, Rejection};
pub use context::Context;
pub use datagram::Membership;
pub use device::{Device, devices};
pub use domain::ProtectionDomain;
pub use driver::Driver;
pub use endpoint::{Endpoint, Gid};
pub use error::{Error, Refused, Result};
pub use event::{AsyncEvent, AsyncEventKind};
pub use grant::{Grant, RemoteSlice, Rights};
pub use listener::{ConnectionRequest, Listener};
pub use pending::Pending;
pub use posted::Posted;
pub use private_data::PrivateData;
pub use provider::Provider;
pub use queue::CompletionQueue;
pub use queue_pair::QueuePair;
pub use received::{ReceivedDatagram, Receiving};
pub use region::{Access, MemoryRegion, Slice};
pub use request::{Payload, Request};
pub use service::DatagramService;
pub use shared_receives::{SharedReceiveQueue, SharingMessages};
pub use state::{
    Connectable, Connected, Datagram, Initialized, OnePeer, QueuePairState, Sharing,
    XrcInitialized, XrcInitiator, XrcTarget,
};
pub use transition::{Binding, Invalidating, Rebinding, Transition, TransitionResult};
pub use window::{Bound, Free, Type1, Type2, Window, WindowState, WindowType};
pub use xrc_domain::XrcDomain;
