//! `librspreload.so`: the C library's functions of sockets, for programs that know nothing of RDMA.
//!
//! The loader puts this before the C library (`LD_PRELOAD`). A stream socket of IPv4 or IPv6 that the program
//! makes is an rsocket, by the `librdmacm.so.1` of the process; every other descriptor goes to the C library
//! as it is. A socket that cannot be one, or whose peer does not listen by rsockets, is the system's.
//!
//! The program has a descriptor that stands for the rsocket, so that another can take its place. Functions that
//! wait for several descriptors ask librdmacm's `rpoll` about all of them.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod calls;
mod descriptors;
mod epoll;
mod fallback;
mod fork;
mod masked;
mod next;
mod process;
mod rsockets;
mod sets;
mod table;
