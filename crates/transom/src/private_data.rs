//! The bytes that connection messages carry for programs.

use std::fmt;
use std::ops::Deref;

/// The length of the marking at the end, in bytes.
const MARKING: usize = 2;

/// The bytes that a peer's program sent with its request for a connection, its acceptance or its refusal. It
/// dereferences to them.
///
/// The connection manager carries a fixed number of bytes, and does not tell how many of them the program sent. So this
/// crate fills the rest with zeros, and writes the number and its complement into the last two bytes. A peer that uses
/// this crate gets exactly the bytes that were sent. Any other peer finds them at the beginning. The two bytes reduce
/// the room: to 54 bytes in a request for a connection, 194 in its acceptance, 146 in its refusal.
///
/// The data of another program have no such marking. Then you get all that the connection manager carried, with the
/// zeros at the end ([`is_padded`](Self::is_padded)). Such programs know how much of it is theirs.
///
/// ```
/// use transom::PrivateData;
///
/// /// A server's view of a request.
/// fn greet(data: &PrivateData) -> String {
///     match data.is_padded() {
///         true => "a program that does not use this crate".to_owned(),
///         false => String::from_utf8_lossy(data).into_owned(),
///     }
/// }
/// assert_eq!(greet(&PrivateData::default()), "");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PrivateData {
    bytes: Vec<u8>,
    padded: bool,
}

impl PrivateData {
    /// The bytes to send to a peer, if there is room for them.
    pub(crate) fn marked(data: &[u8], room: usize) -> Option<Vec<u8>> {
        let length = u8::try_from(data.len()).ok().filter(|_| data.len() + MARKING <= room)?;
        let mut bytes = vec![0; room];
        bytes[..data.len()].copy_from_slice(data);
        bytes[room - MARKING..].copy_from_slice(&[length, !length]);
        Some(bytes)
    }

    /// The number of bytes a program can send if the connection manager carries `carried` bytes.
    pub(crate) fn room(carried: usize) -> usize {
        carried - MARKING
    }

    /// Decodes the bytes that came.
    pub(crate) fn received(mut bytes: Vec<u8>) -> Self {
        let length = match bytes.as_slice() {
            [data @ .., length, complement] if *complement == !*length => {
                let behind = data.get(usize::from(*length)..);
                behind.is_some_and(|zeros| zeros.iter().all(|byte| *byte == 0)).then_some(*length)
            }
            _ => None,
        };
        if let Some(length) = length {
            bytes.truncate(length.into());
        }
        Self { padded: length.is_none() && !bytes.is_empty(), bytes }
    }

    /// Whether the peer sent no length. There may then be zeros at the end that its program did not send.
    pub fn is_padded(&self) -> bool {
        self.padded
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for PrivateData {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zeros = self.bytes.iter().rev().take_while(|byte| self.padded && **byte == 0).count();
        let (data, _) = self.bytes.split_at(self.bytes.len() - zeros);
        write!(f, "PrivateData(\"{}\"", data.escape_ascii())?;
        if self.padded {
            write!(f, ", padded with {zeros} zeros")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back_as_it_was_sent() {
        for room in [56, 136, 148, 180, 196] {
            // Data that end with a zero, or like a marking.
            for last in [0, 1, 0xFF] {
                for length in 0..=PrivateData::room(room) {
                    let mut data = vec![7; length];
                    data.iter_mut().rev().take(1).for_each(|byte| *byte = last);
                    let sent = PrivateData::marked(&data, room).expect("there is room");
                    assert_eq!(sent.len(), room);
                    assert_eq!(sent[..length], data);
                    let received = PrivateData::received(sent);
                    assert_eq!((&*received, received.is_padded()), (&*data, false));
                }
            }
            assert_eq!(PrivateData::marked(&vec![0; room - 1], room), None);
            assert_eq!(PrivateData::marked(&vec![0; room + 300], room), None);
        }
    }

    #[test]
    fn what_is_not_marked_is_padded() {
        let cases: [&[u8]; 6] = [
            &[0; 56],
            b"hello\0\0\0",
            b"\0\0\x01\x01",
            // A length that is too large, and bytes behind the length.
            &[0, 0, 3, !3],
            &[0, 9, 1, !1],
            &[1],
        ];
        for bytes in cases {
            let received = PrivateData::received(bytes.to_vec());
            assert_eq!((&*received, received.is_padded()), (bytes, true));
        }
        assert!(!PrivateData::received(vec![]).is_padded());
        let shown = format!("{:?}", PrivateData::received(b"hi\0\0\0\0".to_vec()));
        assert_eq!(shown, "PrivateData(\"hi\", padded with 4 zeros)");
    }
}
