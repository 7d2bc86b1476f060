//! Devices of this crate's tests.

use std::fs::File;
use std::ops::Deref;
use std::process::Command;
use std::sync::Arc;

use transom_net::Network;

use crate::{Adapter, Options};

/// The turn of one test, among all processes that run tests.
///
/// When a device comes or goes, packets of others may go astray for a moment and come late, handed on. A test that
/// depends on when they come needs to be alone.
pub(crate) fn turn() -> File {
    let this = std::env::current_exe().expect("a test has a path");
    let turn = File::open(this).expect("it can be read");
    turn.lock().expect("a lock");
    turn
}

/// Marks a process that a test started for itself, because all devices of a process fail together.
const ALONE: &str = "TRANSOM_TEST_ALONE";

/// Whether this is such a process. If not, runs the test in one.
#[expect(clippy::disallowed_methods, reason = "a test's own variable")]
pub(crate) fn alone(test: &str) -> bool {
    let is_alone = std::env::var_os(ALONE).is_some();
    if !is_alone {
        let this = std::env::current_exe().expect("a test has a path");
        let _turn = turn();
        let status = Command::new(this).args(["--exact", test]).env(ALONE, "1").status();
        assert!(status.expect("it starts").success());
    }
    is_alone
}

/// A device with its port open, alone.
pub(crate) struct OnTheWire {
    // Closed before the turn ends.
    adapter: Arc<Adapter>,
    _turn: File,
}

impl OnTheWire {
    pub(crate) fn open() -> Self {
        Self::open_over(None)
    }

    /// Over another network.
    pub(crate) fn open_over(network: Option<Arc<dyn Network>>) -> Self {
        let turn = turn();
        let options = Options { wire_only: true, ..Options::default() };
        let adapter = Adapter::open_on(options, |_, _| network).expect("a device opens");
        adapter.device().port().open_wire().expect("the port is free");
        Self { adapter, _turn: turn }
    }
}

impl Deref for OnTheWire {
    type Target = Arc<Adapter>;

    fn deref(&self) -> &Arc<Adapter> {
        &self.adapter
    }
}
