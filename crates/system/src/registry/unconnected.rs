//! A connection that did not come about, as it is kept for `transom explain`, and the sentence it becomes.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::call::Name;
use super::record::{Kind, RECORD_WORDS};

/// Why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum ConnectionFault {
    /// The peer has refused, for the reason of this number.
    Rejected = 1,
    /// Nobody has answered.
    Unreachable = 2,
    /// The peer has no such datagram service, by the status of this number.
    NotServed = 3,
    /// There is no way to the address, for this errno.
    NoRoute = 4,
    /// A request that came here was refused, for the reason of this number.
    Refused = 5,
    /// One was dropped, for as many wait already as the listener takes.
    BacklogFull = 6,
    /// No process at the peer's host takes any.
    NobodyThere = 7,
}

/// A connection that did not come about, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Why.
    pub fault: ConnectionFault,
    /// The number that belongs to it.
    pub code: u32,
    /// Who asked.
    pub source: SocketAddr,
    /// Who was asked.
    pub destination: SocketAddr,
    /// Of a port that nobody listens on the nearest one that somebody does; zero if there is none.
    pub nearest: u16,
    /// What the program that refused has said, as far as that is text.
    pub said: Name<32>,
}

impl ConnectionRecord {
    pub(crate) fn to_words(self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        let is_v6 = u8::from(self.destination.is_ipv6());
        let small = u32::from_le_bytes([Kind::Connection as u8, self.fault as u8, is_v6, 0]);
        words[1] = self.time;
        words[2] = u64::from(small) | u64::from(self.code) << 32;
        let ports = [self.source.port(), self.destination.port(), self.nearest, 0];
        words[3] = ports.iter().rev().fold(0, |all, port| all << 16 | u64::from(*port));
        for (at, ip) in [(4, self.source.ip()), (6, self.destination.ip())] {
            let bits = match ip {
                IpAddr::V4(ip) => ip.to_bits().into(),
                IpAddr::V6(ip) => ip.to_bits(),
            };
            (words[at], words[at + 1]) = ((bits >> 64) as u64, bits as u64);
        }
        self.said.to_words(&mut words[8..12]);
        words
    }

    pub(crate) fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let [mark, fault, is_v6, ..] = words[2].to_le_bytes();
        if mark != Kind::Connection as u8 {
            return None;
        }
        let address = |at: usize, port: u64| {
            let bits = u128::from(words[at]) << 64 | u128::from(words[at + 1]);
            let ip: IpAddr = match is_v6 {
                0 => Ipv4Addr::from_bits(bits as u32).into(),
                _ => Ipv6Addr::from_bits(bits).into(),
            };
            SocketAddr::new(ip, port as u16)
        };
        Some(Self {
            time: words[1],
            fault: ConnectionFault::from_repr(fault)?,
            code: (words[2] >> 32) as u32,
            source: address(4, words[3]),
            destination: address(6, words[3] >> 16),
            nearest: (words[3] >> 32) as u16,
            said: Name::from_words(&words[8..12]),
        })
    }
}

/// What the reason of a refusal means to a person.
fn meaning(code: u32) -> Option<&'static str> {
    Some(match code {
        3 => "it has no resources left",
        4 => "it has given up waiting",
        6 => "it does not have this connection any more",
        8 => "nobody listens on this port there",
        9 => "it has no such kind of connection",
        10 => {
            "it still has a connection with this queue pair, which this end has lost without a word. It \
             ends that now: connect again"
        }
        12 => "it does not have the address, or the request has come by another way than it says",
        26 => "it has no such MTU",
        28 => "its program refuses (rdma_reject), or has ended",
        35 => "it does not agree to the adapter's options",
        _ => return None,
    })
}

/// The sentence for a person.
impl fmt::Display for ConnectionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, code, nearest, .. } = *self;
        match self.fault {
            ConnectionFault::Rejected => {
                write!(f, "{destination} refused a connection from {source}")?;
                write!(f, ", for reason {code}")?;
                if let Some(meaning) = meaning(code) {
                    write!(f, ": {meaning}")?;
                }
                if !self.said.is_empty() {
                    write!(f, ". It says \"{}\"", self.said)?;
                }
                Ok(())
            }
            ConnectionFault::Unreachable => write!(
                f,
                "nobody at {destination} answered a request for a connection from {source}: is a process \
                 with a device running there, and does the network let UDP port 4791 through? \
                 TRANSOM_CONNECT_TIMEOUT=MILLISECONDS makes the wait shorter"
            ),
            ConnectionFault::NobodyThere => write!(
                f,
                "no process at {} has a device that takes connections from other hosts, says its host (or a \
                 firewall there: nobody has UDP port 4791); {source} asked for port {}. Start the program \
                 there first, and by `transom run`",
                destination.ip(),
                destination.port()
            ),
            ConnectionFault::NotServed => {
                write!(f, "{destination} has no datagram service for {source}, status {code}")?;
                match code {
                    1 => write!(f, ": nobody listens on this port there"),
                    2 => write!(f, ": its program refuses"),
                    _ => Ok(()),
                }
            }
            ConnectionFault::NoRoute => {
                let error = io::Error::from_raw_os_error(code as i32);
                write!(f, "there is no way to {destination} from {}: {error}", source.ip())?;
                match code as i32 {
                    libc::ENODEV => write!(f, " has the address that leads there"),
                    _ => Ok(()),
                }
            }
            ConnectionFault::Refused if code == 8 => {
                write!(
                    f,
                    "{source} asked for port {}, on which nobody listens",
                    destination.port()
                )?;
                match nearest {
                    0 => write!(f, ", nor on any other port of this port space"),
                    port => write!(f, "; the nearest port that somebody listens on is {port}"),
                }
            }
            ConnectionFault::Refused => {
                write!(f, "a request of {source} for {destination} was refused, for reason {code}")
            }
            ConnectionFault::BacklogFull => write!(
                f,
                "a request of {source} for {destination} was dropped: as many wait already as the \
                 listener's backlog lets. It comes again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other processes write records: what they say need not fit together.
    #[test]
    fn what_others_wrote_is_still_a_sentence() {
        for fault in 0..=u8::MAX {
            for fill in [0, 0x4141_4141_4141_4141, u64::MAX] {
                let mut words = [fill; RECORD_WORDS];
                let is_v6 = fill as u8 & 1;
                words[2] =
                    u64::from_le_bytes([Kind::Connection as u8, fault, is_v6, 0, 8, 0, 0, 0]);
                let Some(record) = ConnectionRecord::from_words(&words) else { continue };
                let sentence = record.to_string();
                assert!(sentence.chars().all(|letter| !letter.is_control()), "{sentence}");
                assert_eq!(ConnectionRecord::from_words(&record.to_words()), Some(record));
            }
        }
    }
}
