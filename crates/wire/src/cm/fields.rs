//! The parts that messages are made of.

use core::fmt;

/// A number of `N` bits, at most 32.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits<const N: u32>(u32);

impl<const N: u32> Bits<N> {
    /// The greatest.
    pub const MAX: Self = Self(u32::MAX >> (32 - N));

    /// This number; `None` if it takes more bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// The number in the low bits.
    pub const fn low(value: u32) -> Self {
        Self(value & Self::MAX.0)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const N: u32> fmt::Debug for Bits<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A queue pair's number.
pub type Qpn = Bits<24>;

/// A communication id: one end's name for a connection. Zero if there is none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// A time t, which stands for 4.096 microseconds · 2^t.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeCode(Bits<5>);

impl TimeCode {
    /// The longest, over two hours.
    pub const MAX: Self = Self(Bits::MAX);

    /// The time of a code below 32; `None` above.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(Bits::low(code as u32))) } else { None }
    }

    /// The time of a field.
    pub const fn of(bits: Bits<5>) -> Self {
        Self(bits)
    }

    /// The code in a field.
    pub const fn bits(self) -> Bits<5> {
        self.0
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0.get() as u8
    }

    /// Milliseconds as Linux counts them, 2^(t-8), and one at least (rule CM-14).
    pub const fn milliseconds(self) -> u64 {
        1 << self.0.get().saturating_sub(8)
    }
}

/// How long a packet's payload may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say the bytes, the values are the codes")]
pub enum PathMtu {
    B256 = 1,
    B512,
    B1024,
    B2048,
    B4096,
}

impl PathMtu {
    /// The MTU of a code from 1 to 5.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            5 => Self::B4096,
            _ => return None,
        })
    }

    /// The code, from 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Bytes.
    pub const fn bytes(self) -> u32 {
        128 << self.code()
    }
}

/// Information that goes with a refusal, up to 72 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Information {
    length: u8,
    bytes: [u8; Self::MAX],
}

impl Information {
    /// The most bytes.
    pub const MAX: usize = 72;
    /// None.
    pub const NONE: Self = Self { length: 0, bytes: [0; Self::MAX] };

    /// These bytes; `None` if they are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut information = Self::NONE;
        information.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        // At most 72, because the bytes have found room.
        information.length = bytes.len() as u8;
        Some(information)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The room in a message.
    pub(super) fn room(&self) -> [u8; Self::MAX] {
        self.bytes
    }

    /// The length in a message.
    pub(super) fn length(&self) -> u8 {
        self.length
    }
}

impl fmt::Debug for Information {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().fmt(f)
    }
}
