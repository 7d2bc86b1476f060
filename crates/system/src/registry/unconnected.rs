//! A connection that did not come about, as `transom explain` gets it, and its sentence.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use transom_cm::Cause;

use transom_wire::cm::PortSpace;

use super::call::Name;
use super::record::{Kind, RECORD_WORDS};

/// Why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum ConnectionFault {
    /// The peer has refused it with the reason of this number.
    Rejected = 1,
    /// Nobody has answered.
    Unreachable = 2,
    /// The peer does not offer such a datagram service, by the status of this number.
    NotServed = 3,
    /// There is no route to the address, for this errno.
    NoRoute = 4,
    /// A request that came here was refused with the reason of this number.
    Refused = 5,
    /// A request was dropped, because as many wait already as the listener takes.
    BacklogFull = 6,
    /// No process at the peer's host takes it.
    NobodyThere = 7,
    /// The id does not belong to the multicast group, for this errno.
    NotJoined = 8,
    /// The peer has not confirmed that the connection has ended.
    NotConfirmed = 9,
    /// The id's device is gone.
    DeviceRemoved = 10,
    /// The interface with the id's address has changed.
    AddressChanged = 11,
}

/// A connection that did not come about, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Why.
    pub fault: ConnectionFault,
    /// The number that belongs to it.
    pub code: u32,
    /// The address that asked.
    pub source: SocketAddr,
    /// The address that was asked.
    pub destination: SocketAddr,
    /// If nobody listens on the port: the nearest port where somebody does. Zero if there is none.
    pub nearest: u16,
    /// An address at which somebody listens on that port, though not at the address that was asked.
    pub listens_at: Option<IpAddr>,
    /// If nobody listens on the port: another port space in which somebody does.
    pub other_space: Option<PortSpace>,
    /// Which way the program refused, if the peer tells.
    pub cause: Option<Cause>,
    /// The text that the refusing program sent, as far as it is text.
    pub said: Name<32>,
}

impl ConnectionRecord {
    pub(crate) fn to_words(self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        let small = u32::from_le_bytes([Kind::Connection as u8, self.fault as u8, 0, 0]);
        words[1] = self.time;
        words[2] = u64::from(small) | u64::from(self.code) << 32;
        let more = u16::from_le_bytes([
            self.cause.map_or(0, |cause| cause as u8),
            u8::from(self.listens_at.is_some()),
        ]);
        let ports = [self.source.port(), self.destination.port(), self.nearest, more];
        words[3] = ports.iter().rev().fold(0, |all, port| all << 16 | u64::from(*port));
        let listens_at = self.listens_at.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        for (at, ip) in [(4, self.source.ip()), (6, self.destination.ip()), (12, listens_at)] {
            let bits = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
                IpAddr::V6(ip) => ip.to_bits(),
            };
            (words[at], words[at + 1]) = ((bits >> 64) as u64, bits as u64);
        }
        self.said.to_words(&mut words[8..12]);
        words[14] = self.other_space.map_or(0, |space| space as u64);
        words
    }

    pub(crate) fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let [mark, fault, ..] = words[2].to_le_bytes();
        if mark != Kind::Connection as u8 {
            return None;
        }
        let address = |at: usize, port: u64| {
            let bits = u128::from(words[at]) << 64 | u128::from(words[at + 1]);
            SocketAddr::new(Ipv6Addr::from_bits(bits).to_canonical(), port as u16)
        };
        let [cause, listens, ..] = (words[3] >> 48).to_le_bytes();
        Some(Self {
            time: words[1],
            fault: ConnectionFault::from_repr(fault)?,
            code: (words[2] >> 32) as u32,
            source: address(4, words[3]),
            destination: address(6, words[3] >> 16),
            nearest: (words[3] >> 32) as u16,
            listens_at: (listens != 0).then(|| address(12, 0).ip()),
            other_space: PortSpace::from_code(words[14] as u16),
            cause: Cause::from_number(cause),
            said: Name::from_words(&words[8..12]),
        })
    }
}

/// The refusal reasons that there are words for.
pub fn rejections() -> impl Iterator<Item = u32> {
    (0..=u32::from(u16::MAX)).filter(|code| *code == 28 || meaning(*code).is_some())
}

/// The meaning of a refusal reason in words.
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
        35 => "it does not agree to the adapter's options",
        _ => return None,
    })
}

impl ConnectionRecord {
    /// Why the peer has refused, in words. `None` if its reason is unknown.
    fn why(&self) -> Option<String> {
        Some(match (self.code, self.cause, self.listens_at) {
            (8, _, _) => format!(
                "nobody listens on port {} there{}",
                self.destination.port(),
                self.where_else()
            ),
            (28, _, Some(listens_at)) => format!("it listens at {listens_at} only"),
            (28, Some(cause), None) => of_cause(cause).to_owned(),
            (28, None, None) => "its program refuses (rdma_reject), or has ended".to_owned(),
            (code, _, _) => meaning(code)?.to_owned(),
        })
    }

    /// Where somebody listens instead, if nobody listens on the port.
    fn where_else(&self) -> String {
        let port = self.destination.port();
        let swapped = port.swap_bytes();
        if let Some(space) = self.other_space {
            return format!(
                " in this port space. In {} somebody does: give both ends the same port space \
                 (ai_port_space, or the one of rdma_create_id)",
                space_name(space)
            );
        }
        match self.nearest {
            nearest if nearest == swapped && swapped != port => format!(
                "; that is {swapped} in the other byte order, on which somebody listens: is htons \
                 missing?"
            ),
            0 => String::new(),
            nearest => format!("; the nearest port that somebody listens on is {nearest}"),
        }
    }
}

/// A port space by its name in C.
fn space_name(space: PortSpace) -> &'static str {
    match space {
        PortSpace::Tcp => "RDMA_PS_TCP",
        PortSpace::Udp => "RDMA_PS_UDP",
        PortSpace::Ib => "RDMA_PS_IB",
        PortSpace::Ipoib => "RDMA_PS_IPOIB",
    }
}

/// The meaning of a way to refuse, in words.
fn of_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Program => "its program refuses (rdma_reject)",
        Cause::Destroyed => {
            "its program has destroyed the id of the request before the connection stood"
        }
        Cause::Ended => "its program has ended before the connection stood",
        Cause::NotTaken => {
            "somebody listens on this port there, but not at this address, or for another type of queue \
             pair"
        }
    }
}

impl ConnectionRecord {
    /// Writes what the peer's program says, if it says anything.
    fn write_said(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.said.is_empty() { Ok(()) } else { write!(f, ". It says \"{}\"", self.said) }
    }
}

/// The sentence for a person.
impl fmt::Display for ConnectionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, code, nearest, .. } = *self;
        match self.fault {
            ConnectionFault::Rejected => {
                write!(f, "{destination} refused a connection from {source}")?;
                write!(f, ", for reason {code}")?;
                if let Some(why) = self.why() {
                    write!(f, ": {why}")?;
                }
                self.write_said(f)
            }
            ConnectionFault::Unreachable => write!(
                f,
                "nobody at {destination} answered a request for a connection from {source}: is a process \
                 with a device running there, and does the network let UDP port 4791 through? \
                 TRANSOM_CONNECT_TIMEOUT=MILLISECONDS makes the wait shorter"
            ),
            ConnectionFault::NobodyThere => write!(
                f,
                "{}, or a firewall before it, answers that nobody has UDP port 4791; {source} asked for port \
                 {}. Start the program there first, with `transom run`",
                destination.ip(),
                destination.port()
            ),
            ConnectionFault::NotServed => {
                write!(f, "{destination} has no datagram service for {source}, status {code}")?;
                match code {
                    1 => write!(f, ": nobody listens on this port there{}", self.where_else()),
                    2 => match self.listens_at {
                        Some(listens_at) => write!(f, ": it listens at {listens_at} only"),
                        None => write!(f, ": its program refuses"),
                    },
                    _ => Ok(()),
                }?;
                self.write_said(f)
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
                match (nearest, self.other_space) {
                    (0, None) => write!(f, ", nor on any other port of this port space"),
                    _ => f.write_str(&self.where_else()),
                }
            }
            ConnectionFault::Refused => {
                if let Some(listens_at) = self.listens_at {
                    return write!(
                        f,
                        "{source} asked for {destination}, where nobody listens: a process listens on that \
                         port at {listens_at} only"
                    );
                }
                write!(f, "a request of {source} for {destination} was refused, for reason {code}")
            }
            ConnectionFault::BacklogFull => write!(
                f,
                "a request of {source} for {destination} was dropped: as many wait already as the \
                 listener's backlog lets. It comes again"
            ),
            ConnectionFault::NotJoined => {
                let error = io::Error::from_raw_os_error(code as i32);
                write!(f, "the group {} cannot be joined: {error}", destination.ip())
            }
            ConnectionFault::NotConfirmed => write!(
                f,
                "{destination} did not confirm that its connection with {source} has ended: it has \
                 died or is stopped, or the network has lost it"
            ),
            ConnectionFault::DeviceRemoved => write!(
                f,
                "the device of the id at {source} is gone (RDMA_CM_EVENT_DEVICE_REMOVAL): the process \
                 has closed it, it has failed, or `transom run --fault device-removal` takes it away"
            ),
            ConnectionFault::AddressChanged => write!(
                f,
                "the address of the id at {source} is another interface's now, or has another hardware \
                 address (RDMA_CM_EVENT_ADDR_CHANGE): what was resolved before may lead nowhere"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other processes write records, so their fields need not fit together.
    #[test]
    fn what_others_wrote_is_still_a_sentence() {
        for fault in 0..=u8::MAX {
            for fill in [0, 0x4141_4141_4141_4141, u64::MAX] {
                let mut words = [fill; RECORD_WORDS];
                words[2] = u64::from_le_bytes([Kind::Connection as u8, fault, 0, 0, 8, 0, 0, 0]);
                let Some(record) = ConnectionRecord::from_words(&words) else { continue };
                let sentence = record.to_string();
                assert!(sentence.chars().all(|letter| !letter.is_control()), "{sentence}");
                assert_eq!(ConnectionRecord::from_words(&record.to_words()), Some(record));
            }
        }
    }
}
