//! The talk between the ends over TCP: a line of JSON for each request and for each answer.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use transom::{Endpoint, Grant, Rights};

/// Longer than any step takes, including retries.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// The service of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Service {
    Reliable,
    Unreliable,
    Datagram,
}

/// The type of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WindowType {
    One,
    Two,
}

/// A request of the driving end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Open a queue pair, and memory that its peer may use in all ways: `Opened`.
    Open(Service),
    /// Connect the queue pair: `Done`.
    Connect(Endpoint),
    /// Fill the memory with the pattern of this seed: `Done`.
    Fill(u8),
    /// Post a receive into the memory: `Done`.
    Receive(Range<usize>),
    /// Wait for the oldest receive: `Received`.
    Received,
    /// The digest of a part of the memory: `Digest`.
    Digest(Range<usize>),
    /// Bind a window to a part of the memory: `Granted`.
    Bind(WindowType, Range<usize>, Rights),
    /// Invalidate the window: `Done`.
    Invalidate,
    /// Post a receive of a datagram: `Done`.
    ReceiveDatagram,
    /// Wait for the datagram and send it back to its sender: `Received`.
    Echo,
    /// Drop window, queue pair and memory: `Done`.
    Close,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    /// The endpoint of the queue pair, the grant of the memory, and the name of the device.
    Opened(Endpoint, Grant, String),
    Granted(Grant),
    Received(Received),
    Digest(u64),
    /// The request failed.
    Failed(String),
}

/// The result of a receive.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) length: usize,
    pub(crate) immediate: Option<u32>,
    /// The key that the message invalidated.
    pub(crate) invalidated: Option<u32>,
}

/// The connection between the ends.
pub(crate) struct Talk {
    stream: BufReader<TcpStream>,
}

impl Talk {
    pub(crate) fn new(stream: TcpStream) -> Result<Self, String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        // The peer waits at most `TIMEOUT` for each of the few things that one request needs.
        stream.set_read_timeout(Some(TIMEOUT * 4)).map_err(|error| error.to_string())?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn tell<T: Serialize>(&mut self, value: &T) -> Result<(), String> {
        let mut line = serde_json::to_vec(value).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|error| format!("the peer: {error}"))
    }

    /// The peer's next line. `None` if it has gone.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the peer does not answer: {error}")),
        }
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<Answer, String> {
        self.tell(ask)?;
        match self.hear()?.ok_or("the peer has gone")? {
            Answer::Failed(problem) => Err(format!("the peer, asked for {ask:?}: {problem}")),
            answer => Ok(answer),
        }
    }
}
