//! A TCP connection by which the two ends find each other and exchange numbers.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// How long the other end may be held up before this one gives up.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The TCP connection to the other end. It closes when the process at the other end is gone.
#[derive(Debug)]
pub(crate) struct Meeting {
    stream: TcpStream,
    is_client: bool,
}

impl Meeting {
    /// Connects to an address, or waits for a connection.
    pub(crate) fn new(address: Option<&str>, port: u16) -> Result<Self, String> {
        let is_client = address.is_some();
        let stream = match address {
            Some(address) => TcpStream::connect((address, port)),
            None => TcpListener::bind(("::", port))
                .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
                .and_then(|listener| Ok(listener.accept()?.0)),
        };
        let failed = |error| format!("meeting on port {port}: {error}");
        let stream = stream.map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self { stream, is_client })
    }

    /// Whether this end has called the other.
    pub(crate) fn is_client(&self) -> bool {
        self.is_client
    }

    /// Sends some numbers to the other end, and receives as many.
    pub(crate) fn swap<const N: usize>(&mut self, ours: [u64; N]) -> Result<[u64; N], String> {
        let failed = |error| format!("the other end: {error}");
        let bytes: Vec<u8> = ours.iter().flat_map(|number| number.to_be_bytes()).collect();
        self.stream.write_all(&bytes).map_err(failed)?;
        let mut theirs = [0; N];
        for number in &mut theirs {
            let mut bytes = [0; 8];
            self.stream.read_exact(&mut bytes).map_err(failed)?;
            *number = u64::from_be_bytes(bytes);
        }
        Ok(theirs)
    }

    /// The client's number.
    pub(crate) fn agree_on(&mut self, ours: u64) -> Result<u64, String> {
        let [theirs] = self.swap([ours])?;
        Ok(if self.is_client { ours } else { theirs })
    }

    /// Whether the process at the other end is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket can be told not to block");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket can be told to block");
        match peeked {
            Ok(length) => length == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Readable when the other end has sent something or is gone.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}
