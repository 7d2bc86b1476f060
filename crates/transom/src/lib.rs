#![doc = include_str!("../README.md")]
//!
//! # What else there is
//!
//! | | begins at | reaches |
//! |---|---|---|
//! | connections (RC, UC) | [`QueuePair::builder`] | one peer: messages, its memory, windows |
//! | datagrams (UD) | [`QueuePair::datagram`] | anybody, by an [`AddressHandle`]; groups too |
//! | a peer found by its address | [`Connector`], [`Listener`] | a [`Connection`] |
//! | extended connections (XRC) | [`QueuePair::xrc_initiator`] | the shared queues of an [`XrcDomain`] |
//!
//! Which of these a queue pair is, is in its type, so that what it cannot do does not compile. Many
//! of them can take their receives from one [`SharedReceiveQueue`], and several requests are posted
//! at once, all or none, by a [`Batch`].
//!
//! # Where the device comes from
//!
//! A [`Provider`] is a libibverbs: the software device that is part of this crate, or the system's
//! library with the adapters it drives. The same code runs on both: everything goes through the
//! verbs ABI's own tables, and connections through the functions of librdmacm. Only
//! `Provider::software` needs the feature `software`.
//!
//! # How peers find each other
//!
//! Above, both queue pairs were at hand. Programs that are apart connect by the connection manager
//! (`rdma_cm`), as sockets are connected: one [listens](Listener) on an address, the other
//! [connects](Connector) to it, each with a queue pair of its own, and both have a [`Connection`]. Any program
//! that uses `rdma_cm` can be the other. Where two have another way to tell each other something,
//! they can exchange [`Endpoint`]s by that instead.
//!
//! # Waiting
//!
//! Posting a request returns a [`Posted`]: wait for it, ask for it, or await it. No executor is
//! needed, and any will do; see [`CompletionQueue`] and [`Driver`] for who delivers completions.
//! Connections and requests for them are [`Pending`] in the same way.
//!
//! # Forked children
//!
//! A child of a `fork` has none of its parent's threads and connections: it opens a device and makes what it needs
//! itself, and can await that too. Objects that it has inherited are its parent's, for it to leave alone. Where they
//! are dropped in it, its parent has them still; no other thread must be in a call of this crate at the fork then.
//!
//! # What the software device does
//!
//! It tells by events of [`tracing`](https://docs.rs/tracing), whose targets begin with `transom`: devices,
//! peers and the port at `info`, states, refusals and retransmissions at `debug`. It puts no subscriber in
//! place. Yours must not call into this crate from an event, for locks are held. Without one, only what a
//! user must know goes to standard error.
//!
//! # What keeps this safe
//!
//! - Every object holds those it was made from, so nothing is freed too early, in whatever order
//!   the handles are dropped.
//! - A region owns its buffer until the device has let go of it. Bytes are copied in and out, since
//!   a peer may write them at any time; there are no references to them.
//! - What a request names is held by its completion queue until it is done, also when its ticket
//!   is dropped or forgotten. A receive posted to a shared receive queue is held the same way, since
//!   all of them complete into one queue.
//! - If the device refuses to free something, it stays, and so does what it depends on.
//!
//! Errors are [`Error`]s. A call that takes something and fails gives it back ([`Refused`]).

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod accepting;
mod address;
mod allocation;
mod attributes;
mod batch;
mod buffer;
mod builder;
mod channel;
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
pub use attributes::{DeviceAttributes, PortAttributes, Type2Check};
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
    Connected, Datagram, Initialized, OnePeer, QueuePairState, Sharing, XrcInitialized,
    XrcInitiator, XrcTarget,
};
pub use transition::{Binding, Invalidating, Rebinding, Transition, TransitionResult};
pub use window::{Bound, Free, Type1, Type2, Window, WindowState, WindowType};
pub use xrc_domain::XrcDomain;
