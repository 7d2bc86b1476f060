//! `echo`: UDP datagrams to and fro, with nothing between a program and its socket. The latency of a small WRITE across
//! a wire is compared with it.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

/// An answer that takes longer than this is lost.
const TIMEOUT: Duration = Duration::from_secs(5);
/// This many first exchanges do not count, because caches and clocks warm up.
const WARM_UP: usize = 100;

/// Sends datagrams to and fro.
#[derive(Parser)]
#[command(name = "echo")]
struct Arguments {
    /// The address and port to send to, or to answer at.
    address: SocketAddr,
    /// Send back what comes, until killed.
    #[arg(long)]
    serve: bool,
    /// Ask the socket again and again, and do not sleep.
    #[arg(long)]
    spin: bool,
    /// Bytes of a datagram.
    #[arg(long, default_value_t = 40)]
    size: u16,
    /// Bytes of a second one, no longer, that goes with each by the same system call, as a WRITE's
    /// acknowledgement goes with the next WRITE.
    #[arg(long, default_value_t = 0)]
    behind: u16,
    /// How many datagrams to send.
    #[arg(long, default_value_t = 2000)]
    count: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.serve { serve(&arguments) } else { ask(&arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo {}: {error}", arguments.address);
            ExitCode::FAILURE
        }
    }
}

/// Answers the peer that asks first.
fn serve(arguments: &Arguments) -> io::Result<()> {
    let socket = UdpSocket::bind(arguments.address)?;
    arguments.prepare(&socket)?;
    println!("ready");
    let mut datagrams = arguments.room();
    let (_, asker) = socket.peek_from(&mut datagrams)?;
    socket.connect(asker)?;
    socket.set_nonblocking(arguments.spin)?;
    loop {
        receive(&socket, &mut datagrams)?;
        socket.send(&datagrams)?;
    }
}

/// Prints half the median of the round trips, in microseconds.
fn ask(arguments: &Arguments) -> io::Result<()> {
    let any = if arguments.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    arguments.prepare(&socket)?;
    socket.connect(arguments.address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_nonblocking(arguments.spin)?;
    let (sent, mut received) = (vec![0xA5; arguments.room().len()], arguments.room());
    let mut took = Vec::with_capacity(arguments.count);
    for index in 0..arguments.count + WARM_UP {
        let start = Instant::now();
        socket.send(&sent)?;
        receive(&socket, &mut received)?;
        assert_eq!(received, sent, "other datagrams come back");
        if index >= WARM_UP {
            took.push(start.elapsed());
        }
    }
    took.sort_unstable();
    println!("{:.3}", took[took.len() / 2].as_secs_f64() * 1e6 / 2.0);
    Ok(())
}

impl Arguments {
    /// A buffer for what goes one way at once.
    fn room(&self) -> Vec<u8> {
        vec![0; usize::from(self.size) + usize::from(self.behind)]
    }

    /// Makes the kernel split a send into datagrams, and join datagrams that arrive together.
    fn prepare(&self, socket: &UdpSocket) -> io::Result<()> {
        if self.behind > 0 {
            set(socket, libc::UDP_SEGMENT, self.size.into())?;
            set(socket, libc::UDP_GRO, 1)?;
        }
        Ok(())
    }
}

/// Sets an option of UDP.
fn set(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and the kernel reads the value, which has that length.
    let done = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, value, length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the buffer is full: in the kernel, or polling if the socket does not block.
fn receive(socket: &UdpSocket, room: &mut [u8]) -> io::Result<()> {
    let start = Instant::now();
    let mut filled = 0;
    while filled < room.len() {
        match socket.recv(&mut room[filled..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < TIMEOUT => {}
            came => filled += came?,
        }
    }
    Ok(())
}
