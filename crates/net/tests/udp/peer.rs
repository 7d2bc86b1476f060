//! A process that shares the port, told what to do over a pipe.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::{PollFd, PollFlags, poll};
use transom_net::udp::{Arrivals, Others, Port};
use transom_system::registry::Registry;

const ROLE: &str = "TRANSOM_TEST_PEER";

/// What a peer has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Datagrams for it.
    pub(crate) own: u64,
    /// Datagrams that were not, and that its port gave it all the same.
    pub(crate) foreign: u64,
    /// Datagrams that it handed on to others.
    pub(crate) handed_on: u64,
}

/// A process with a port, ended when this is dropped.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) slot: u8,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(env::current_exe().expect("a test has a path"));
        command.args(["--exact", "peer_process", "--nocapture"]).env(ROLE, "1");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut peer = Self { child, input, output, slot: 0 };
        peer.slot = peer.hear()[0] as u8;
        peer
    }

    /// What it has seen; it has then taken all that had arrived before it was asked.
    pub(crate) fn seen(&mut self) -> Seen {
        self.input.write_all(b"seen\n").expect("the peer lives");
        let [own, foreign, handed_on] = self.hear()[..] else { panic!("three numbers") };
        Seen { own, foreign, handed_on }
    }

    /// Asks until it has seen `own` datagrams for it.
    pub(crate) fn until(&mut self, own: u64) -> Seen {
        loop {
            let seen = self.seen();
            assert!(seen.own <= own, "{} came for {own}", seen.own);
            if seen.own == own {
                return seen;
            }
            std::thread::yield_now();
        }
    }

    /// Lets it end by itself.
    pub(crate) fn leave(mut self) {
        self.input.write_all(b"leave\n").expect("the peer lives");
        assert!(self.child.wait().expect("it was started").success());
    }

    /// Has it close its port and live on.
    pub(crate) fn close(&mut self) {
        self.input.write_all(b"close\n").expect("the peer lives");
        self.hear();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it was started");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it lives");
        if signal == rustix::process::Signal::STOP {
            // The signal is only sent: it may run on for a moment.
            let options = rustix::process::WaitOptions::UNTRACED;
            rustix::process::waitpid(Some(pid), options).expect("it is this process's child");
        }
    }

    /// The next line of numbers; what the test harness says is passed over.
    fn hear(&mut self) -> Vec<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).expect("text"), 0, "the peer is gone");
            if let Some((_, numbers)) = line.split_once('>') {
                let numbers = numbers.split_whitespace();
                return numbers.map(|number| number.parse().expect("a number")).collect();
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process itself.
pub(crate) fn run_if_asked() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    let registry = Registry::open().expect("a registry");
    let claim = registry.claim(0, 0).expect("a slot");
    let me = claim.announcer();
    let port = Port::open(registry, me).expect("the port");
    let mut arrivals = Arrivals::default();
    let mut seen = Seen::default();
    let mut take = |seen: &mut Seen| {
        port.receive(&mut arrivals, usize::MAX, |datagrams| {
            for datagram in datagrams.iter() {
                let own = datagram.get(5) == Some(&me.slot);
                *(if own { &mut seen.own } else { &mut seen.foreign }) += 1;
            }
        })
        .expect("a socket that works");
        seen.handed_on = port.counters().handed_on.load(Relaxed);
    };
    // The probe of its own position has arrived by now.
    take(&mut seen);
    println!(">{}", me.slot);
    let (stdin, mut word) = (std::io::stdin(), String::new());
    let mut others = Others::default();
    loop {
        others.watch(&port, &mut Vec::new());
        let all = std::iter::once(stdin.as_fd()).chain(port.descriptors());
        let all = all.chain(others.descriptors());
        let mut events: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let patience = others.patience().map(|time| time.try_into().expect("a moment"));
        poll(&mut events, patience.as_ref()).expect("poll");
        let told = !events[0].revents().is_empty();
        others.bury(&port, &mut Vec::new());
        take(&mut seen);
        if !told {
            continue;
        }
        word.clear();
        stdin.lock().read_line(&mut word).expect("text");
        match word.trim() {
            "seen" => println!(">{} {} {}", seen.own, seen.foreign, seen.handed_on),
            "close" => {
                port.close();
                println!(">");
            }
            _ => return,
        }
    }
}
