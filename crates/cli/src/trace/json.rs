//! A trace for programs: an object a line for each slice and for each mark. While it happens, that of a slice comes when
//! it ends. Of a whole timeline they are in order of time.

use serde_json::{Map, Value, json};

use super::pair;
use super::perfetto::TracePacket;
use super::shown::{Given, Reader, Shown};
use crate::failure::Result;
use crate::lines::{Exact, Lines, print};

pub(super) const FIELDS: &str = "\
With --json, each line is an object. It tells what a line of --text tells. Numbers are integers; time_ns, wr_id and
address are texts of decimal digits, because they may have 64 bits. A field without a value is null. What takes time is
there when it has ended; --read gives all in order of time. --limit is about the bytes of the timeline, and not of these lines. With a program, give --json
a FILE, for standard output is the program's:
  time_ns          when it began, in nanoseconds since 1970
  took_ns          how long it took; null for what happens at a moment
  pid              the process, null for what is about none
  process          the name of its program
  track            the names of its track, as in Perfetto: [\"QP 0x30a4f\", \"requests\"]
  queue_pair       the number of the queue pair that the track belongs to
  name             what it is: the operation, as READ; what it waits for; the sentence of a refusal
  arguments        what else there is to say, by names. Of a request:
    bytes              its bytes
    wr_id              its number, which the program has given it
    key, address       the memory that it names
    to_queue_pair      the queue pair at the other end
    status             how it ended, as IBV_WC_SUCCESS; or that this was not seen
                   of a receive: bytes, wr_id, status, and
    shared_queue       the shared receive queue that it was posted to; on the track of that, queue_pair
                   of a segment as it leaves: bytes, and
    offset             where it begins in its message
    message            the number of its message, or of its first packet
    attempt            how often it was sent before
    packets            in how many packets it went
                   of what is carried out for a peer: bytes, key, address, and
    by_queue_pair      the queue pair that asked for it
                   of a refusal: bytes, key, address, by_queue_pair, and
    operation          what was refused
    queue_pair         by which queue pair
                   of a region or window: bytes, key, address, queue_pair (of a type 2 window), and
    rights             what peers may do
                   of a state of a queue pair: to_queue_pair
                   of an id of rdma_cm, what happens to it and rdma_connect:
    peer               the address and port at the other end
    own_port           its port here
    listening_id       of a CONNECT_REQUEST: the id that listens
    queue_pair         the queue pair that rdma_connect offers
    queue_pair_of_the_peer  that which the peer offers
    errno, reason      why it came to nothing: the errno, or the peer's reason
                   of what --limit has left out:
    events             how many
  flows_out        names of arrows that begin here
  flows_in         names of arrows that end here: an access and its request have one in common

";

/// The lines, and what they were told so far.
pub(super) struct Json {
    reader: Reader,
    lines: Lines,
}

impl Json {
    pub(super) fn new(lines: Lines) -> Self {
        Self { reader: Reader::default(), lines }
    }

    /// Prints what packets tell.
    pub(super) fn print(&mut self, packets: &[TracePacket]) -> Result {
        for packet in packets {
            if let Some((_, Some(shown))) = self.reader.take(packet) {
                self.tell(&shown)?;
            }
        }
        Ok(())
    }

    /// Prints what the packets of a whole timeline tell.
    pub(super) fn print_whole(&mut self, packets: &[TracePacket]) -> Result {
        self.reader.in_order(packets).iter().try_for_each(|shown| self.tell(shown))
    }

    fn tell(&mut self, shown: &Shown) -> Result {
        let line = line(shown, self.reader.wall(shown.time));
        self.lines.write(|out| print(out, &line))
    }
}

pub(super) fn line(shown: &Shown, time: u64) -> Value {
    let arguments = shown.arguments.iter().map(|(name, value)| {
        let value = match value {
            Given::Number(number) | Given::Hex(number)
                if matches!(name.as_str(), "wr_id" | "address") =>
            {
                json!(Exact(*number))
            }
            Given::Number(number) | Given::Hex(number) => (*number).into(),
            Given::Text(word) => word.as_str().into(),
        };
        (name.replace(' ', "_"), value)
    });
    // Numbers of 64 bits would be rounded by many a reader.
    let names = |flows: &[u64]| flows.iter().map(|it| format!("{it:016x}")).collect::<Vec<_>>();
    let (out, into) = &shown.flows;
    json!({
        "time_ns": Exact(time),
        "took_ns": shown.took,
        "pid": shown.process.as_ref().map(|(pid, _)| pid),
        "process": shown.process.as_ref().map(|(_, name)| name),
        "track": shown.track,
        "queue_pair": shown.track.iter().find_map(|name| pair::number_in(name)),
        "name": shown.name,
        "arguments": arguments.collect::<Map<_, _>>(),
        "flows_out": names(out),
        "flows_in": names(into),
    })
}
