//! Which programs connect, and how they are tried.

use std::net::IpAddr;

use crate::place::Place;
use crate::program::{
    CMTIME, Listens, Program, RIOSTREAM, RPING, RSTREAM, UCMATOSE, UDADDY, UDPONG,
};

/// Where clients find a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Everywhere,
    /// It listens at any address of IPv4, or can be told of no other.
    OfIpv4,
    /// It is told of an address of IPv6.
    OfIpv6,
    /// It ends before it has asked anybody.
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

/// Where a program cannot end well, whatever it runs on, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hopeless {
    /// What is lost is sent again, by the connection manager, the device or the program.
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
    /// What each end prints when all went well, if how it ends does not tell.
    pub(super) prints: Option<&'static str>,
    /// It is not part of the quick look.
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

    /// It sends no datagram again that is lost, and waits for each.
    const fn sends_none_again(self) -> Self {
        let why = "sends no lost datagram again, and waits for each";
        Self { hopeless: Hopeless::WherePacketsAreLost(why), ..self }
    }

    /// It refuses what it is told.
    const fn refuses(self, why: &'static str) -> Self {
        Self { hopeless: Hopeless::Everywhere(why), reach: Reach::OnThisHost, ..self }
    }

    /// Why it is not run there, if it is not.
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

    /// What its clients are told, and how many they are.
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

/// Both ends of a program told the same, but for where the server is.
macro_rules! told {
    ($program:expr, $options:literal) => {
        Trial::of(Program {
            server_options: concat!("-b ADDRESS ", $options),
            client_options: concat!("-s ADDRESS ", $options),
            ..$program
        })
    };
}

/// A tool of perftest that connects by rdma_cm.
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

/// Who sends to a multicast group, and who receives what is sent there.
macro_rules! mckey {
    ($group:literal) => {
        Trial::of(Program {
            server: "mckey",
            client: "mckey",
            server_options: concat!("-m ", $group, " -b ADDRESS -C 20 -S 500"),
            client_options: concat!("-m ", $group, " -s -b OWN -C 20 -S 500"),
            // Either takes three seconds from joining the group to the first message.
            listens: Listens::Nowhere,
            ..RPING
        })
        .sends_none_again()
        .lasts()
    };
}

/// fio's client writes to its server, by this operation.
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

/// libfabric's ping-pong, by this provider and kind of endpoint. Its server tells the client where it is.
macro_rules! fi_pingpong {
    ($provider:literal, $endpoint:literal) => {
        Trial {
            // Either end disconnects when it has its own completions. libfabric's layer for `rdm` endpoints destroys
            // the queue pair of the other then, polls only afterwards, and tells of a message whose completion went
            // with the queue pair as flushed: the program, which has printed all by then, ends with 125.
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
        // One of many clients was seen to wait in vain beside other work, and why is not known: in 70 runs since then,
        // ten of them of 300 rounds and some beside busy loops, none did.
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
    // An address of IPv6 has colons too.
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
