//! What the administrator and the user tell rdma-core's library of this name: which sockets it takes over, and how deep
//! their queues are.
//!
//! A line of the file has four words: how the program's name begins, the domain, the type and the protocol. Each may be
//! `*`. Without a line, every socket is meant. Lines that say nothing else are passed over.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use crate::rsockets::Rsockets;

const FILE: &str = "/etc/rdma/rsocket/preload_config";
const AF_IB: c_int = 27;
const SOL_RDMA: c_int = 0x10000;
/// The variables, and the options of rsockets that they set.
const SIZES: [(&str, c_int); 3] = [("RS_SQ_SIZE", 0), ("RS_RQ_SIZE", 1), ("RS_INLINE", 2)];

/// The sockets that a line means. `None` is any.
#[derive(Debug, PartialEq)]
struct Line {
    program: Option<String>,
    socket: [Option<c_int>; 3],
}

/// A word for a number, without or with a prefix. `None` if it is unknown.
fn number(word: &str, prefixes: [&str; 2], known: &[(&str, c_int)]) -> Option<Option<c_int>> {
    if word == "*" {
        return Some(None);
    }
    let word = word.to_ascii_uppercase();
    let bare = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)).unwrap_or(&word);
    known.iter().find(|(name, _)| *name == bare).map(|(_, number)| Some(*number))
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let [program, domain, kind, protocol] = [(); 4].map(|()| words.next());
        let program = program.filter(|_| !line.starts_with('#'))?;
        let domains = [("INET", libc::AF_INET), ("INET6", libc::AF_INET6), ("IB", AF_IB)];
        let kinds = [("STREAM", libc::SOCK_STREAM), ("DGRAM", libc::SOCK_DGRAM)];
        let protocols = [("TCP", libc::IPPROTO_TCP), ("UDP", libc::IPPROTO_UDP)];
        let socket = [
            number(domain?, ["AF_", "PF_"], &domains)?,
            number(kind?, ["SOCK_"; 2], &kinds)?,
            number(protocol?, ["IPPROTO_"; 2], &protocols)?,
        ];
        Some(Self { program: (program != "*").then(|| program.to_owned()), socket })
    }

    fn means(&self, program: &str, socket: [c_int; 3]) -> bool {
        let begins = |name: &String| {
            program.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        };
        let is = |(meant, has): (&Option<c_int>, c_int)| meant.is_none_or(|meant| meant == has);
        self.program.as_ref().is_none_or(begins) && self.socket.iter().zip(socket).all(is)
    }
}

/// The name of this program, as the C library knows it.
fn program() -> String {
    unsafe extern "C" {
        static program_invocation_short_name: *const c_char;
    }
    // SAFETY: it ends in zero, and nobody changes it.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    name.to_string_lossy().into_owned()
}

/// Whether a stream socket of TCP is to be an rsocket, in this program.
pub(crate) fn takes_stream(domain: c_int) -> bool {
    static LINES: OnceLock<(Vec<Line>, String)> = OnceLock::new();
    let (lines, program) = LINES.get_or_init(|| {
        let text = std::fs::read(FILE).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        (text.lines().filter_map(Line::parse).collect(), program())
    });
    let socket = [domain, libc::SOCK_STREAM, libc::IPPROTO_TCP];
    lines.is_empty() || lines.iter().any(|line| line.means(program, socket))
}

/// Sets the sizes that the user has chosen for a new rsocket. A size that rsockets refuse stays as it is.
pub(crate) fn set_sizes(number: c_int, rsockets: &Rsockets) {
    static CHOSEN: OnceLock<Vec<(c_int, c_int)>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = |(name, option): (&str, c_int)| {
            let size = std::env::var(name).ok()?.trim().parse().ok()?;
            (size != 0).then_some((option, size))
        };
        SIZES.into_iter().filter_map(chosen).collect()
    });
    for (option, size) in chosen {
        let length = size_of::<c_int>() as u32;
        // SAFETY: the value has that length.
        unsafe {
            (rsockets.rsetsockopt)(number, SOL_RDMA, *option, (&raw const *size).cast(), length)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_sockets_of_which_programs_are_meant() {
        let stream = |domain| [domain, libc::SOCK_STREAM, libc::IPPROTO_TCP];
        let line = Line::parse("curl INET stream IPPROTO_TCP").unwrap();
        for (program, domain, is_meant) in [
            ("curl", libc::AF_INET, true),
            ("CURL-7", libc::AF_INET, true),
            ("cur", libc::AF_INET, false),
            ("wget", libc::AF_INET, false),
            ("curl", libc::AF_INET6, false),
        ] {
            assert_eq!(line.means(program, stream(domain)), is_meant, "{program} {domain}");
        }
        let all = Line::parse("* * * *").unwrap();
        assert!(all.means("anything", stream(libc::AF_INET6)));
        assert!(!Line::parse("* * DGRAM UDP").unwrap().means("curl", stream(libc::AF_INET)));
        assert!(Line::parse("c pf_inet6 sock_stream *").unwrap().means("curl", stream(10)));
        for nothing in ["", "# curl * * *", "#curl * * *", "curl * *", "curl INETS * *", "a * b c"]
        {
            assert_eq!(Line::parse(nothing), None, "{nothing}");
        }
    }
}
