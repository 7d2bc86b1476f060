//! One end of a talk between two hosts over RDMA, with the Rust API. `cargo xtask programs rxe` runs it on both hosts.
//! One end serves. The other carries out every operation and prints its result.

mod connected;
mod datagrams;
mod driver;
mod end;
mod meetings;
mod server;
mod talk;
mod windows;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::json;

use driver::Driver;
use end::End;
use meetings::Meeting;
use talk::{Service, Talk};

/// Talk RDMA with another host, in all its operations.
#[derive(Parser)]
#[command(name = "interop")]
struct Arguments {
    /// Use the system's libibverbs instead of the software device.
    #[arg(long, global = true)]
    system: bool,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answer one peer
    Serve {
        /// The address of this host, and so of its device
        address: IpAddr,
    },
    /// Go through the operations with a peer that serves, and print a line of JSON for each
    Drive {
        /// The address of this host, and so of its device
        address: IpAddr,
        /// The address of the peer
        peer: IpAddr,
        /// The network between may lose anything: leave out the services that do not make it good
        #[arg(long)]
        lossy: bool,
    },
    /// Answer those who ask for connections by the connection manager
    Listen {
        /// The address of this host, and so of its device
        address: IpAddr,
        port: u16,
    },
    /// Ask for connections, and print a line of JSON for each
    Ask {
        /// The address of this host, and so of its device
        address: IpAddr,
        /// The address of the peer
        peer: IpAddr,
        port: u16,
        /// What is to become of them
        meetings: Vec<Meeting>,
    },
}

/// The port that a serving peer listens on.
const PORT: u16 = 18_515;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("interop: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    match &arguments.role {
        Role::Listen { address, port } => {
            let end = End::new(arguments.system, *address)?;
            meetings::listen(&end, SocketAddr::new(*address, *port))
        }
        Role::Ask { address, peer, port, meetings } => {
            let end = End::new(arguments.system, *address)?;
            for meeting in meetings {
                let outcome = meetings::ask(&end, SocketAddr::new(*peer, *port), *meeting);
                let operation = meetings::name(*meeting);
                println!("{}", json!({ "operation": operation, "problem": outcome.err() }));
            }
            Ok(())
        }
        Role::Serve { address } => {
            let address = *address;
            let end = End::new(arguments.system, address)?;
            let listener = TcpListener::bind((address, PORT)).map_err(|e| e.to_string())?;
            println!("ready");
            let (stream, _) = listener.accept().map_err(|e| e.to_string())?;
            server::serve(&end, Talk::new(stream)?)
        }
        Role::Drive { address, peer, lossy } => {
            let (address, peer, lossy) = (*address, *peer, *lossy);
            let end = End::new(arguments.system, address)?;
            let stream = TcpStream::connect((peer, PORT)).map_err(|e| format!("{peer}: {e}"))?;
            drive(&end, &mut Talk::new(stream)?, lossy);
            Ok(())
        }
    }
}

/// Carries out all operations, each on queue pairs of its own.
fn drive(end: &End, talk: &mut Talk, lossy: bool) {
    let tables = [connected::ROWS, windows::ROWS, datagrams::ROWS];
    let all = tables.into_iter().flatten();
    for (service, operation, act) in all.filter(|row| !lossy || row.0 == Service::Reliable) {
        let outcome = Driver::open(end, talk, *service, lossy).and_then(|mut driver| {
            let outcome = act(&mut driver);
            let closed = driver.close();
            outcome.and(closed)
        });
        println!("{}", json!({ "operation": operation, "problem": outcome.err() }));
    }
}
