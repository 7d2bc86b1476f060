//! Constants of `<rdma/rsocket.h>`.

use core::ffi::c_int;

/// Level of `rsetsockopt` and `rgetsockopt` for what only these sockets have.
pub const SOL_RDMA: c_int = 0x10000;
/// Option: how many requests may be under way.
pub const RDMA_SQSIZE: c_int = 0;
/// Option: how many messages may wait to be received.
pub const RDMA_RQSIZE: c_int = 1;
/// Option: bytes that are sent inline.
pub const RDMA_INLINE: c_int = 2;
/// Option: how many buffers of a socket the peer may write to by `riowrite`.
pub const RDMA_IOMAPSIZE: c_int = 3;
/// Option: the paths to the peer, each an [`ibv_path_data`](crate::ibv_path_data).
pub const RDMA_ROUTE: c_int = 4;
