//! Connection managers that talk to each other, message by message.

mod backlog;
mod calls;
mod datagrams;
mod early;
mod establishment;
mod names;
mod network;
mod random;
mod refusals;
mod release;
mod retransmission;
mod undelivered;
