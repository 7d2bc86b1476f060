//! Tells a listener which memory of this process peers ask for.
//!
//! On the direct path this process hears of nothing. So a listener can withhold rights. Then a request that needs one
//! finds the direct path closed, and comes as a message. The listener hears of it, and gives the right back before the
//! device decides on the request.

use std::sync::OnceLock;

use transom_device::Access;
use transom_device::execution::Request;
use transom_device::protection::{Key, Operation, State};

use super::Device;

/// Hears that a peer asks for an operation with a key.
pub type Hears = fn(&Device, Operation, Key);

static HEARS: OnceLock<Hears> = OnceLock::new();

/// From now on, this function hears of all requests that come as messages. It gives withheld rights back.
pub fn hear(hears: Hears) {
    HEARS.get_or_init(|| hears);
}

impl Device {
    /// A peer asks for this.
    #[inline]
    pub(crate) fn is_asked(&self, request: &Request) {
        if let (Some(hears), Some(at)) = (HEARS.get(), request.body.remote()) {
            hears(self, request.body.operation(), at.key);
        }
    }

    /// Withholds these rights of a region or a bound window, as far as it has them. Only while somebody
    /// [hears](hear), who gives them back. Whether the key has an object.
    pub fn withhold(&self, key: Key, rights: Access) -> bool {
        HEARS.get().is_some() && self.process().segment().keys().withhold(key, rights)
    }

    /// Gives these rights back, as far as they are withheld.
    pub fn give_back(&self, key: Key, rights: Access) {
        self.process().segment().keys().give_back(key, rights);
    }

    /// Whether a region or a bound window has this key.
    pub fn is_valid(&self, key: Key) -> bool {
        let object = self.process().segment().keys().look_up(key);
        object.state == State::Valid && object.byte == key.byte()
    }
}
