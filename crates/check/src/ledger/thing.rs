//! The objects of the program.

use super::Ledger;
use crate::{Call, Kind};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thing {
    /// `ibv_qp`
    QueuePair,
    /// `ibv_cq`
    CompletionQueue,
    /// `ibv_srq`
    SharedReceiveQueue,
    /// `ibv_mw`
    Window,
    /// `ibv_mr`
    Region,
    /// `ibv_ah`
    AddressHandle,
    /// `ibv_dm`
    DeviceMemory,
    /// `ibv_comp_cntr`
    CompletionCounter,
    /// `ibv_xrcd`
    XrcDomain,
    /// `ibv_pd`
    Domain,
    /// `ibv_comp_channel`
    Channel,
    /// `ibv_buf`
    Buffer,
    /// `rdma_cm_id`
    Id,
    /// A multicast group that an id has joined.
    Group,
}

impl Thing {
    /// The name of one object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueuePair => "queue pair",
            Self::CompletionQueue => "completion queue",
            Self::SharedReceiveQueue => "shared receive queue",
            Self::Window => "memory window",
            Self::Region => "memory region",
            Self::AddressHandle => "address handle",
            Self::DeviceMemory => "device memory",
            Self::CompletionCounter => "completion counter",
            Self::XrcDomain => "XRC domain",
            Self::Domain => "protection domain",
            Self::Channel => "completion channel",
            Self::Buffer => "buffer",
            Self::Id => "rdma_cm id",
            Self::Group => "multicast group",
        }
    }

    /// The name of several objects.
    pub fn plural(self) -> String {
        match self {
            Self::DeviceMemory => "pieces of device memory".to_owned(),
            other => format!("{}s", other.name()),
        }
    }

    /// The function that ends one.
    pub const fn ended_by(self) -> &'static str {
        match self {
            Self::QueuePair => "ibv_destroy_qp",
            Self::CompletionQueue => "ibv_destroy_cq",
            Self::SharedReceiveQueue => "ibv_destroy_srq",
            Self::Window => "ibv_dealloc_mw",
            Self::Region => "ibv_dereg_mr",
            Self::AddressHandle => "ibv_destroy_ah",
            Self::DeviceMemory => "ibv_free_dm",
            Self::CompletionCounter => "ibv_destroy_comp_cntr",
            Self::XrcDomain => "ibv_close_xrcd",
            Self::Domain => "ibv_dealloc_pd",
            Self::Channel => "ibv_destroy_comp_channel",
            Self::Buffer => "ibv_free_buf",
            Self::Id => "rdma_destroy_id",
            Self::Group => "rdma_leave_multicast",
        }
    }

    /// Names an object with its number or key. 0 means that it has none.
    pub fn called(self, number: u32) -> String {
        let name = self.name();
        match (number, self) {
            (0, Self::AddressHandle | Self::XrcDomain | Self::Id) => format!("an {name}"),
            (0, _) => format!("a {name}"),
            (key, Self::Region | Self::Window) => format!("the {name} with key {key:#010x}"),
            (number, _) => format!("{name} {number:#x}"),
        }
    }
}

/// A living object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) context: usize,
    /// The number or key that programs see, or 0.
    pub(super) number: u32,
    pub(super) call: Call,
    /// The last call that failed to end it with EBUSY.
    pub(super) refused: Option<Call>,
}

/// An object that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grave {
    thing: Thing,
    address: usize,
    made: Made,
    ended: Call,
}

impl Ledger {
    /// An object is made in a context.
    pub fn made(&mut self, thing: Thing, address: usize, context: usize, number: u32, call: &Call) {
        self.forget_grave(thing, address);
        let made = Made { context, number, call: *call, refused: None };
        self.objects.insert((thing, address), made);
    }

    /// The memory of an object that has ended is another's now.
    pub(super) fn forget_grave(&mut self, thing: Thing, address: usize) {
        self.graves.retain(|grave| (grave.thing, grave.address) != (thing, address));
    }

    /// A call that should end an object returns EBUSY.
    pub fn busy(&mut self, thing: Thing, address: usize, call: &Call) {
        if let Some(made) = self.objects.get_mut(&(thing, address)) {
            made.refused = Some(*call);
        }
    }

    /// An object has ended.
    pub fn ended(&mut self, thing: Thing, address: usize, call: &Call) {
        match thing {
            Thing::CompletionQueue => self.queue_ends(address),
            Thing::SharedReceiveQueue => self.shared_queue_ends(address),
            _ => {}
        }
        let Some(made) = self.objects.remove(&(thing, address)) else { return };
        self.events_end(thing, address);
        if thing == Thing::CompletionQueue {
            self.watched.remove(&address);
        }
        if thing == Thing::SharedReceiveQueue {
            let mut posted = self.shared.remove(&address).unwrap_or_default();
            self.memory.landed(posted.iter_mut());
            self.tagged.end(address, &mut self.memory);
            self.shared_queues.remove(&address);
        }
        if self.graves.len() == super::GRAVES {
            self.graves.pop_front();
        }
        self.graves.push_back(Grave { thing, address, made, ended: *call });
    }

    /// An object or a context ends by a call, or with the process, and the program has not read these fatal events of
    /// it.
    pub fn events_unread(
        &mut self,
        thing: Option<Thing>,
        address: usize,
        events: &[&str],
        call: Option<&Call>,
    ) {
        let Some(first) = events.first() else { return };
        let made = thing.and_then(|thing| self.objects.get(&(thing, address)));
        let (of, ends) = match (thing, made) {
            (Some(thing), Some(made)) => {
                (format!(" of {}", thing.called(made.number)), "destroyed")
            }
            _ => (String::new(), "closed"),
        };
        let says =
            format!("{first}{of} was raised, and nobody has called ibv_get_async_event for it.");
        let call = call.map(|call| (format!("{ends} here"), *call));
        let mut calls: Vec<_> = call.into_iter().collect();
        calls.extend(thing.and_then(|thing| self.made_by(thing, address)));
        self.found(Kind::AsyncUnread, says, calls);
    }

    /// The living object of this kind that has this number.
    pub fn numbered(&self, thing: Thing, number: u32) -> Option<usize> {
        let mut all = self.objects.range((thing, 0)..=(thing, usize::MAX));
        all.find(|(_, made)| made.number == number).map(|((_, address), _)| *address)
    }

    /// The call that made the window that has this key. A bind changes only the lowest byte of a window's key. None if
    /// windows of several devices may have it.
    pub(super) fn window_made(&self, key: u32) -> Option<(String, Call)> {
        let (first, last) = ((Thing::Window, 0), (Thing::Window, usize::MAX));
        let mut of_key =
            self.objects.range(first..=last).filter(|(_, made)| made.number >> 8 == key >> 8);
        let (_, made) = of_key.next().filter(|_| of_key.next().is_none())?;
        Some(("made here".to_owned(), made.call))
    }

    /// The call that made a living object.
    pub(super) fn made_by(&self, thing: Thing, address: usize) -> Option<(String, Call)> {
        let made = self.objects.get(&(thing, address))?;
        Some(("made here".to_owned(), made.call))
    }

    /// Whether an object of this kind has ended at this address.
    pub(super) fn is_grave(&self, thing: Thing, address: usize) -> bool {
        self.graves.iter().any(|it| (it.thing, it.address) == (thing, address))
    }

    /// A verb gets a pointer that points to no living object.
    pub fn not_alive(&mut self, verb: &str, thing: Thing, address: usize, call: &Call) {
        let mut graves = self.graves.iter().rev();
        let Some(grave) = graves.find(|it| (it.thing, it.address) == (thing, address)) else {
            return;
        };
        let says = format!("{verb} got {}, which is destroyed.", thing.called(grave.made.number));
        let calls =
            [("used here", *call), ("destroyed here", grave.ended), ("made here", grave.made.call)];
        let calls = calls.map(|(what, call)| (what.to_owned(), call)).to_vec();
        self.found(Kind::UsedAfterDestroy, says, calls);
    }
}
