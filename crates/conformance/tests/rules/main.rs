//! The tests of the rules, in the order of `spec/rules.md`: one program, for so many would take minutes
//! to link.
//!
//! Tests share its process, so each closes the devices it opens, and what concerns the whole process
//! (its limits, signals, environment, forks, the UDP port) is tested in one of its own:
//! [`transom_conformance::processes`].

#[used]
#[unsafe(link_section = ".init_array")]
static LEAVE_PORT_OF_OTHERS: extern "C" fn() = transom_conformance::port_of_others::leave;

/// A. Protection domains and memory regions.
mod regions {
    mod deregister;
    mod deregister_under_load;
    mod device_memory;
    mod dmabuf;
    mod domains;
    mod extended;
    mod imports;
    mod in_use;
    mod local_access;
    mod local_pieces;
    mod null_region;
    mod on_demand;
    mod parent_domains;
    mod registration;
    mod reregister;
    mod shared;
}

/// B. Memory windows: allocation, deallocation, keys, states.
mod windows {
    mod allocation;
    mod keys;
    mod model;
    mod revocation;
}

/// C. Type 1 windows (`ibv_bind_mw`).
mod type1_windows {
    mod completion;
    mod immediate;
    mod success;
}

/// D. Type 2 windows: bind, local invalidate, send with invalidate.
mod type2_windows {
    mod bind;
    mod kinds;
    mod local_invalidate;
    mod race;
    mod revocation_races;
    mod rights;
    mod send_with_invalidate;
}

/// E. Remote access checks in the responder.
mod remote_access {
    mod atomic_write;
    mod atomics;
    mod bounds;
    mod checks;
    mod errors;
    mod flush;
    mod flush_refused;
    mod grid;
    mod links;
    mod violations;
}

/// F. Ordering.
mod ordering {
    mod litmus;
    mod reached;
    mod requests;
    mod stress;
    mod windows;
}

/// G.1 Create and destroy.
mod create_destroy {
    mod counts;
    mod device_queries;
    mod limits;
    mod null_pointers;
    mod objects;
    mod refused_calls;
}

/// G.2 Posting.
mod posting {
    mod extended;
    mod extended_datagrams;
    mod extended_refused;
    mod places;
    mod refused;
    mod requests;
}

/// G.3 Queue pair states.
mod states {
    mod attributes;
    mod connecting;
    mod traffic;
    mod transitions;
}

/// G.4 RNR, retries, limits.
mod retries;

/// G.5 Completion queues and their events.
mod completions {
    mod events;
    mod extended;
    mod moderation;
    mod queues;
}

/// G.5 Shared receive queues, and what is built on them.
mod shared_receives {
    mod last_wqe;
    mod limit;
    mod queues;
    mod races;
    mod rendezvous;
    mod tag_matching;
    mod xrc;
    mod xrc_shared_domain;
}

/// G.6 Work completion statuses.
mod statuses;

/// G.7 UD and UC.
mod unreliable {
    mod address_handles;
    mod connected;
    mod datagrams;
    mod multicast;
}

/// G.8 Asynchronous events.
mod async_events;

/// G.9 Completion counters.
mod completion_counters;

/// G.10 Explanations.
mod explained {
    mod busy;
    mod commands;
    mod hint;
    mod keys;
    mod statuses;
    mod verbs;
    mod waits;
    mod words;
    mod work;
}

/// H. RoCEv2 wire. What a queue pair makes of packets is tested by `transom-device`.
mod wire {
    mod acknowledgements;
    mod addresses;
    mod capture;
    mod congestion;
    mod faults;
    mod forged_packets;
    mod packet_counters;
    mod path_mtu;
}

/// H.7 Connections, by the commands of the connection manager's file.
mod connections {
    mod changes;
    mod dissected;
    mod library;
    mod many;
    mod one_process;
    mod processes;
    mod refused;
    pub(crate) mod sockets;
    mod why;
}

/// M. Seeing it at work: counters, and the tools that read them.
mod seen {
    mod anomalies;
    mod counters;
    mod events;
    pub(crate) mod exporters;
    mod losing;
    mod metrics;
    mod names;
    mod packets;
    mod probes;
    mod processes;
    mod resources;
    mod roles;
    mod top;
    mod trace;
    mod vocabulary;
}

/// Many processes and threads, and what the system may do to them.
mod processes {
    mod asleep;
    mod atomics_in_turn;
    mod descriptors;
    mod deserted;
    mod endless;
    mod first_thread;
    mod forbidden_copy;
    mod fork;
    mod forks_meanwhile;
    mod full_disk;
    mod garbage;
    mod idle;
    mod killed;
    mod many;
    mod registry;
    mod shared_memory;
    mod stopped;
    mod threads;
    mod threads_ending;
    mod want_of_memory;
    mod watcher;
    mod xrc_revoked;
}

/// K. What `transom check` finds.
mod checked {
    mod bugs;
    mod claims;
    mod command;
    mod connections;
    mod events;
    mod forks;
    mod keys;
    mod memory;
    mod races;
    mod sanitizers;
    mod sockets;
    mod teardown;
}

/// L. What `transom rehearse` provokes.
mod rehearsed {
    mod adapters;
    mod bugs;
    mod command;
    mod connections;
    mod endings;
    mod events;
    mod explained;
    mod failures;
    mod gone;
    mod judged;
    mod losses;
    mod makes;
    mod medians;
    mod mercies;
    mod passing;
    mod placement;
    mod receives;
    mod rules;
    mod unseen;
}

/// N. What `transom exposure` accounts for.
mod exposed {
    mod command;
    mod example;
    mod regions;
    mod room;
    mod windows;
}

/// What C programs find.
mod programs {
    mod c;
    mod live;
    mod looking_around;
    mod several_devices;
    mod symbols;
}

/// Every rule is tested, or the table says why not.
mod coverage;

/// What the documents say: of files, of each other, and of what to type.
mod documents {
    mod commands;
    mod counts;
    mod design;
    mod files;
    mod first;
    mod links;
    mod recipes;
    mod symptoms;
}

/// Which modules and layers of the workspace import which.
mod modules;

/// What of the workspace others get from crates.io.
mod publication;
