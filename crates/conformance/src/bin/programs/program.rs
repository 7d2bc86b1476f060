//! Programs whose server and client meet at an address, and how to run them.

use std::net::IpAddr;

/// The port for programs that take one.
pub(crate) const PORT: u16 = 7471;

/// How to see that a server is ready for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listens {
    /// It listens on a port of rdma_cm.
    At(u16),
    /// It listens on a TCP port, where both agree on the rest.
    AtTcp(u16),
    /// It does not listen. Clients ask until they get an answer, or take their time.
    Nowhere,
}

/// A program whose server and client meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) server: &'static str,
    pub(crate) client: &'static str,
    pub(crate) package: &'static str,
    /// The options of both. ADDRESS stands for the server's address, and OWN for the client's.
    pub(crate) server_options: &'static str,
    pub(crate) client_options: &'static str,
    pub(crate) listens: Listens,
    /// Whether the server goes on when its client has ended.
    pub(crate) persistent: bool,
}

impl Program {
    /// The words of a command line, for a server and a client that have these addresses.
    pub(crate) fn words(
        options: &str,
        server: IpAddr,
        client: IpAddr,
    ) -> impl Iterator<Item = String> {
        let [server, client] = [server, client].map(|address| address.to_string());
        options
            .split_whitespace()
            .map(move |word| word.replace("ADDRESS", &server).replace("OWN", &client))
    }

    /// The client's options, except the addresses.
    pub(crate) fn describe(&self) -> String {
        let told: Vec<&str> = self.client_options.split_whitespace().collect();
        let is_address = |at: usize| matches!(told.get(at), Some(&("ADDRESS" | "OWN")));
        let tells = |at: usize| {
            is_address(at) || is_address(at + 1) && ["-s", "-a", "-b"].contains(&told[at])
        };
        let rest = (0..told.len()).filter(|at| !tells(*at)).map(|at| told[at]);
        rest.collect::<Vec<_>>().join(" ")
    }
}

pub(crate) const RPING: Program = Program {
    server: "rping",
    client: "rping",
    package: "rdmacm-utils",
    server_options: "-s -a ADDRESS -C 10 -V -p 7471",
    client_options: "-c -a ADDRESS -C 10 -V -p 7471",
    listens: Listens::At(PORT),
    persistent: false,
};

pub(crate) const UCMATOSE: Program = Program {
    server: "ucmatose",
    client: "ucmatose",
    server_options: "-b ADDRESS -p 7471 -c 4 -C 10 -S 1000",
    client_options: "-s ADDRESS -p 7471 -c 4 -C 10 -S 1000",
    ..RPING
};

pub(crate) const UDADDY: Program = Program {
    server: "udaddy",
    client: "udaddy",
    server_options: "-b ADDRESS -c 4 -C 10 -S 1000",
    client_options: "-s ADDRESS -c 4 -C 10 -S 1000",
    listens: Listens::At(7174),
    ..RPING
};

pub(crate) const CMTIME: Program = Program {
    server: "cmtime",
    client: "cmtime",
    server_options: "-b ADDRESS -p 7471 -c 1000",
    client_options: "-s ADDRESS -p 7471 -c 1000",
    persistent: true,
    ..RPING
};

pub(crate) const RSTREAM: Program = Program {
    server: "rstream",
    client: "rstream",
    server_options: "-b ADDRESS -p 7471 -T v -S 10000 -C 50 -I 10",
    client_options: "-s ADDRESS -p 7471 -T v -S 10000 -C 50 -I 10",
    ..RPING
};

pub(crate) const RIOSTREAM: Program =
    Program { server: "riostream", client: "riostream", ..RSTREAM };

pub(crate) const UDPONG: Program = Program {
    server: "udpong",
    client: "udpong",
    server_options: "-b ADDRESS -p 7471",
    client_options: "-s ADDRESS -p 7471 -S 500 -C 500",
    listens: Listens::Nowhere,
    persistent: true,
    ..RPING
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_leaves_the_address_out() {
        assert_eq!(RPING.describe(), "-c -C 10 -V -p 7471");
        assert_eq!(UDADDY.describe(), "-c 4 -C 10 -S 1000");
        let copy = Program { client_options: "file ADDRESS:copied -p 7471", ..RPING };
        assert_eq!(copy.describe(), "file ADDRESS:copied -p 7471");
        let last = Program { client_options: "-p verbs ADDRESS", ..RPING };
        assert_eq!(last.describe(), "-p verbs");
        let group = Program { client_options: "-m 239.1.2.3 -s -b OWN -C 20", ..RPING };
        assert_eq!(group.describe(), "-m 239.1.2.3 -s -C 20");
    }
}
