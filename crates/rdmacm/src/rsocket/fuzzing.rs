//! Entries for `transom-inputs` to data from other sockets. Only in builds with debug assertions.

use super::datagram_protocol::{self, read_source, write_source};
use super::flow::{Incoming, Outgoing};
use super::protocol::{Buffer, Introduction, Message};

/// The private data of a connection. It is no introduction, or one that stays the same when it is written and read
/// again.
pub fn rsocket_introduction(bytes: &[u8]) {
    if let Some(introduction) = Introduction::read(bytes) {
        assert!(introduction.grants.length > 0);
        assert_eq!(Introduction::read(&introduction.bytes()), Some(introduction));
    }
}

/// Messages by UDP, and messages between datagram queue pairs.
pub fn rsocket_datagram(bytes: &[u8]) {
    if let Some((introduction, data)) = datagram_protocol::Introduction::read(bytes) {
        let mut again = Vec::new();
        introduction.write(&mut again);
        assert_eq!(again.len() + data.len(), bytes.len());
        again.extend_from_slice(data);
        assert_eq!(datagram_protocol::Introduction::read(&again), Some((introduction, data)));
    }
    if let Some((from, length)) = read_source(bytes) {
        let mut again = Vec::new();
        write_source(from, &mut again);
        assert!(length == again.len() && length <= bytes.len());
        assert_eq!(read_source(&again), Some((from, length)));
    }
}

/// A stream with a peer that breaks every rule. Each step has a message, the buffer in the list at that time, and the
/// length that the program reads and writes afterwards. The stream never reads data that was not granted and announced,
/// and never sends more than the peer has granted.
pub fn rsocket_stream(half: u16, credits: u16, steps: &[(u32, Buffered, u16)]) {
    let (half, credits) = (u32::from(half.max(1)), credits.max(1));
    let mut incoming = Incoming::new(half, credits);
    let first = Buffer { address: 0, key: 0, length: half };
    let mut outgoing = Outgoing::new(credits, first);
    let mut granted = u64::from(half);
    for &(number, (address, length), moved) in steps {
        match Message::read(number) {
            Some(Message::Data(length)) if !incoming.received(length) => return,
            Some(Message::Credits(up_to)) => {
                outgoing.credited(up_to);
                if length > 0 && outgoing.wants_buffer() {
                    outgoing.granted(Buffer { address, key: 0, length });
                    granted += u64::from(length);
                }
            }
            Some(_) => {}
            None => return,
        }
        let (at, there) = incoming.next();
        assert!(at < 2 * half as usize && at + there <= 2 * half as usize);
        assert!(there <= incoming.unread() && incoming.unread() <= 2 * half as usize);
        incoming.read(there.min(moved.into()));
        let mut grants = 0;
        while let Some(grant) = incoming.grant() {
            assert!(grant.half.is_none_or(|at| at == 0 || at == half));
            incoming.told(grant);
            grants += 1;
        }
        assert!(grants <= 3, "{grants} grants after one message");
        let length = outgoing.room().min(moved.into());
        if length > 0 {
            let to = outgoing.take(length);
            assert_eq!(to.length, length);
            granted = granted.checked_sub(length.into()).expect("it was granted");
        }
    }
}

/// The address and the length of a peer's buffer.
pub type Buffered = (u64, u32);
