//! `forge`: sends packets that every device must drop, as fast as it can and for a limited time, to show that they
//! change nothing and that honest traffic goes on.
//!
//! It sends nothing that looks exactly like the peer's own packets. No device could tell a packet with the peer's
//! address, the right queue pair and a right ICRC from an honest one.

mod packets;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use transom_wire::icrc::Path;
use transom_wire::packet::PORT;

use packets::Forger;

/// The source port of the forged packets.
const SOURCE_PORT: u16 = 0xC0DE;
/// How many packets are sent between two looks at the clock.
const BURST: u32 = 64;

/// Sends packets to a device that it must drop.
#[derive(Parser)]
#[command(name = "forge")]
struct Arguments {
    /// The device's address.
    to: IpAddr,
    /// An address of ours that the device has a connection with; somebody else's, really.
    #[arg(long)]
    peer: IpAddr,
    /// Our own address.
    #[arg(long)]
    own: IpAddr,
    /// A queue pair of the device that is connected with the peer.
    #[arg(long, default_value_t = 0)]
    qp: u32,
    /// The port to send to: another one than the device's is for comparison.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// How long to send, unless the standard input ends before.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// What the packets are made of.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match send(&arguments) {
        Ok(sent) => {
            println!("{sent} packets");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("forge {}: {error}", arguments.to);
            ExitCode::FAILURE
        }
    }
}

/// Sends until the time is over. Returns how many packets.
fn send(arguments: &Arguments) -> io::Result<u64> {
    let from = |address: IpAddr| -> io::Result<(UdpSocket, Path)> {
        let socket = UdpSocket::bind((address, SOURCE_PORT))?;
        socket.connect(SocketAddr::new(arguments.to, arguments.port))?;
        let path = Path::new(address, SOURCE_PORT, arguments.to);
        Ok((socket, path.ok_or(ErrorKind::InvalidInput)?))
    };
    let (peer, peer_path) = from(arguments.peer)?;
    let (own, own_path) = from(arguments.own)?;
    let mut forger = Forger::new(arguments.seed, arguments.qp, peer_path, own_path);
    let (start, time) = (Instant::now(), Duration::from_secs_f64(arguments.seconds));
    let is_told = when_input_ends();
    println!("it begins");
    let mut sent = 0;
    while start.elapsed() < time && !is_told.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            let (as_peer, packet) = forger.next();
            let socket = if as_peer { &peer } else { &own };
            match socket.send(packet) {
                Ok(_) => sent += 1,
                // The kernel reports the fate of an earlier packet, or has no room.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(sent)
}

/// Becomes true when the standard input ends.
fn when_input_ends() -> Arc<AtomicBool> {
    let ending = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ending);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        ended.store(true, Ordering::Relaxed);
    });
    ending
}

fn is_passing(error: &io::Error) -> bool {
    let full = error.raw_os_error() == Some(libc::ENOBUFS);
    full || matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock)
}
