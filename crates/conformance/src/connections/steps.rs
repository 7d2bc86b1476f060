//! The events of a file as they come, and the steps that make a connection and end it.

use transom_abi::*;

use super::{File, Id, LIMIT, event};
use crate::harness::until;

impl File {
    /// Waits for the next event.
    pub fn event(&self) -> rdma_ucm_event_resp {
        until("an event", || {
            assert!(self.is_readable(LIMIT), "no event comes");
            self.try_event().ok()
        })
    }

    /// Waits for the next event, which must be this event of this id.
    pub fn expect(&self, what: u32, id: Id) -> rdma_ucm_event_resp {
        let event = self.event();
        let status = event.status as i32;
        assert_eq!((event.event, Id(event.id)), (what, id), "status {status}");
        event
    }

    /// Waits for a request for a connection.
    pub fn expect_request(&self) -> rdma_ucm_event_resp {
        let event = self.event();
        assert_eq!(event.event, event::CONNECT_REQUEST);
        event
    }

    /// The same. Returns the request's new id.
    pub fn request(&self) -> Id {
        Id(self.expect_request().id)
    }

    /// Asks for a connection to a listener of this file, and takes the request: the active end, the passive one.
    pub fn ask(&self, address: &str, qpn: u32) -> [Id; 2] {
        let active = self.id();
        self.resolve(active, address);
        self.connect(active, qpn, b"asks").expect("asked");
        [active, self.request()]
    }

    /// Connects to a listener of this file: the active end, the passive one.
    pub fn connected(&self, address: &str, [here, there]: [u32; 2]) -> [Id; 2] {
        let [active, passive] = self.ask(address, here);
        self.accept(passive, 2, there, b"accepts").expect("accepted");
        self.expect(event::CONNECT_RESPONSE, active);
        self.establish(active).expect("established");
        self.expect(event::ESTABLISHED, passive);
        [active, passive]
    }

    /// Ends a connection at both ends.
    pub fn part(&self, [active, passive]: [Id; 2]) {
        self.disconnect(active).expect("asked");
        self.expect(event::DISCONNECTED, passive);
        self.disconnect(passive).expect("confirmed");
        self.expect(event::DISCONNECTED, active);
    }
}
