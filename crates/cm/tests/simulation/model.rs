//! The events that programs may get, from the rules and without the engine's code.

use std::collections::{BTreeMap, BTreeSet};

use transom_cm::Happened;
use transom_cm::event::Offer;
use transom_wire::cm::{CommId, Qpn};

/// The name of an id: its process, the process's life, and the id.
pub(crate) type Name = (usize, u32, CommId);

/// The progress of an id, as its program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// connect, for a connection or a datagram service.
    Asking,
    /// CONNECT_RESPONSE.
    Answered,
    /// The program has confirmed that its queue pair is ready.
    Up,
    /// CONNECT_REQUEST.
    Asked,
    /// accept.
    Accepted,
    /// ESTABLISHED, or a datagram's queue pair is known.
    Established,
    Disconnected,
    /// No event may come any more.
    Over,
}

#[derive(Debug)]
struct Known {
    step: Step,
    datagram: bool,
    /// Whether the program has fetched the event with this id.
    fetched: bool,
    qpn: Qpn,
    /// For an id that came with a request: the id that asked.
    asker: Option<Name>,
    /// READs and atomics from connect or accept: responder resources and initiator depth.
    reads: (u8, u8),
}

/// All ids so far.
#[derive(Default)]
pub(crate) struct Model {
    ids: BTreeMap<Name, Known>,
    destroyed: BTreeSet<Name>,
}

impl Model {
    pub(crate) fn connects(&mut self, name: Name, datagram: bool, qpn: Qpn, reads: (u8, u8)) {
        let (step, asker, fetched) = (Step::Asking, None, true);
        let known = Known { step, datagram, fetched, qpn, asker, reads };
        assert!(self.ids.insert(name, known).is_none(), "{name:?} is given twice");
    }

    pub(crate) fn accepts(&mut self, name: Name, qpn: Qpn, reads: (u8, u8)) {
        let known = self.ids.get_mut(&name).expect("a known id");
        (known.step, known.qpn, known.reads) = (Step::Accepted, qpn, reads);
        if known.datagram {
            known.step = Step::Over;
        }
    }

    pub(crate) fn fetches(&mut self, name: Name) {
        self.ids.get_mut(&name).expect("a known id").fetched = true;
    }

    pub(crate) fn refuses(&mut self, name: Name) {
        self.ids.get_mut(&name).expect("a known id").step = Step::Over;
    }

    pub(crate) fn is_up(&mut self, name: Name) {
        self.ids.get_mut(&name).expect("a known id").step = Step::Up;
    }

    pub(crate) fn destroys(&mut self, name: Name) {
        self.destroyed.insert(name);
    }

    pub(crate) fn step(&self, name: Name) -> Option<Step> {
        self.ids.get(&name).map(|known| known.step)
    }

    /// The id whose request has brought an id.
    pub(crate) fn asker(&self, name: Name) -> Option<Name> {
        self.ids.get(&name)?.asker
    }

    /// A program gets a new id. `asker` is the id that asked, from the request's private data.
    pub(crate) fn hears_of_request(&mut self, name: Name, asker: Name, offer: Option<&Offer>) {
        let asking = self.ids.get(&asker).expect("a request that somebody has made");
        assert_eq!(asking.datagram, offer.is_none());
        if let Some(offer) = offer {
            assert_eq!(offer.qpn, asking.qpn);
            assert_eq!((offer.initiator_depth, offer.responder_resources), asking.reads);
        }
        let datagram = asking.datagram;
        // A repeated request may be a new one if its earlier id is gone, but never beside it.
        let beside = self.ids.iter().find(|(other, known)| {
            known.asker == Some(asker)
                && other.0 == name.0
                && other.1 == name.1
                && !datagram
                && !self.destroyed.contains(other)
                && matches!(known.step, Step::Asked | Step::Accepted | Step::Established)
        });
        assert!(beside.is_none(), "{asker:?} is {beside:?} already, and {name:?} too");
        let (step, asker, fetched) = (Step::Asked, Some(asker), false);
        let (qpn, reads) = (Qpn::default(), (0, 0));
        let known = Known { step, datagram, fetched, qpn, asker, reads };
        assert!(self.ids.insert(name, known).is_none(), "{name:?} is given twice");
    }

    /// The unfetched requests of a process: for datagrams or for connections.
    pub(crate) fn unfetched(
        &self,
        (process, life): (usize, u32),
        datagram: bool,
    ) -> impl Iterator<Item = CommId> {
        let waits = self.ids.iter().filter(move |(name, known)| {
            (name.0, name.1, known.datagram) == (process, life, datagram)
                && known.step == Step::Asked
                && !known.fetched
        });
        waits.map(|(name, _)| name.2)
    }

    /// A program gets another event. The peer of a response is in its private data.
    pub(crate) fn hears(&mut self, name: Name, happened: &Happened, peer: Option<Name>) {
        assert!(!self.destroyed.contains(&name), "{name:?} is gone and hears {happened:?}");
        let known = self.ids.get(&name).unwrap_or_else(|| panic!("{name:?} hears {happened:?}"));
        let passive = known.asker.is_some();
        let next = match (known.step, happened) {
            (Step::Asking, Happened::ConnectResponse { offer, .. }) if !known.datagram => {
                let peer = &self.ids[&peer.expect("who has accepted")];
                assert_eq!(peer.asker, Some(name), "somebody else's answer");
                assert_eq!(offer.qpn, peer.qpn);
                assert_eq!((offer.initiator_depth, offer.responder_resources), peer.reads);
                Step::Answered
            }
            (Step::Asking, Happened::Resolved { qpn, .. }) if known.datagram => {
                let peer = &self.ids[&peer.expect("who has accepted")];
                assert_eq!((peer.asker, peer.qpn), (Some(name), *qpn));
                Step::Over
            }
            (Step::Asking, Happened::NotServed { .. }) if known.datagram => Step::Over,
            (Step::Asking, Happened::Rejected { .. }) if !known.datagram => Step::Over,
            (Step::Asking, Happened::Unreachable) => Step::Over,
            (Step::Answered | Step::Up, Happened::Rejected { .. }) => Step::Over,
            (Step::Up, Happened::Disconnected { .. }) => Step::Disconnected,
            (Step::Asked, Happened::Rejected { .. }) if !known.datagram => Step::Over,
            (Step::Accepted, Happened::Established) => {
                let asker = known.asker.expect("a passive end");
                let up = self.ids[&asker].step;
                let was_up = matches!(up, Step::Up | Step::Disconnected | Step::Over);
                assert!(was_up, "{name:?} is established, and {asker:?} is {up:?}");
                Step::Established
            }
            (Step::Accepted, Happened::Rejected { .. } | Happened::Unreachable) => Step::Over,
            (Step::Accepted | Step::Established, Happened::Disconnected { .. }) => {
                Step::Disconnected
            }
            (Step::Established, Happened::Rejected { .. }) => Step::Over,
            (Step::Disconnected, Happened::TimewaitExit) => Step::Over,
            (step, happened) => {
                panic!("{name:?} ({step:?}, passive: {passive}) hears {happened:?}")
            }
        };
        self.ids.get_mut(&name).expect("a known id").step = next;
    }
}
