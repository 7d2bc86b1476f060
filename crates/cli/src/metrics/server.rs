//! Answers scrapes by HTTP, on an address of this host.

use super::exposition;
use super::seen::Seen;
use crate::failure::{Failure, Result};
use crate::layout;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use transom_ibverbs::Description;
use transom_system::registry::Registry;

/// How long a client may take, from when it is let in until it has the whole answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long this waits if no client can be let in, for example because no descriptor is left.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest request.
const LONGEST: u64 = 8 << 10;

/// A socket that listens.
pub(super) struct Server(TcpListener);

impl Server {
    /// Only on a loopback address: whoever reaches it can read the names of your programs.
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        if !address.ip().is_loopback() {
            return Err(Failure::with_status(
                2,
                format_args!("{address} is no loopback address; take 127.0.0.1 or [::1]"),
            ));
        }
        let listener = TcpListener::bind(address)
            .map_err(|error| Failure::new(format_args!("cannot listen at {address}: {error}")))?;
        Ok(Self(listener))
    }

    /// Answers one request after the other, for ever.
    pub(super) fn run(&self, registry: &Registry, devices: &[Description]) {
        for stream in self.0.incoming() {
            let answered = match stream {
                Ok(stream) => {
                    let client = Client { stream, end: Instant::now() + PATIENCE };
                    answer(client, registry, devices)
                }
                Err(error) => {
                    std::thread::sleep(PAUSE);
                    Err(error)
                }
            };
            if let Err(error) = answered {
                layout::warn(format_args!("a client was not answered: {error}"));
            }
        }
    }
}

/// A client, until its time is over. A client that sends or takes a byte now and then gets no more time for it.
struct Client {
    stream: TcpStream,
    end: Instant,
}

impl Client {
    /// The time that is left.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Client {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn answer(mut client: Client, registry: &Registry, devices: &[Description]) -> io::Result<()> {
    let mut lines = BufReader::new((&mut client).take(LONGEST)).lines();
    let request = lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
    let mut takes_open_metrics = false;
    // The headers, up to the empty line.
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        takes_open_metrics |= line.starts_with("accept:") && line.contains("openmetrics");
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => {
            let seen = Seen::now(registry, devices)
                .map_err(|failure| io::Error::other(failure.to_string()))?;
            let text = exposition::text(seen).map_err(io::Error::other)?;
            match takes_open_metrics {
                true => ("200 OK", exposition::OPEN_METRICS, text),
                false => ("200 OK", exposition::PLAIN, exposition::plain(&text)),
            }
        }
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let body = if method == "HEAD" { "" } else { &body };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    client.write_all(answer.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(patience: Duration) -> (TcpStream, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (stream, _) = listener.accept().expect("a client");
        (far, Client { stream, end: Instant::now() + patience })
    }

    #[test]
    fn a_byte_now_and_then_gets_a_client_no_more_time() {
        let (mut far, mut client) = client(Duration::from_millis(100));
        let sends = std::thread::spawn(move || {
            // Until the client is gone.
            while far.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let read = io::copy(&mut client, &mut io::sink()).expect_err("its time is over");
        let over = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(over.contains(&read.kind()), "{read}");
        drop(client);
        sends.join().expect("it ends");
    }
}
