//! `rsocket(7)`: sockets that send their data by RDMA, with the calls of sockets.

mod absent;
mod calls;
mod datagram;
mod datagram_pair;
mod datagram_protocol;
mod destination;
mod entry;
mod flow;
mod fork;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod iovec;
mod listener;
mod mapping;
mod memory;
mod names;
mod options;
mod own_id;
mod poll;
mod protocol;
mod queue_pair;
mod settings;
mod socket;
mod stream;
mod stream_socket;
mod table;
mod transfer;
mod wait;

pub use absent::{repoll_create, repoll_ctl, repoll_wait};
pub use calls::{
    raccept, rbind, rclose, rconnect, rfcntl, rgetpeername, rgetsockname, rlisten, rshutdown,
    rsocket,
};
pub use mapping::{riomap, riounmap, riowrite};
pub use options::{rgetsockopt, rsetsockopt};
pub use poll::{rpoll, rselect};
pub use transfer::{
    rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rsend, rsendmsg, rsendto, rwrite, rwritev,
};
