//! `echo`: UDP datagrams there and back, with nothing between a program and its socket. It is what
//! the latency of a small WRITE across a wire is compared with.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

/// An answer that takes so long is lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first exchanges are not counted: caches and clocks are warming up.
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
    size: usize,
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

/// Answers whoever asked first.
fn serve(arguments: &Arguments) -> io::Result<()> {
    let socket = UdpSocket::bind(arguments.address)?;
    println!("ready");
    let mut datagram = [0; 0x10000];
    let (length, asker) = socket.recv_from(&mut datagram)?;
    socket.connect(asker)?;
    socket.send(&datagram[..length])?;
    socket.set_nonblocking(arguments.spin)?;
    loop {
        let length = receive(&socket, &mut datagram)?;
        socket.send(&datagram[..length])?;
    }
}

/// Prints half the median of the round trips, in microseconds.
fn ask(arguments: &Arguments) -> io::Result<()> {
    let any = if arguments.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(arguments.address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nonblocking(arguments.spin)?;
    let sent = vec![0xA5; arguments.size];
    let mut received = [0; 0x10000];
    let mut took = Vec::with_capacity(arguments.count);
    for index in 0..arguments.count + WARM_UP {
        let start = Instant::now();
        socket.send(&sent)?;
        let length = receive(&socket, &mut received)?;
        assert_eq!(received[..length], sent, "another datagram comes back");
        if index >= WARM_UP {
            took.push(start.elapsed());
        }
    }
    took.sort_unstable();
    println!("{:.3}", took[took.len() / 2].as_secs_f64() * 1e6 / 2.0);
    Ok(())
}

/// Waits for a datagram: in the kernel, or asking again and again if the socket does not block.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> io::Result<usize> {
    let start = Instant::now();
    loop {
        match socket.recv(datagram) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < PATIENCE => {}
            came => return came,
        }
    }
}
