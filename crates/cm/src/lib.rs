//! The connection manager, without I/O, threads or a clock.
//!
//! An [`Engine`] has the connection ids of one process. Calls of programs, messages and the time go in. Messages,
//! events and the next deadline come out. Its caller carries messages, waits for the deadline, passes events to
//! programs, and changes the states of queue pairs by the [`attributes`] that the engine gives.
//!
//! ```
//! use transom_cm::{Arrival, Config, Engine, Ports, Service};
//!
//! // The host's part: ports, and the routes from its addresses.
//! let mut host = Ports::new(["10.0.0.1".parse().unwrap()]);
//! let mut engine = Engine::new(Config::new(1, 0x5054_00ff_fe77_0065, 7));
//! let listener = engine.create(Service::TCP).unwrap();
//! engine.bind(listener, "0.0.0.0:7174".parse().unwrap(), &mut host).unwrap();
//! engine.listen(listener, 10, 0, &mut host).unwrap();
//!
//! let (now, arrival) = (0, Arrival {
//!     source: "10.0.0.2".parse().unwrap(),
//!     destination: "10.0.0.1".parse().unwrap(),
//! });
//! engine.handle(now, arrival, b"no message", &mut host);
//! while let Some(_datagram) = engine.poll_transmit() {}
//! while let Some(_event) = engine.poll_event() {}
//! assert_eq!(engine.poll_timeout(), None);
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`timing`] | timeouts and retries |
//! | [`refused`] | the reasons for refused calls |
//! | [`host`] | the engine's questions to the host: ports, routes; and a registry of ports |
//! | `cause` | the cause of a consumer's rejection |
//! | [`options`] | the options of an id |
//! | [`event`] | events |
//! | [`attributes`] | the attributes to set a queue pair to |
//! | `retransmission` | a message that is repeated until it is answered |
//! | `nodes` | the connections with other nodes, found by the peers' numbers |
//! | `timers` | the timers of ids |
//! | `secret` | unpredictable numbers: PSNs and ids |
//! | [`connection`] | a connection, from the REQ to the end of its time wait |
//! | [`datagram`] | the resolution of a datagram service |
//! | [`shared`] | the state that all ids share: tables, timers, numbers, outgoing messages |
//! | [`engine`] | the ids, the calls of programs, and messages of peers |
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod attributes;
mod cause;
pub mod connection;
pub mod datagram;
pub mod engine;
pub mod event;
pub mod host;
mod nodes;
pub mod options;
pub mod refused;
mod retransmission;
mod secret;
pub mod shared;
mod timers;
pub mod timing;

pub use attributes::{Attributes, QpState};
pub use cause::Cause;
pub use connection::{ConnectionState, Record};
pub use engine::{Accept, Answered, Connect, Engine, Handled, Unbound};
pub use event::{Event, Happened, Nobody};
pub use host::{Claim, Host, Ports, Route, is_any};
pub use options::{Kind, Options, Service};
pub use refused::Refused;
pub use retransmission::Unanswered;
pub use shared::{Arrival, Config, Transmit};
pub use timing::Timing;
