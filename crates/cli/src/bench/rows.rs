//! The table of measurements. Each row is a workload with all its contenders and our targets.

use super::extent::Extent;
use super::perftest::Perftest;
use super::setup::Mtu;
use super::tasks::{Echo, Stream, Task};
use super::teams::{Pair, Who};
use super::ucx::Ucx;

/// A workload.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) contenders: Vec<Contender>,
    pub(super) targets: Vec<Target>,
}

/// A contender in a row.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) who: Who,
}

/// The unit of a row. All rows are measured in nanoseconds of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    Nanoseconds,
    /// For operations of this many bytes.
    MegabytesPerSecond(usize),
    MillionsPerSecond,
}

/// A target: how a contender must compare with the best of some others.
pub(super) struct Target {
    pub(super) of: &'static str,
    pub(super) beside: &'static [&'static str],
    pub(super) bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// At most this many times their time.
    AtMost(f64),
    /// At least this many times their bandwidth or rate.
    AtLeast(f64),
}

impl Unit {
    /// Converts nanoseconds of an operation to this unit.
    pub(super) fn of(self, nanoseconds: f64) -> f64 {
        match self {
            Self::Nanoseconds => nanoseconds,
            Self::MegabytesPerSecond(size) => size as f64 * 1000.0 / nanoseconds,
            Self::MillionsPerSecond => 1000.0 / nanoseconds,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::MegabytesPerSecond(_) => "MB/s",
            Self::MillionsPerSecond => "million/s",
        }
    }
}

impl Row {
    fn new(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, contenders: Vec::new(), targets: Vec::new() }
    }

    fn by(mut self, name: &'static str, pair: Pair, task: Task) -> Self {
        self.contenders.push(Contender { name, who: Who::Ours(pair, task) });
        self
    }

    /// Adds two processes with shared memory and two with private memory.
    fn by_us(self, task: Task) -> Self {
        self.by("shared", Pair::Shared, task).by("private", Pair::Private, task)
    }

    /// Adds the same over the wire.
    fn by_wire(self, mtu: Mtu, [shared, private]: [&'static str; 2], task: Task) -> Self {
        self.by(shared, Pair::SharedWire(mtu), task).by(private, Pair::Wire(mtu), task)
    }

    fn by_ucx(mut self, transport: Transport, test: &'static str, size: usize) -> Self {
        let Transport { name, transports } = transport;
        self.contenders.push(Contender { name, who: Who::Ucx(Ucx { transports, test, size }) });
        self
    }

    fn by_perftest(mut self, program: &'static str) -> Self {
        self.contenders.push(Contender { name: program, who: Who::Perftest(Perftest { program }) });
        self
    }

    fn target(mut self, of: &'static str, beside: &'static [&'static str], bound: Bound) -> Self {
        self.targets.push(Target { of, beside, bound });
        self
    }
}

/// UCX's transport between the two processes.
#[derive(Clone, Copy)]
struct Transport {
    name: &'static str,
    transports: &'static str,
}

/// Shared memory.
const POSIX: Transport = Transport { name: "UCX posix", transports: "posix,self" };
/// The kernel's copy, and shared memory for small messages.
const CMA: Transport = Transport { name: "UCX cma", transports: "posix,cma,self" };
const TCP: Transport = Transport { name: "UCX tcp", transports: "tcp,self" };

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// All rows. The extent sets the numbers of rows with many objects.
pub(super) fn rows(extent: Extent) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Task::*;
    use Unit::*;
    let copy = |size| KernelCopy { write: true, size };
    let large = |name, size, task| {
        Row::new(name, MegabytesPerSecond(size))
            .by_us(task)
            .by("memcpy", Pair::Shared, Memcpy { size })
            .by("kernel's copy", Pair::Private, copy(size))
            .target("shared", &["memcpy"], AtLeast(0.9))
            .target("private", &["kernel's copy"], AtLeast(0.9))
    };
    let rate = |name, queue_pairs| {
        Row::new(name, MillionsPerSecond)
            .by_us(WriteStream { size: 8, queue_pairs })
            .by_ucx(POSIX, "ucp_put_bw", 8)
            .target("shared", &["UCX posix"], AtLeast(1.0))
    };
    let ours = ["shared", "private"];
    let over_the_wire = |name, mtu, size, [shared, private]: [f64; 2]| {
        wire(name, mtu, size).target("shared", &["bare datagrams"], AtLeast(shared)).target(
            "private",
            &["bare datagrams"],
            AtLeast(private),
        )
    };
    let lists = |name, queue_pairs| {
        Row::new(name, MillionsPerSecond)
            .by_wire(Mtu::Usual, ours, WriteLists { queue_pairs })
            .by("sendmmsg", Pair::Wire(Mtu::Usual), UdpLists)
            .target("shared", &["sendmmsg"], AtLeast(0.7))
    };
    // The cost of an allocation in a program under `transom run`.
    let under_run = |name, task, most| {
        Row::new(name, Nanoseconds)
            .by("transom run", Pair::Run, task)
            .by("without", Pair::Private, task)
            .target("transom run", &["without"], AtMost(most))
    };
    let message = SendAndBack { size: 8, asleep: false };
    let small_bind = Bind { length: 4 * KIB };
    vec![
        Row::new("WRITE of 8 bytes, one way, both looking at memory", Nanoseconds)
            .by_us(WriteAndBack { size: 8 })
            .by_ucx(POSIX, "ucp_put_lat", 8)
            .by_ucx(TCP, "ucp_put_lat", 8)
            .by_perftest("ib_write_lat")
            .target("shared", &["UCX posix"], AtMost(1.3))
            .target("ib_write_lat", &["shared"], AtMost(1.15)),
        Row::new("READ of 8 bytes, to its completion", Nanoseconds)
            .by_us(Read { size: 8 })
            .by("kernel's copy", Pair::Private, KernelCopy { write: false, size: 8 })
            .by_ucx(POSIX, "ucp_put_lat", 8)
            .by_perftest("ib_read_lat")
            .target("shared", &["UCX posix"], AtMost(1.3))
            .target("ib_read_lat", &["shared"], AtMost(1.15)),
        Row::new("WRITE of 8 bytes, to its completion", Nanoseconds)
            .by_us(Write { size: 8 })
            .by("kernel's copy", Pair::Private, copy(8))
            .target("private", &["kernel's copy"], AtMost(1.4)),
        Row::new("SEND of 8 bytes, one way, both polling", Nanoseconds)
            .by_us(message)
            .by_ucx(POSIX, "tag_lat", 8)
            .by_ucx(TCP, "tag_lat", 8)
            .by_perftest("ib_send_lat")
            .target("shared", &["UCX posix"], AtMost(1.5))
            .target("ib_send_lat", &["shared"], AtMost(1.15)),
        Row::new("fetch-and-add, to its completion", Nanoseconds)
            .by_us(FetchAndAdd)
            .by("kernel's copy", Pair::Private, copy(8))
            .by_ucx(POSIX, "ucp_fadd", 8)
            .by_perftest("ib_atomic_lat")
            .target("shared", &["UCX posix"], AtMost(2.0))
            // One copy to read, one to write.
            .target("private", &["kernel's copy"], AtMost(2.0 * 1.5))
            .target("ib_atomic_lat", &["shared"], AtMost(1.15)),
        under_run("posix_memalign of 64 KiB, touched, and free", Allocate { size: 64 * KIB }, 2.0),
        under_run("malloc of 100 bytes, and free", Malloc { size: 100 }, 1.2),
        under_run("fork with 64 MiB in use, and touching it again", Fork { length: 64 * MIB }, 1.6),
        large("WRITE of 64 KiB", 64 * KIB, Write { size: 64 * KIB }),
        large("READ of 64 KiB", 64 * KIB, Read { size: 64 * KIB }),
        large("WRITE of 1 MiB", MIB, Write { size: MIB }),
        large("READ of 1 MiB", MIB, Read { size: MIB }),
        Row::new("SENDs of 64 KiB", MegabytesPerSecond(64 * KIB))
            .by_us(SendStream { size: 64 * KIB })
            .by_ucx(POSIX, "tag_bw", 64 * KIB)
            .by_ucx(CMA, "tag_bw", 64 * KIB)
            .target("shared", &["UCX posix", "UCX cma"], AtLeast(1.0)),
        rate("WRITEs of 8 bytes on 1 queue pair", 1),
        rate("WRITEs of 8 bytes on 16 queue pairs", 16),
        Row::new("bind and LOCAL_INV", Nanoseconds)
            .by("4 KiB", Pair::Private, small_bind)
            .by("1 GiB", Pair::Private, Bind { length: GIB })
            .by("1,000 windows live", Pair::Windows(1000), small_bind)
            .by("many windows live", Pair::Windows(extent.windows), small_bind)
            .by("kernel's copy", Pair::Private, copy(8))
            .target("4 KiB", &["kernel's copy"], AtMost(0.75))
            .target("1 GiB", &["4 KiB"], AtMost(1.1))
            .target("1,000 windows live", &["4 KiB"], AtMost(1.1))
            .target("many windows live", &["4 KiB"], AtMost(1.1)),
        Row::new("register and deregister 4 KiB", Nanoseconds)
            .by_us(Register { length: 4 * KIB })
            .by("mlock, munlock", Pair::Private, Lock { length: 4 * KIB })
            .target("private", &["mlock, munlock"], AtMost(1.5)),
        Row::new("register and deregister 1 GiB", Nanoseconds).by(
            "private",
            Pair::Private,
            Register { length: GIB },
        ),
        Row::new("SEND of 8 bytes, one way, both asleep until an event", Nanoseconds)
            .by_us(SendAndBack { size: 8, asleep: true })
            .by("eventfd", Pair::Private, EventFd)
            .target("private", &["eventfd"], AtMost(1.5)),
        Row::new("SEND of 8 bytes, one way, among many that are idle", Nanoseconds)
            .by("alone", Pair::Private, message)
            .by("many queue pairs", Pair::QueuePairs(extent.queue_pairs), message)
            .by("many processes", Pair::Processes(extent.processes), message)
            .target("many queue pairs", &["alone"], AtMost(1.5))
            .target("many processes", &["alone"], AtMost(1.5)),
        over_the_wire("WRITEs of 64 KiB over the wire", Mtu::Usual, 64 * KIB, [0.65, 0.5]),
        over_the_wire("WRITEs of 1 MiB over the wire", Mtu::Usual, MIB, [0.6, 0.5]),
        over_the_wire("WRITEs of 64 KiB over the wire, MTU 9000", Mtu::Jumbo, 64 * KIB, [0.7, 0.5]),
        over_the_wire("WRITEs of 1 MiB over the wire, MTU 9000", Mtu::Jumbo, MIB, [0.7, 0.5]),
        Row::new("WRITE of 8 bytes over the wire, one way", Nanoseconds)
            .by_wire(Mtu::Usual, ours, WriteAndBack { size: 8 })
            .by("UDP, connected", Pair::Wire(Mtu::Usual), UdpAndBack(Echo::Connected))
            .by("UDP, not connected", Pair::Wire(Mtu::Usual), UdpAndBack(Echo::Unconnected))
            .by("UDP, told all", Pair::Wire(Mtu::Usual), UdpAndBack(Echo::Told))
            .target("shared", &["UDP, not connected"], AtMost(1.4)),
        lists("WRITEs of 8 bytes over the wire, lists of 16, 1 queue pair", 1),
        lists("WRITEs of 8 bytes over the wire, lists of 16, 16 queue pairs", 16),
    ]
}

/// A picture: one workload over the sizes of its messages.
pub(super) struct Picture {
    /// The name of its file, and its title.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Whether it shows bandwidth. Otherwise it shows the time one way.
    pub(super) is_bandwidth: bool,
    /// The sizes of its messages.
    pub(super) sizes: &'static [usize],
    pub(super) contenders: fn(usize) -> Row,
}

/// The sizes of messages in most pictures.
const SIZES: [usize; 9] = [16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];

/// The sizes of long messages. Shorter bare datagrams come faster than their receiver takes them.
const LONG_SIZES: [usize; 4] = [16 * KIB, 64 * KIB, 256 * KIB, MIB];

/// All pictures.
pub(super) const PICTURES: [Picture; 5] = [
    Picture {
        name: "write-latency",
        title: "WRITE, one way",
        is_bandwidth: false,
        sizes: &SIZES,
        contenders: |size| {
            Row::new("WRITE, one way", Unit::Nanoseconds)
                .by_us(Task::WriteAndBack { size })
                .by_wire(Mtu::Usual, ["wire, shared", "wire, private"], Task::WriteAndBack { size })
                .by_ucx(POSIX, "ucp_put_lat", size)
                .by_ucx(TCP, "ucp_put_lat", size)
                .by("TCP", Pair::Wire(Mtu::Usual), Task::TcpAndBack { size })
        },
    },
    Picture {
        name: "send-latency",
        title: "SEND, one way",
        is_bandwidth: false,
        sizes: &SIZES,
        contenders: |size| {
            let task = Task::SendAndBack { size, asleep: false };
            Row::new("SEND, one way", Unit::Nanoseconds)
                .by_us(task)
                .by_wire(Mtu::Usual, ["wire, shared", "wire, private"], task)
                .by_ucx(POSIX, "tag_lat", size)
                .by_ucx(CMA, "tag_lat", size)
                .by_ucx(TCP, "tag_lat", size)
                .by("TCP", Pair::Wire(Mtu::Usual), Task::TcpAndBack { size })
        },
    },
    Picture {
        name: "write-bandwidth",
        title: "WRITEs one after the other",
        is_bandwidth: true,
        sizes: &SIZES,
        contenders: |size| {
            let task = Task::WriteStream { size, queue_pairs: 1 };
            Row::new("WRITEs", Unit::MegabytesPerSecond(size))
                .by_us(task)
                .by_wire(Mtu::Usual, ["wire, shared", "wire, private"], task)
                .by_ucx(POSIX, "ucp_put_bw", size)
                .by_ucx(TCP, "ucp_put_bw", size)
                .by("TCP", Pair::Wire(Mtu::Usual), Task::TcpStream { size })
                .by("memcpy", Pair::Shared, Task::Memcpy { size })
                .by("kernel's copy", Pair::Private, Task::KernelCopy { write: true, size })
        },
    },
    Picture {
        name: "send-bandwidth",
        title: "SENDs one after the other",
        is_bandwidth: true,
        sizes: &SIZES,
        contenders: |size| {
            let task = Task::SendStream { size };
            Row::new("SENDs", Unit::MegabytesPerSecond(size))
                .by_us(task)
                .by_wire(Mtu::Usual, ["wire, shared", "wire, private"], task)
                .by_ucx(POSIX, "tag_bw", size)
                .by_ucx(CMA, "tag_bw", size)
                .by_ucx(TCP, "tag_bw", size)
                .by("TCP", Pair::Wire(Mtu::Usual), Task::TcpStream { size })
        },
    },
    Picture {
        name: "wire-bandwidth",
        title: "WRITEs over the wire, MTU 1500, and what each part of the way costs",
        is_bandwidth: true,
        sizes: &LONG_SIZES,
        contenders: |size| wire("WRITEs over the wire", Mtu::Usual, size),
    },
];

/// WRITEs over the wire, and the floors beside them: the same lengths, in as many calls. TCP is shown beside.
fn wire(name: &'static str, mtu: Mtu, size: usize) -> Row {
    let bare = Stream { size, mtu, copied: false };
    let ours = ["shared", "private"];
    Row::new(name, Unit::MegabytesPerSecond(size))
        .by_wire(mtu, ours, Task::WriteStream { size, queue_pairs: 1 })
        .by("TCP", Pair::Wire(mtu), Task::TcpStream { size })
        .by("bare datagrams", Pair::Wire(mtu), Task::UdpStream(bare))
        .by("copied and checked", Pair::Wire(mtu), Task::UdpStream(Stream { copied: true, ..bare }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_of_contenders() {
        for row in rows(Extent::new(true)) {
            let is_one = |name: &str| row.contenders.iter().any(|it| it.name == name);
            for target in &row.targets {
                assert!(is_one(target.of), "{}: {}", row.name, target.of);
                assert!(target.beside.iter().all(|name| is_one(name)), "{}", row.name);
                let is_time = matches!(target.bound, Bound::AtMost(_));
                assert_eq!(is_time, row.unit == Unit::Nanoseconds, "{}", row.name);
            }
        }
    }
}
