//! The programs that connect, and how each is tried.

use std::net::IpAddr;

use crate::place::Place;
use crate::program::{
    CMTIME, Listens, Program, RIOSTREAM, RPING, RSTREAM, UCMATOSE, UDADDY, UDPONG,
};

/// The places where clients can reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Everywhere,
    /// It listens on any IPv4 address, or takes only such an address.
    OfIpv4,
    /// It takes an IPv6 address.
    OfIpv6,
    /// It ends before it has sent anything.
    OnThisHost,
}

impl Reach {
    pub(super) fn includes(self, place: Place<'_>, address: IpAddr) -> bool {
        match self {
            Self::Everywhere => true,
            Self::OfIpv4 => address.is_ipv4(),
            Self::OfIpv6 => address.is_ipv6(),
            Self::OnThisHost => matches!(place, Place::Here),
        }
    }
}

/// The places where a program cannot succeed on any device, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hopeless {
    /// The connection manager, the device or the program resends lost messages.
    Nowhere,
    WherePacketsAreLost(&'static str),
    Everywhere(&'static str),
}

/// A program, and how it is tried.
#[derive(Clone, Copy)]
pub(super) struct Trial {
    pub(super) program: Program,
    pub(super) clients: usize,
    hopeless: Hopeless,
    pub(super) reach: Reach,
    /// The output of each end if all went well, if its exit status does not tell.
    pub(super) prints: Option<&'static str>,
    /// Whether it is too long for the quick look.
    pub(super) lasts: bool,
}

impl Trial {
    const fn of(program: Program) -> Self {
        Self {
            program,
            clients: 1,
            hopeless: Hopeless::Nowhere,
            reach: Reach::Everywhere,
            prints: None,
            lasts: false,
        }
    }

    /// Marks a program that resends no lost datagram, and waits for each.
    const fn sends_none_again(self) -> Self {
        let why = "sends no lost datagram again, and waits for each";
        Self { hopeless: Hopeless::WherePacketsAreLost(why), ..self }
    }

    /// Marks a program that refuses its options.
    const fn refuses(self, why: &'static str) -> Self {
        Self { hopeless: Hopeless::Everywhere(why), reach: Reach::OnThisHost, ..self }
    }

    /// The reason why it does not run there, if it does not.
    pub(super) fn left_out(&self, place: Place<'_>) -> Option<&'static str> {
        match self.hopeless {
            Hopeless::Everywhere(why) => Some(why),
            Hopeless::WherePacketsAreLost(why) if place.loses_packets() => Some(why),
            Hopeless::Nowhere | Hopeless::WherePacketsAreLost(_) => None,
        }
    }

    const fn of_ipv6(self) -> Self {
        Self { reach: Reach::OfIpv6, ..self }
    }

    const fn of_ipv4(self) -> Self {
        Self { reach: Reach::OfIpv4, ..self }
    }

    /// The options of its clients, and their number.
    pub(super) fn describe(&self) -> String {
        let options = self.program.describe();
        match self.clients {
            1 => options,
            clients => format!("{options}, {clients} clients"),
        }
    }

    const fn lasts(self) -> Self {
        Self { lasts: true, ..self }
    }
}

/// A program whose ends get the same options, except for the server's address.
macro_rules! told {
    ($program:expr, $options:literal) => {
        Trial::of(Program {
            server_options: concat!("-b ADDRESS ", $options),
            client_options: concat!("-s ADDRESS ", $options),
            ..$program
        })
    };
}

/// A tool of perftest that connects with rdma_cm.
macro_rules! perftest {
    ($tool:literal, $service:literal) => {
        Trial::of(Program {
            server: $tool,
            client: $tool,
            package: "perftest",
            server_options: concat!("-R -d transom0 -F -n 128 -p 7471 -c ", $service),
            client_options: concat!("-R -d transom0 -F -n 128 -p 7471 -c ", $service, " ADDRESS"),
            ..RPING
        })
        .of_ipv4()
        .lasts()
    };
}

/// A sender to a multicast group, and a receiver in it.
macro_rules! mckey {
    ($group:literal) => {
        Trial::of(Program {
            server: "mckey",
            client: "mckey",
            server_options: concat!("-m ", $group, " -b ADDRESS -C 20 -S 500"),
            client_options: concat!("-m ", $group, " -s -b OWN -C 20 -S 500"),
            // Each waits three seconds between joining the group and the first message.
            listens: Listens::Nowhere,
            ..RPING
        })
        .sends_none_again()
        .lasts()
    };
}

/// fio's client writes to its server with this operation.
macro_rules! fio {
    ($verb:literal) => {
        Trial::of(Program {
            server: "fio",
            client: "fio",
            package: "fio",
            server_options: "--name=server --ioengine=rdma --port=7471 --rw=read --bs=4k --size=4m",
            client_options: concat!(
                "--name=client --ioengine=rdma --hostname=ADDRESS --port=7471 --rw=write --bs=4k --size=4m \
                 --iodepth=16 --verb=",
                $verb
            ),
            ..RPING
        })
        .of_ipv4()
        .lasts()
    };
}

/// libfabric's ping-pong with this provider and kind of endpoint. The server tells the client its address.
macro_rules! fi_pingpong {
    ($provider:literal, $endpoint:literal) => {
        Trial {
            // Each end disconnects when it has its own completions. Then libfabric's layer for `rdm` endpoints destroys
            // the other end's queue pair, and polls only afterwards. It reports a message as flushed whose completion
            // was lost with the queue pair. The program has printed all by then, but ends with 125.
            prints: Some("\n1m "),
            ..Trial::of(Program {
                server: "fi_pingpong",
                client: "fi_pingpong",
                package: "libfabric-bin",
                server_options: concat!("-p ", $provider, " -e ", $endpoint),
                client_options: concat!("-p ", $provider, " -e ", $endpoint, " ADDRESS"),
                listens: Listens::AtTcp(47592),
                ..RPING
            })
        }
        .of_ipv4()
        .lasts()
    };
}

pub(super) static TRIALS: [Trial; 34] = [
    Trial::of(RPING),
    Trial::of(Program {
        server_options: "-s -a ADDRESS -C 10 -V -q -p 7471",
        client_options: "-c -a ADDRESS -C 10 -V -q -p 7471",
        ..RPING
    }),
    Trial {
        clients: 64,
        // One of many clients once waited forever beside other work, for an unknown reason. In 70 later runs, ten of
        // them with 300 rounds and some beside busy loops, none did.
        lasts: true,
        ..Trial::of(Program {
            server_options: "-s -a ADDRESS -P -p 7471",
            client_options: "-c -a ADDRESS -C 20 -v -V -p 7471",
            persistent: true,
            ..RPING
        })
    },
    Trial::of(UCMATOSE),
    told!(UCMATOSE, "-p 7471 -c 4 -C 10 -S 1000 -m"),
    Trial::of(UDADDY).sends_none_again(),
    mckey!("239.255.77.1").of_ipv4(),
    mckey!("ff18::7701").of_ipv6(),
    Trial::of(CMTIME),
    Trial::of(Program {
        server: "rdma_server",
        client: "rdma_client",
        server_options: "-s ADDRESS -p 7471",
        client_options: "-s ADDRESS -p 7471",
        ..RPING
    }),
    Trial::of(Program { client_options: "-s ADDRESS -p 7471 -c r", ..XSERVER }).of_ipv4(),
    Trial::of(Program {
        server_options: "-p 7471 -c x",
        client_options: "-s ADDRESS -p 7471 -c x",
        ..XSERVER
    })
    .of_ipv4(),
    Trial::of(RSTREAM),
    told!(RSTREAM, "-p 7471 -T v -T a -S 300000 -C 20 -I 10").lasts(),
    told!(RSTREAM, "-p 7471 -T v -T n -S 64 -C 500 -I 10").lasts(),
    Trial::of(RIOSTREAM),
    Trial::of(Program {
        server: "rcopy",
        client: "rcopy",
        server_options: "-p 7471",
        client_options: "librdmacm.so.1 ADDRESS:copied -p 7471",
        persistent: true,
        ..RPING
    })
    // An IPv6 address contains colons too.
    .of_ipv4()
    .lasts(),
    Trial::of(UDPONG),
    perftest!("ib_write_bw", "RC"),
    perftest!("ib_write_lat", "RC"),
    perftest!("ib_read_bw", "RC"),
    perftest!("ib_read_lat", "RC"),
    perftest!("ib_send_bw", "RC"),
    perftest!("ib_send_lat", "RC"),
    perftest!("ib_atomic_bw", "RC"),
    perftest!("ib_atomic_lat", "RC"),
    perftest!("ib_send_bw", "XRC").refuses("says that XRC does not support RDMA_CM"),
    perftest!("ib_send_bw", "UD").sends_none_again(),
    perftest!("ib_send_lat", "UD").sends_none_again(),
    fio!("write"),
    fio!("read"),
    fi_pingpong!("verbs", "msg"),
    fi_pingpong!("verbs", "rdm"),
    fi_pingpong!("verbs;ofi_rxm", "rdm"),
];

const XSERVER: Program = Program {
    server: "rdma_xserver",
    client: "rdma_xclient",
    server_options: "-p 7471 -c r",
    ..RPING
};
