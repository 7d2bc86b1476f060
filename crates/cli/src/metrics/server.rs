//! Answers scrapes by HTTP, on an address of this host.

use super::{Source, exposition};
use crate::failure::{Failure, Result};
use crate::layout;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take, from when it is let in until it has the whole answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long this waits if no client can be let in, for example because no descriptor is left.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest request.
const LONGEST: u64 = 8 << 10;
/// How many clients there are at once. One more takes the place of the one that has been silent for longest.
const MOST: usize = 8;

/// The page at the root, as other exporters have one.
const ROOT: &str = "<title>transom metrics</title><a href=\"/metrics\">Metrics</a>\n";

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
        let failure = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => Failure::new(format_args!(
                "cannot listen at {address}: another program has this port; take another one"
            )),
            _ => Failure::new(format_args!("cannot listen at {address}: {error}")),
        };
        let listener = TcpListener::bind(address).map_err(failure)?;
        // With port 0 the system has chosen one.
        let address = listener.local_addr().map_err(failure)?;
        // If standard error cannot be written, the answers are there all the same.
        let _ = layout::stderr()
            .text(format_args!("transom metrics: answers at http://{address}/metrics"));
        Ok(Self(listener))
    }

    /// Answers requests for ever, each client in a thread of its own: one that says nothing keeps nobody waiting.
    pub(super) fn run(&self, source: &Arc<Source>) {
        let (clients, mut number) = (Arc::new(Clients::default()), 0);
        for stream in self.0.incoming() {
            number += 1;
            let begun = stream.and_then(|stream| clients.let_in(number, stream, source));
            if let Err(error) = begun {
                not_answered(&error);
                thread::sleep(PAUSE);
            }
        }
    }
}

fn not_answered(error: &io::Error) {
    layout::warn(format_args!("a client was not answered: {error}"));
}

/// The clients that are there, by number, the oldest first.
#[derive(Default)]
struct Clients(Mutex<BTreeMap<u64, Known>>);

/// A client, as the others know it.
struct Known {
    stream: TcpStream,
    /// Its request has not come yet.
    is_silent: bool,
}

impl Clients {
    /// Begins to answer one.
    fn let_in(
        self: &Arc<Self>,
        number: u64,
        stream: TcpStream,
        source: &Arc<Source>,
    ) -> io::Result<()> {
        self.enter(number, stream.try_clone()?);
        let client = Client { stream, end: Instant::now() + PATIENCE };
        let (clients, source) = (self.clone(), source.clone());
        let answers = move || {
            let answered = answer(client, &source, || clients.has_asked(number));
            clients.those().remove(&number);
            if let Err(error) = answered {
                not_answered(&error);
            }
        };
        let begun = thread::Builder::new().spawn(answers);
        begun.map(drop).inspect_err(|_| drop(self.those().remove(&number)))
    }

    /// Takes one in. If there are too many, another one goes.
    fn enter(&self, number: u64, stream: TcpStream) {
        let mut those = self.those();
        if those.len() >= MOST {
            let silent = those.iter().find(|(_, client)| client.is_silent);
            let goes = silent.or_else(|| those.iter().next()).map(|(number, _)| *number);
            if let Some(client) = goes.and_then(|number| those.remove(&number)) {
                // Its thread finds it ended. If it has gone itself, that does no harm.
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
        those.insert(number, Known { stream, is_silent: true });
    }

    /// The request of one has come.
    fn has_asked(&self, number: u64) {
        if let Some(client) = self.those().get_mut(&number) {
            client.is_silent = false;
        }
    }

    fn those(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Answers a client. Calls `asked` when its request has come.
fn answer(mut client: Client, source: &Source, asked: impl FnOnce()) -> io::Result<()> {
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
    asked();
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => {
            let text = source.text().map_err(|failure| io::Error::other(failure.to_string()))?;
            match takes_open_metrics {
                true => ("200 OK", exposition::OPEN_METRICS, text),
                false => ("200 OK", exposition::PLAIN, exposition::plain(&text)),
            }
        }
        ("GET" | "HEAD", "/") => ("200 OK", "text/html", ROOT.to_owned()),
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
        let sends = thread::spawn(move || {
            // Until the client is gone.
            while far.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let read = io::copy(&mut client, &mut io::sink()).expect_err("its time is over");
        let over = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(over.contains(&read.kind()), "{read}");
        drop(client);
        sends.join().expect("it ends");
    }
}
