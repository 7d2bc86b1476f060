//! The driving end during one operation: its queue pair, its memory, and its facts about the peer.

use std::ops::Range;

use transom::{
    Completion, Connected, Datagram, Destination, Error, Grant, MemoryRegion, Pages, Posted,
    QueuePair, RemoteSlice, Rights, Slice, Status,
};

use crate::end::{End, Failure, MEMORY, Queue, digest, pattern, read, text, wait_for};
use crate::talk::{Answer, Ask, Received, Service, Talk, WindowType};

/// Carries out an operation. The error says what is wrong.
pub(crate) type Act = fn(&mut Driver<'_>) -> Result<(), String>;

/// An operation, with its name in the table.
pub(crate) type Row = (Service, &'static str, Act);

/// The offset of operations in the peer's memory, so that there are bytes before them.
pub(crate) const AT: usize = 4096;

pub(crate) struct Driver<'a> {
    talk: &'a mut Talk,
    end: &'a End,
    service: Service,
    lossy: bool,
    queue: Queue,
    pub(crate) memory: MemoryRegion<Pages>,
    /// All of the peer's memory, through the region's own key.
    pub(crate) grant: Grant,
    /// The payload of the longest packet on the path to the peer, in bytes.
    pub(crate) mtu: usize,
    /// Whether the peer is the kernel's rxe, which deviates from some rules.
    pub(crate) peer_is_rxe: bool,
    peer: transom::Endpoint,
}

impl<'a> Driver<'a> {
    /// Opens connected queue pairs at both ends, and fills the peer's memory with pattern 0.
    pub(crate) fn open(
        end: &'a End,
        talk: &'a mut Talk,
        service: Service,
        lossy: bool,
    ) -> Result<Self, String> {
        let queue = end.queue_pair(service)?;
        let memory = end.memory()?;
        let Answer::Opened(peer, grant, device) = talk.ask(&Ask::Open(service))? else {
            return Err("an answer to something else".into());
        };
        let here = queue.endpoint();
        talk.ask(&Ask::Connect(here))?;
        talk.ask(&Ask::Fill(0))?;
        let queue = queue.connect(&peer)?;
        let mtu = here.mtu.min(peer.mtu).into();
        let peer_is_rxe = device.starts_with("rxe");
        Ok(Self { talk, end, service, lossy, queue, memory, grant, mtu, peer_is_rxe, peer })
    }

    /// Lets the peer close before this side, whatever the result of the operation is.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        self.ask(&Ask::Close)
    }

    pub(crate) fn qp(&self) -> QueuePair<Connected> {
        self.queue.connected().expect("the row is of a connected service").clone()
    }

    pub(crate) fn datagrams(&self) -> QueuePair<Datagram> {
        self.queue.datagram().expect("the row is of datagrams").clone()
    }

    pub(crate) fn destination(&self) -> Result<Destination, String> {
        self.end.destination(self.peer)
    }

    /// Lengths of messages at which errors are likely.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        let mtu = self.mtu;
        let mut lengths = vec![0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 64 << 10, 1 << 20];
        if self.service == Service::Unreliable {
            lengths.pop();
        }
        lengths
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> Slice {
        self.memory.slice(range).expect("operations stay within the memory")
    }

    /// A part of the peer's memory.
    pub(crate) fn remote(&self, range: Range<usize>) -> RemoteSlice {
        part(self.grant, range)
    }

    /// Fills this side's memory.
    pub(crate) fn fill(&self, seed: u8) {
        let filled = self.memory.write_at(0, &pattern(seed, 0..MEMORY));
        filled.expect("the pattern is as long as the memory");
    }

    /// Sends a request whose answer is `Done`.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<(), String> {
        self.talk.ask(ask).map(drop)
    }

    pub(crate) fn received(&mut self) -> Result<Received, String> {
        self.hear_received(&Ask::Received)
    }

    /// Sends a request whose answer is the result of a receive.
    pub(crate) fn hear_received(&mut self, ask: &Ask) -> Result<Received, String> {
        match self.talk.ask(ask)? {
            Answer::Received(received) => Ok(received),
            other => Err(format!("{other:?} is not what was received")),
        }
    }

    /// Makes the peer bind a window.
    pub(crate) fn bind(
        &mut self,
        window_type: WindowType,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<Grant, String> {
        match self.talk.ask(&Ask::Bind(window_type, range, rights))? {
            Answer::Granted(grant) => Ok(grant),
            other => Err(format!("{other:?} is no grant")),
        }
    }

    /// Checks that the peer's memory has these bytes there, and the fill pattern around them.
    pub(crate) fn peer_has(&mut self, at: usize, bytes: &[u8], seed: u8) -> Result<(), String> {
        let end = at + bytes.len();
        for (what, range, expected) in [
            ("before", 0..at, pattern(seed, 0..at)),
            ("in", at..end, bytes.to_vec()),
            ("behind", end..MEMORY, pattern(seed, end..MEMORY)),
        ] {
            let Answer::Digest(there) = self.talk.ask(&Ask::Digest(range))? else {
                return Err("an answer to something else".into());
            };
            if there != digest(&expected) {
                return Err(format!("wrong bytes {what} the peer's {} bytes", bytes.len()));
            }
        }
        Ok(())
    }

    /// Checks that this side's memory has these bytes there.
    pub(crate) fn here_is(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let same = read(&self.memory, at..at + bytes.len())? == bytes;
        if same { Ok(()) } else { Err(format!("wrong bytes in the {} that came", bytes.len())) }
    }

    /// Checks that a request is refused, and that the queue pair is then in error. If the refusal is lost, no other
    /// message repeats it (rule RA-55).
    pub(crate) fn refused(
        &self,
        posted: transom::Result<Posted>,
        expected: Status,
    ) -> Result<(), String> {
        match wait_for(posted) {
            Err(Failure::Error(Error::Work(error)))
                if error.status == expected
                    || self.lossy && error.status == Status::RetryExceeded =>
            {
                let failed = self.qp().has_failed().map_err(text)?;
                if failed { Ok(()) } else { Err("the queue pair is not in error".into()) }
            }
            Err(other) => Err(format!("not {expected:?} but: {other}")),
            Ok(_) => Err(format!("not {expected:?} but success")),
        }
    }
}

/// A part of the granted memory.
pub(crate) fn part(grant: Grant, range: Range<usize>) -> RemoteSlice {
    let range = range.start as u64..range.end as u64;
    grant.slice(range).expect("operations stay within the grant")
}

/// Checks a value.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    is: T,
    should: T,
) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what} is {is:?} instead of {should:?}")) }
}

/// Adds the length of a request to its error.
pub(crate) fn of_length<T>(length: usize, outcome: Result<T, String>) -> Result<T, String> {
    outcome.map_err(|problem| format!("{length} bytes: {problem}"))
}

/// Checks the length that a completion reports.
pub(crate) fn came(completion: &Completion, length: usize) -> Result<(), String> {
    same("the length", completion.length(), length)
}
