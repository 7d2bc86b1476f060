//! A trace for programs: an object a line for each slice and for each mark. While it happens, that of a slice comes when
//! it ends. Of a whole timeline they are in order of time.

use serde_json::{Map, Value, json};

use super::pair;
use super::perfetto::TracePacket;
use super::shown::{Given, Reader, Shown};
use crate::failure::Result;
use crate::lines::{Exact, Lines, print};

pub(super) const FIELDS: &str = "\
With --json, each line is an object. It tells what a line of --text tells. Numbers are integers; what may
have 64 bits is a text of decimal digits: time_ns, took_ns, length, wr_id, address, base, offset. A field
without a value is null. What takes time is there when it has ended; --read gives all in order of time.
--limit is about the bytes of the timeline, and not of these lines. With a program, give --json a FILE, for
standard output is the program's:
  time_ns          when it began, in nanoseconds since 1970
  took_ns          how long it took; null for what happens at a moment
  pid              the process, null for what is about none
  process          the name of its program
  track            the names of its track, as in Perfetto: [\"QP 0x30a4f\", \"requests\"]
  qp               the queue pair that the track belongs to
  name             what it is: the operation, as READ; what it waits for; the sentence of a refusal
  arguments        what else there is to say, by names. Of a request:
    length           its bytes
    wr_id            its number, which the program has given it
    key, address     the memory that it names
    peer_qp          the queue pair at the other end
    status           how it ended, as IBV_WC_SUCCESS; or that this was not seen
                   of a receive: length, wr_id, status, and
    srq              the shared receive queue that it was posted to; on the track of that, qp
                   of a segment as it leaves: length, and
    offset           where it begins in its message
    message          the number of its message, or of its first packet
    attempt          how often it was sent before
    packet_count     in how many packets it went
                   of what is carried out for a peer: length, key, address, peer_qp (which asked for it),
                   and status if it was not taken
                   of a refusal: length, key, address, peer_qp (which asked for it), and
    operation        what was refused
    qp               by which queue pair
                   of a region or window: length, key, qp (of a type 2 window), and
    base             its first address
    access           what peers may do, a list
                   of a state of a queue pair: peer_qp
                   of an id of rdma_cm, what happens to it and rdma_connect:
    peer             the address and port at the other end
    local_port       its port here
    listening_id     of a CONNECT_REQUEST: the id that listens
    qp, peer_qp      the queue pairs that rdma_connect and the peer offer
    errno, code      why it came to nothing: the errno, or the peer's reason
                   of what --limit has left out:
    events           how many
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

/// The key of an argument, as other commands call the same.
fn key(name: &str) -> &str {
    match name {
        "bytes" => "length",
        "queue pair" => "qp",
        "to queue pair" | "by queue pair" | "queue pair of the peer" => "peer_qp",
        "shared queue" => "srq",
        "packets" => "packet_count",
        "rights" => "access",
        "own port" => "local_port",
        "listening id" => "listening_id",
        "reason" => "code",
        other => other,
    }
}

/// The value of an argument with this key.
fn value(key: &str, given: &Given) -> Value {
    let is_right = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_uppercase());
    match (key, given) {
        // They may have 64 bits.
        (
            "length" | "wr_id" | "address" | "base" | "offset",
            Given::Number(it) | Given::Hex(it),
        ) => {
            json!(Exact(*it))
        }
        (_, Given::Number(number) | Given::Hex(number)) => (*number).into(),
        ("access", Given::Text(all)) => all.split(" | ").filter(is_right).collect(),
        (_, Given::Text(word)) => word.as_str().into(),
    }
}

pub(super) fn line(shown: &Shown, time: u64) -> Value {
    let arguments = shown.arguments.iter().map(|(name, given)| {
        let key = key(name);
        (key.to_owned(), value(key, given))
    });
    // Numbers of 64 bits would be rounded by many a reader.
    let names = |flows: &[u64]| flows.iter().map(|it| format!("{it:016x}")).collect::<Vec<_>>();
    let (out, into) = &shown.flows;
    json!({
        "time_ns": Exact(time),
        "took_ns": shown.took.map(Exact),
        "pid": shown.process.as_ref().map(|(pid, _)| pid),
        "process": shown.process.as_ref().map(|(_, name)| name),
        "track": shown.track,
        "qp": shown.track.iter().find_map(|name| pair::number_in(name)),
        "name": shown.name,
        "arguments": arguments.collect::<Map<_, _>>(),
        "flows_out": names(out),
        "flows_in": names(into),
    })
}
