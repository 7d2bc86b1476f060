//! `rsocket(7)`, as programs of C, Debian's own tools and programs of ordinary sockets use it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::{RDMACM, compile, run, run_as_nobody};
use transom_conformance::harness::{Link, take_turn};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, library, program, tool};

const LIMIT: Duration = Duration::from_secs(120);
/// What the C program shows.
pub(crate) const BEHAVIOURS: usize = 33;
/// What the one of ordinary sockets shows.
const PLAIN_BEHAVIOURS: usize = 16;

fn our_libraries() -> &'static Path {
    library(env!("CARGO_TARGET_TMPDIR"))
}

/// What it shows, the program says itself, with the rules above each part.
#[test]
fn a_c_program_has_sockets() {
    let scratch = Scratch::new("sockets");
    let program = compile(&scratch, "sockets.c", "sockets", RDMACM);
    take_turn(Link::Wire);
    run(Command::new(&program).env("LD_LIBRARY_PATH", our_libraries()), BEHAVIOURS);
    let mut by_packets = Command::new(&program);
    by_packets.env("TRANSOM_LINK", "wire").env("LD_LIBRARY_PATH", our_libraries());
    run(&mut by_packets, BEHAVIOURS);
}

#[test]
fn an_ordinary_user_has_sockets_as_well() {
    let scratch = Scratch::new("sockets-unprivileged");
    let program = compile(&scratch, "sockets.c", "sockets", RDMACM);
    run_as_nobody(&scratch, &program, our_libraries(), BEHAVIOURS);
}

/// A server and a client of ordinary sockets: the server tells its port, the client checks every byte. Where
/// the server is one of the system's, so is the client's connection.
const PLAIN: &str = r#"
import os, select, socket, sys, threading
data = bytes(i * 7 % 251 for i in range(1000)) * 2000
def serve():
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    with connection:
        copy = os.dup(connection.fileno())
        received = b""
        while chunk := connection.recv(100000):
            received += chunk
        assert received == data, len(received)
        os.close(copy)
        with connection.makefile("wb") as file:
            file.write(received[::-1])
def connect(port):
    client = socket.create_connection(("127.0.0.1", port))
    with client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while True:
            readable, _, _ = select.select([client], [], [], 60)
            assert readable
            chunk = client.recv(1 << 20)
            if not chunk:
                break
            received += chunk
        assert received == data[::-1], len(received)
serve() if sys.argv[1] == "serve" else connect(int(sys.argv[2]))
"#;

fn python(words: &[&str], preloaded: bool) -> Command {
    let mut command = Command::new(program("python3", "python3"));
    command.args(["-c", PLAIN]).args(words).env("LD_LIBRARY_PATH", our_libraries());
    if preloaded {
        command.env("LD_PRELOAD", our_libraries().join("librspreload.so"));
    }
    command
}

/// Rules: CM-65
#[test]
fn a_program_of_ordinary_sockets_has_rsockets_where_both_ends_have() {
    take_turn(Link::Wire);
    for (server, client, meets) in [(true, true, true), (false, true, true), (true, false, false)] {
        let mut serving = Running::start(&mut python(&["serve"], server));
        let port = serving.line(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
        let met = Running::start(&mut python(&["connect", port.trim()], client)).success(LIMIT);
        assert_eq!(met.is_ok(), meets, "server {server}, client {client}: {met:?}");
        if meets {
            serving.success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }
}

/// Many clients and their server in one loop, which waits by `epoll`.
const EVENT_LOOP: &str = r#"
import asyncio, os
async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()
async def ask(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for i in range(50):
        writer.write(b"from %d: %d\n" % (number, i))
        await writer.drain()
        assert await reader.readline() == b"FROM %d: %d\n" % (number, i)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    # It is no socket of the system's.
    listener = server.sockets[0]
    assert "eventpoll" in os.readlink(f"/proc/self/fd/{listener.fileno()}")
    port = listener.getsockname()[1]
    await asyncio.wait_for(asyncio.gather(*[ask(port, i) for i in range(10)]), 60)
asyncio.run(main())
"#;

/// Rules: CM-65
#[test]
fn an_event_loop_has_rsockets() {
    take_turn(Link::Wire);
    let mut command = Command::new(program("python3", "python3"));
    command.args(["-c", EVENT_LOOP]).env("LD_LIBRARY_PATH", our_libraries());
    command.env("LD_PRELOAD", our_libraries().join("librspreload.so"));
    Running::start(&mut command).success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
}

/// Rules: CM-65
#[test]
fn the_variables_of_rdma_core_set_the_sizes_of_queues() {
    const ASKS: &str = r#"
import socket
sizes = [socket.socket().getsockopt(0x10000, option) for option in range(3)]
assert sizes == [100, 50, 16], sizes
"#;
    take_turn(Link::Wire);
    let mut command = Command::new(program("python3", "python3"));
    command.args(["-c", ASKS]).env("LD_LIBRARY_PATH", our_libraries());
    command.envs([("RS_SQ_SIZE", "100"), ("RS_RQ_SIZE", "50"), ("RS_INLINE", "16")]);
    command.env("LD_PRELOAD", our_libraries().join("librspreload.so"));
    Running::start(&mut command).success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
}

/// Rules: CM-65
#[test]
fn a_program_that_polls_more_than_there_is_memory_for_is_told_so() {
    let scratch = Scratch::new("polls-many");
    let program = compile(&scratch, "polls_many.c", "polls_many", &[]);
    take_turn(Link::Wire);
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", our_libraries());
    run(command.env("LD_PRELOAD", our_libraries().join("librspreload.so")), 0);
}

/// Rules: CM-65
#[test]
fn descriptors_that_stand_for_rsockets_are_like_others() {
    let scratch = Scratch::new("plain-sockets");
    let program = compile(&scratch, "plain_sockets.c", "plain_sockets", &[]);
    take_turn(Link::Wire);
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", our_libraries());
    run(command.env("LD_PRELOAD", our_libraries().join("librspreload.so")), PLAIN_BEHAVIOURS);
}

/// A stream of Debian's, both ways of waiting, and datagrams.
///
/// Rules: CM-59, CM-60, CM-63
#[test]
fn the_tools_of_sockets_end_well() {
    take_turn(Link::Wire);
    let tool = |line: &str| tool(line, "rdmacm-utils", our_libraries());
    let (few, verified) = ("-I 5 -C 20", "-S 100000 -T v");
    for (name, how, address) in [
        ("rstream", "-T b", "127.0.0.1"),
        ("rstream", "-T a", "127.0.0.1"),
        ("rstream", "-T n -f ipv6", "::1"),
        ("riostream", "-T b", "127.0.0.1"),
    ] {
        let options = format!("{name} -p 17481 {few} {verified} {how}");
        let mut server = Running::start(&mut tool(&format!("{options} -b {address}")));
        // The first may come too early.
        let begun = std::time::Instant::now();
        while let Err(problem) =
            Running::start(&mut tool(&format!("{options} -s {address}"))).success(LIMIT)
        {
            assert!(begun.elapsed() < LIMIT && !server.has_ended(), "{options}: {problem}");
        }
        server.success(LIMIT).unwrap_or_else(|problem| panic!("{options}: {problem}"));
    }
    let server = Running::start(&mut tool("udpong -b 127.0.0.1 -p 17482"));
    // It asks until it is answered.
    let client = Running::start(&mut tool("udpong -s 127.0.0.1 -p 17482 -S 500 -C 100"));
    client.success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
    drop(server);
}
