//! The rights of peers, and the binds of windows that grant them.

/// Rights of peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// To use atomics.
    pub atomic: bool,
}

impl Rights {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            write: self.write || other.write,
            atomic: self.atomic || other.atomic,
        }
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self {
            read: self.read && !other.read,
            write: self.write && !other.write,
            atomic: self.atomic && !other.atomic,
        }
    }

    /// Their names for people. None if there are none.
    pub(super) fn names(self) -> Option<String> {
        let all = [(self.read, "read"), (self.write, "write"), (self.atomic, "atomic")];
        let names: Vec<_> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
        Some(match names[..] {
            [] => return None,
            [one] => format!("the remote {one} right"),
            [one, other] => format!("the remote {one} and {other} rights"),
            _ => "the remote read, write and atomic rights".to_owned(),
        })
    }
}

/// A bind of a window, in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The device.
    pub device: usize,
    /// The key that the window gets.
    pub key: u32,
    /// What peers may do with it.
    pub rights: Rights,
    /// The window is of type 1.
    pub is_type1: bool,
}
