//! `exchange`: two processes that SEND, WRITE, READ and change each other's memory atomically, and check every byte and
//! every word. Both ends do the same at the same time, in rounds.
//!
//! The content of a round depends only on the seed, the round and the end, so each end knows what it must find. If
//! anything is lost, repeated or misplaced, a byte is wrong, a guard around it has changed, or a sum is wrong.

mod connection;
mod content;
mod meeting;
mod memory;
mod round;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use connection::Connection;
use meeting::Meeting;
use round::Rounds;

/// Exchanges data with another process over RC, and checks all of it.
#[derive(Parser)]
#[command(name = "exchange")]
struct Arguments {
    /// Where the other end listens; without it, this one does.
    address: Option<String>,
    /// The TCP port to meet on.
    #[arg(short, default_value_t = 18516)]
    port: u16,
    /// The index of the GID to use.
    #[arg(short, default_value_t = 0)]
    gid: u8,
    /// Bytes of data in a packet: 256, 512, 1024, 2048 or 4096.
    #[arg(short, default_value_t = 1024)]
    mtu: u32,
    /// How many rounds; without it, until the client's standard input ends.
    #[arg(short, long)]
    rounds: Option<u32>,
    /// Bytes of the largest WRITE, READ and SEND.
    #[arg(short, long, default_value_t = 200_000)]
    largest: usize,
    /// How long to wait for an acknowledgement: 4.096 us doubled so many times.
    #[arg(short, long, default_value_t = 14)]
    timeout: u8,
    /// What the content is made of; the client's counts.
    #[arg(short, long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("exchange: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<String, String> {
    let mut meeting = Meeting::new(arguments.address.as_deref(), arguments.port)?;
    let seed = meeting.agree_on(arguments.seed)?;
    let largest = meeting.agree_on(arguments.largest as u64)? as usize;
    let connection =
        Connection::new(&mut meeting, arguments.gid, arguments.mtu, arguments.timeout)?;
    println!("queue pair {:#x}", connection.number());
    let ending = ending(arguments, meeting.is_client());
    let mut rounds = Rounds::new(connection, meeting, seed, largest)?;
    rounds.run(|round| ending.load(Ordering::Relaxed) || Some(round + 1) == arguments.rounds)?;
    rounds.finish()
}

/// Becomes true when the client's standard input ends, if that ends the rounds.
fn ending(arguments: &Arguments, is_client: bool) -> Arc<AtomicBool> {
    let ending = Arc::new(AtomicBool::new(false));
    if is_client && arguments.rounds.is_none() {
        let ended = Arc::clone(&ending);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ended.store(true, Ordering::Relaxed);
        });
    }
    ending
}
