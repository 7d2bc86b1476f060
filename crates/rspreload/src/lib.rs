//! `librspreload.so`: the C library's socket functions, for programs that know nothing of RDMA.
//!
//! The loader puts this library before the C library (`LD_PRELOAD`). When the program makes a stream socket of IPv4 or
//! IPv6, it gets an rsocket of the process's `librdmacm.so.1`. Every other descriptor goes to the C library unchanged.
//! If a socket cannot be an rsocket, or its peer does not listen by rsockets, it is the system's.
//!
//! The program holds a descriptor that stands for the rsocket, so that a system socket can take the rsocket's place.
//! Functions that wait for several descriptors pass all of them to librdmacm's `rpoll`.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod calls;
mod config;
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
