//! The kinds and states of queue pairs.

use std::fmt::Debug;

/// The state of a queue pair that is not yet connected.
#[derive(Clone, Copy, Debug)]
pub enum Initialized {}

/// The state of a queue pair that is connected to a peer.
#[derive(Clone, Copy, Debug)]
pub enum Connected {}

/// The state of a queue pair that exchanges datagrams with any number of others (UD).
#[derive(Clone, Copy, Debug)]
pub enum Datagram {}

/// The state of the sending end of an extended reliable connection (XRC) that is not yet
/// connected.
#[derive(Clone, Copy, Debug)]
pub enum XrcInitialized {}

/// The state of the sending end of an extended reliable connection (XRC).
#[derive(Clone, Copy, Debug)]
pub enum XrcInitiator {}

/// The state of the receiving end of an extended reliable connection (XRC). Its messages go to the shared receive
/// queues of its domain, so no program receives through the queue pair itself.
#[derive(Clone, Copy, Debug)]
pub enum XrcTarget {}

/// A state of a [`QueuePair`](crate::QueuePair): [`Initialized`] or [`Connected`], [`Datagram`], or one of
/// XRC's.
pub trait QueuePairState: sealed::Sealed + Debug + Send + Sync {}

impl QueuePairState for Initialized {}
impl QueuePairState for Connected {}
impl QueuePairState for Datagram {}
impl QueuePairState for XrcInitialized {}
impl QueuePairState for XrcInitiator {}
impl QueuePairState for XrcTarget {}

/// A state in which messages come from one peer: [`Initialized`] or [`Connected`].
pub trait OnePeer: QueuePairState {}

impl OnePeer for Initialized {}
impl OnePeer for Connected {}

/// A state in which a queue pair is not yet connected, and will then send: [`Initialized`] or [`XrcInitialized`].
pub trait Connectable: QueuePairState {}

impl Connectable for Initialized {}
impl Connectable for XrcInitialized {}

/// The users of a [`SharedReceiveQueue`](crate::SharedReceiveQueue): [`Connected`] or [`Datagram`] queue pairs, or
/// [`XrcTarget`]s.
pub trait Sharing: QueuePairState {}

impl Sharing for Connected {}
impl Sharing for Datagram {}
impl Sharing for XrcTarget {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Initialized {}
    impl Sealed for super::Connected {}
    impl Sealed for super::Datagram {}
    impl Sealed for super::XrcInitialized {}
    impl Sealed for super::XrcInitiator {}
    impl Sealed for super::XrcTarget {}
}
