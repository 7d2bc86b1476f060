//! The ids of the connection manager in the timeline: a track for each, with a mark for each event.

use std::collections::HashMap;
use std::net::SocketAddr;

use transom_abi::RDMA_CM_EVENT_TIMEWAIT_EXIT;
use transom_system::trace::{Event, What};

use super::named;
use super::packets::{Argument, Flows, Packets, Title, Track};

/// The tracks of a process's ids.
#[derive(Debug)]
pub(super) struct Ids {
    process: Track,
    group: Option<Track>,
    tracks: HashMap<u32, Track>,
}

impl Ids {
    pub(super) fn new(process: Track) -> Self {
        Self { process, group: None, tracks: HashMap::new() }
    }

    /// The program asks for a connection, or an event has come.
    pub(super) fn tell(&mut self, packets: &mut Packets, event: &Event) {
        let track = self.track(packets, event.key);
        let flow = Some(event.detail).filter(|flow| *flow != 0);
        let (title, flows) = match event.what {
            What::Connects => ("rdma_connect", Flows { on: flow, end: None }),
            _ => (named::id_event(event.code), Flows { on: None, end: flow }),
        };
        packets.mark(track, event.time, &Title::Often(title.into()), flows, &arguments(event));
        let is_last = u32::from(event.code) == RDMA_CM_EVENT_TIMEWAIT_EXIT;
        if event.what == What::Managed && is_last {
            // A trace may go on for long.
            self.tracks.remove(&event.key);
        }
    }

    fn track(&mut self, packets: &mut Packets, id: u32) -> Track {
        if let Some(track) = self.tracks.get(&id) {
            return *track;
        }
        let process = self.process;
        let group = *self.group.get_or_insert_with(|| packets.below(process, "connections", 5));
        let track = packets.below(group, &format!("id {id:#x}"), 0);
        self.tracks.insert(id, track);
        track
    }
}

fn arguments(event: &Event) -> Vec<(&'static str, Argument)> {
    let mut arguments = Vec::new();
    let (own, port) = event.ports();
    if port != 0 {
        // A mapped IPv4 address is one of IPv4.
        let peer = SocketAddr::new(event.peer_address().to_canonical(), port);
        arguments.push(("peer", Argument::Text(peer.to_string())));
    }
    if own != 0 {
        arguments.push(("own port", Argument::Number(own.into())));
    }
    let numbers = [
        ("listening id", event.number as u32),
        ("queue pair", event.qp),
        ("queue pair of the peer", event.peer),
    ];
    let numbers = numbers.into_iter().filter(|(_, number)| *number != 0);
    arguments.extend(numbers.map(|(name, number)| (name, Argument::Hex(number.into()))));
    match event.more.cast_signed() {
        0 => {}
        errno @ ..0 => arguments.push(("errno", Argument::Number(errno.unsigned_abs().into()))),
        reason => arguments.push(("reason", Argument::Number(reason.unsigned_abs().into()))),
    }
    arguments
}
