//! Shared receive queues in the timeline: a track for each, with the receives that are posted to it and those that queue
//! pairs have taken from it.

use std::collections::HashMap;

use transom_system::trace::Event;

use super::packets::{Argument, Flows, Packets, Title, Track};

/// The tracks of a process's shared receive queues.
#[derive(Debug)]
pub(super) struct SharedQueues {
    process: Track,
    tracks: HashMap<u32, Track>,
}

impl SharedQueues {
    pub(super) fn new(process: Track) -> Self {
        Self { process, tracks: HashMap::new() }
    }

    /// A receive was posted to one.
    pub(super) fn posted(&mut self, packets: &mut Packets, event: &Event) {
        let track = self.track(packets, event.key);
        packets.mark(track, event.time, &title("posted"), Flows::default(), &receive(event));
    }

    /// A receive of one has completed, for a queue pair.
    pub(super) fn received(&mut self, packets: &mut Packets, event: &Event) {
        let track = self.track(packets, event.key);
        let mut arguments = receive(event);
        arguments.push(("queue pair", Argument::Hex(event.qp.into())));
        packets.mark(track, event.time, &title("completed"), Flows::default(), &arguments);
    }

    fn track(&mut self, packets: &mut Packets, number: u32) -> Track {
        let process = self.process;
        let made = || packets.below(process, &format!("SRQ {number:#x}"), 11);
        *self.tracks.entry(number).or_insert_with(made)
    }
}

/// The title of a mark about a receive.
pub(super) fn title(what: &str) -> Title {
    Title::Often(format!("receive {what}"))
}

/// Which receive it is.
pub(super) fn receive(event: &Event) -> Vec<(&'static str, Argument)> {
    vec![("bytes", Argument::Number(event.length)), ("wr_id", Argument::Number(event.number))]
}
