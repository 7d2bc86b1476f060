//! Numbers as a person reads them.

use std::fmt;

use transom_device::Access;
use transom_device::qp::{Mask, QpState, Service};

/// So many bytes.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// Nanoseconds, in a suitable unit.
pub(super) struct Age(pub(super) u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0 as f64;
        match self.0 {
            0..1_000_000 => write!(f, "{:.0} µs", nanoseconds / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", nanoseconds / 1e6),
            _ => write!(f, "{:.1} s", nanoseconds / 1e9),
        }
    }
}

/// Rights that peers may be given.
pub(super) struct Rights(pub(super) Access);

impl Rights {
    fn told(&self) -> Access {
        self.0 & (Access::REMOTE | Access::LOCAL_WRITE | Access::FLUSH_GLOBAL)
    }

    /// Whether nothing is left to be told but local reading.
    pub(super) fn is_empty(&self) -> bool {
        self.told().is_empty()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() { f.write_str("nothing but local reading") } else { self.told().fmt(f) }
    }
}

/// Rights by their names in C.
pub(super) struct InC(pub(super) Access);

impl fmt::Display for InC {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, _)) in self.0.iter_names().enumerate() {
            write!(f, "{}IBV_ACCESS_{name}", if number > 0 { " | " } else { "" })?;
        }
        if self.0.iter_names().next().is_none() { f.write_str("0") } else { Ok(()) }
    }
}

/// A state of a queue pair, or an invalid number.
pub(super) struct StateNumber(pub(super) u64);

impl fmt::Display for StateNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.0).ok().and_then(QpState::new) {
            Some(state) => State(state).fmt(f),
            None => write!(f, "a state {}", self.0),
        }
    }
}

/// A state of a queue pair.
pub(super) struct State(pub(super) QpState);

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// A type of queue pair.
pub(super) struct ServiceName(pub(super) Service);

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Service::Rc => "RC",
            Service::Uc => "UC",
            Service::Ud => "UD",
            Service::XrcInitiator => "XRC_SEND",
            Service::XrcTarget => "XRC_RECV",
        })
    }
}

/// A mask, shown by the names of its attributes.
pub(super) struct Attributes(pub(super) u64);

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mask = Mask::from_bits_retain(self.0 as u32);
        for (number, (name, _)) in mask.iter_names().enumerate() {
            write!(f, "{}IBV_QP_{name}", if number > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

/// Bits of `send_ops_flags`, shown by their names in C.
pub(super) struct SendOperations(pub(super) u64);

impl fmt::Display for SendOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 13] = [
            "RDMA_WRITE",
            "RDMA_WRITE_WITH_IMM",
            "SEND",
            "SEND_WITH_IMM",
            "RDMA_READ",
            "ATOMIC_CMP_AND_SWP",
            "ATOMIC_FETCH_AND_ADD",
            "LOCAL_INV",
            "BIND_MW",
            "SEND_WITH_INV",
            "TSO",
            "FLUSH",
            "ATOMIC_WRITE",
        ];
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 != 0);
        for (number, (_, name)) in names.enumerate() {
            write!(f, "{}IBV_QP_EX_WITH_{name}", if number > 0 { " | " } else { "" })?;
        }
        match self.0 >> NAMES.len() {
            0 => Ok(()),
            _ => write!(f, "the bits {:#x}", self.0),
        }
    }
}
