//! What other sockets send, as `transom-inputs` reaches it. In builds with debug assertions only.

use super::datagram_protocol::{self, read_source, write_source};
use super::flow::{Incoming, Outgoing};
use super::protocol::{Buffer, Introduction, Message};

/// Private data of a connection: no introduction, or one that is read again as it was.
pub fn rsocket_introduction(bytes: &[u8]) {
    if let Some(introduction) = Introduction::read(bytes) {
        assert!(introduction.grants.length > 0);
        assert_eq!(Introduction::read(&introduction.bytes()), Some(introduction));
    }
}

/// What goes by UDP, and what goes between queue pairs of datagrams.
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

/// A stream whose peer keeps to nothing: each message with the buffer that stands in the list by then, and what the
/// program reads and writes after it. Nothing is read that was not granted and said to be there, nor is more sent than
/// the peer has granted.
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

/// Address and length of a buffer of the peer's.
pub type Buffered = (u64, u32);
