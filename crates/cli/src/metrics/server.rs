//! Answers scrapes by HTTP, on an address of this host.

use super::exposition;
use super::seen::Seen;
use crate::failure::{Failure, Result};
use crate::layout;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use transom_ibverbs::DeviceName;
use transom_system::registry::Registry;

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(5);
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
    pub(super) fn run(&self, registry: &Registry, name: &DeviceName) {
        for client in self.0.incoming().flatten() {
            if let Err(error) = answer(client, registry, name) {
                layout::warn(format_args!("a client was not answered: {error}"));
            }
        }
    }
}

fn answer(client: TcpStream, registry: &Registry, name: &DeviceName) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new((&client).take(LONGEST)).lines();
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
            let seen = Seen::now(registry, name)
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
    write!(
        &client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}
