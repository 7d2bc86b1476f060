//! A listener hears what this process opens to peers, and what they ask for and touch. The check and the account of
//! exposure listen, each alone or both; all other processes look at one word. The same is recorded as events, if
//! somebody wants them.
//!
//! On the direct path this process hears of nothing. So a listener can have all requests come as messages, or withhold
//! rights. Then a request that needs one finds the direct path closed, and comes as a message. The listener hears of
//! it, and gives the right back before the device decides on the request.

use std::any::TypeId;
use std::sync::OnceLock;

use transom_device::Access;
use transom_device::execution::Request;
use transom_device::protection::{Attempt, Key, Operation, Snapshot, State, Witness};
use transom_device::qp::{Gate, QpNumber};
use transom_system::tools::{self, Tool};
use transom_system::trace::{Event, What};

use super::Device;

/// Hears what happens to the memory of this process. Calls about one key come in the order in which things happen. A
/// listener must not use the key, nor wait for somebody who does.
pub trait Listener: Sync {
    /// Whether all requests of peers are to come as messages. Asked when a device is opened.
    fn hears_all(&self) -> bool {
        false
    }

    /// A peer asks for an operation with a key. Nothing is decided yet.
    fn asked(&self, device: &Device, operation: Operation, key: Key) {
        let _ = (device, operation, key);
    }

    /// A region or window is about to be open. A window comes with the slot of its region.
    fn opened(&self, device: &Device, slot: u32, region: Option<u32>, object: &Snapshot) {
        let _ = (device, slot, region, object);
    }

    /// The rights of a window, which is about to be bound, that are withheld until they are
    /// [given back](Device::give_back).
    fn withholds(&self, device: &Device, slot: u32, window: &Snapshot) -> Access {
        let _ = (device, slot, window);
        Access::empty()
    }

    /// The region or window of a slot is closed, if it was open: nobody gets in by its key any more.
    fn closed(&self, device: &Device, slot: u32) {
        let _ = (device, slot);
    }

    /// A peer has touched this memory. The operation begins with it, or goes on.
    fn touched(&self, device: &Device, attempt: &Attempt, begins: bool) {
        let _ = (device, attempt, begins);
    }

    /// A queue pair lets a peer in so from now on. `gid` is the peer's address, if it is set now.
    fn lets_in(&self, device: &Device, pair: QpNumber, door: &Door) {
        let _ = (device, pair, door);
    }
}

/// What a queue pair lets in, and whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// Its gate.
    pub gate: Gate,
    /// The queue pair at the other end.
    pub peer: QpNumber,
    /// The address of the peer, if a program has set one with this change.
    pub gid: Option<[u8; 16]>,
}

/// Who listens, each once: from the first place on.
static LISTENERS: [OnceLock<(TypeId, &'static dyn Listener)>; 2] = [const { OnceLock::new() }; 2];

/// From now on, this listener hears of everything. One of each type does, of two types at most.
pub fn listen<L: Listener + 'static>(listener: &'static L) {
    let this = TypeId::of::<L>();
    let is_there = LISTENERS.iter().any(|place| {
        let (who, _) = place.get_or_init(|| (this, listener));
        *who == this
    });
    debug_assert!(is_there, "there is no place for a third listener");
    // Not while the place is being taken: a fork waits for nobody there, and has threads that turn tools on wait. Nor
    // only by who takes it: a child that is forked just then finds it taken.
    if !tools::is_on(Tool::Listener) {
        tools::turn_on(Tool::Listener);
    }
}

/// All listeners. If there is none, that costs a look at one word.
#[inline]
fn listeners() -> impl Iterator<Item = &'static dyn Listener> {
    LISTENERS.iter().map_while(|place| place.get().map(|(_, listener)| *listener))
}

/// Whether all requests of peers are to come as messages.
pub(crate) fn hears_all() -> bool {
    listeners().any(Listener::hears_all)
}

impl Device {
    /// A peer asks for this.
    #[inline]
    pub(crate) fn is_asked(&self, request: &Request) {
        for listener in listeners() {
            if let Some(at) = request.body.remote() {
                listener.asked(self, request.body.operation(), at.key);
            }
        }
    }

    /// This device as the witness of its key table, if somebody wants to know.
    #[inline]
    pub(crate) fn witness(&self) -> Option<&dyn Witness> {
        tools::any().then_some(self as &dyn Witness)
    }

    /// A region is about to be open.
    pub(crate) fn opens(&self, slot: u32, object: impl FnOnce() -> Snapshot) {
        if tools::any() {
            let object = object();
            self.trace_opened(slot, None, &object);
            listeners().for_each(|it| it.opened(self, slot, None, &object));
        }
    }

    /// The region or window of a slot is closed, because it has ended.
    pub(crate) fn closes(&self, slot: u32) {
        if tools::any() {
            self.has_closed(slot, Event::of(What::Closed));
        }
    }

    /// The region or window of a slot is closed. The event says by what.
    pub(crate) fn has_closed(&self, slot: u32, event: Event) {
        self.trace_closed(slot, event);
        listeners().for_each(|it| it.closed(self, slot));
    }

    /// What a queue pair lets in may have changed.
    pub(crate) fn lets_in(&self, pair: QpNumber, door: impl FnOnce() -> Door) {
        if tools::any() {
            let door = door();
            self.trace_changed(pair, &door);
            listeners().for_each(|it| it.lets_in(self, pair, &door));
        }
    }

    /// Withholds these rights of a region or a bound window, as far as it has them. Only while somebody
    /// [listens](listen), who gives them back. Whether the key has an object.
    pub fn withhold(&self, key: Key, rights: Access) -> bool {
        listeners().next().is_some() && self.process().segment().keys().withhold(key, rights)
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

impl Witness for Device {
    fn bound(&self, slot: u32, region: u32, window: &Snapshot) -> Access {
        self.trace_opened(slot, Some(region), window);
        let withheld = |it: &dyn Listener| {
            it.opened(self, slot, Some(region), window);
            it.withholds(self, slot, window)
        };
        listeners().map(withheld).fold(Access::empty(), |all, one| all | one)
    }

    fn unbound(&self, slot: u32, by: Operation) {
        self.has_closed(slot, Event { more: by.code().into(), ..Event::of(What::Closed) });
    }

    fn touched(&self, attempt: &Attempt, begins: bool) {
        listeners().for_each(|it| it.touched(self, attempt, begins));
    }
}
