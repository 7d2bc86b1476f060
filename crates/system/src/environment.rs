//! The environment. All variables of this device and its command are listed here, and nothing else reads them.
//!
//! A set-user-ID program, or one with file capabilities, has rights that its user does not have, but it gets its
//! environment from that user. It must not obey that user: a capture would be a file of the program's owner with
//! content of the user's choice. The kernel tells every program whether it is such a program (`AT_SECURE`, see
//! `getauxval(3)`). In such a program nothing is read.

use std::ffi::OsString;
use std::io;

/// A variable.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// An example value, as a help text shows it.
    pub value: &'static str,
    /// The effect. Empty if `transom run` sets the variable and users do not.
    pub effect: &'static str,
}

/// Where the libraries are.
pub const LIB: Variable = Variable {
    name: "TRANSOM_LIB",
    value: "DIR",
    effect: "Take libibverbs.so.1 (or libibverbs.so) from DIR only, and librdmacm.so.1 too if it is there",
};
/// The name of the device.
pub const DEVICE_NAME: Variable = Variable {
    name: "TRANSOM_DEVICE_NAME",
    value: "NAME",
    effect: "The device's name, as with --device-name",
};
/// Several devices, or one that is not like others.
pub const DEVICES: Variable = Variable {
    name: "TRANSOM_DEVICES",
    value: "LIST",
    effect: "The devices, each as --device describes it, with ; between them",
};
/// The kind of windows of type 2.
pub const WINDOWS: Variable = Variable {
    name: "TRANSOM_WINDOWS",
    value: "2A",
    effect: "Make windows of type 2 of kind 2A instead of 2B",
};
/// How data is copied between processes.
pub const COPY: Variable = Variable {
    name: "TRANSOM_COPY",
    value: "rings",
    effect: "Copy through rings, even where the kernel could copy directly",
};
/// Which memory is shared.
pub const MEMORY: Variable = Variable {
    name: "TRANSOM_MEMORY",
    value: "private",
    effect: "Share no memory, so the kernel copies. Without it, peers directly access what the program \
             allocates aligned to a page after it has opened the device (posix_memalign and its like)",
};
/// Which links are used.
pub const LINK: Variable = Variable {
    name: "TRANSOM_LINK",
    value: "wire",
    effect: "Send everything as packets, also within this host; both ends need it",
};
/// Whether congestion is told.
pub const CONGESTION: Variable = Variable {
    name: "TRANSOM_CONGESTION",
    value: "notify",
    effect: "Have packets marked by a congested network, and notify their sender",
};
/// How long a connection waits for its answer.
pub const CONNECT_TIMEOUT: Variable = Variable {
    name: "TRANSOM_CONNECT_TIMEOUT",
    value: "MS",
    effect: "Give a connection up after so many milliseconds without an answer",
};
/// Whether what a peer has written tells that it is there.
pub const LAST_BYTE: Variable = Variable {
    name: "TRANSOM_LAST_BYTE",
    value: "tells",
    effect: "Under ThreadSanitizer, let the program look at memory until a peer has written it: for programs \
             that rely on the last byte to arrive last",
};
/// How much is logged.
pub const LOG: Variable = Variable {
    name: "TRANSOM_LOG",
    value: "LEVEL",
    effect: "Log to standard error: error, warn, info, debug or trace; off for nothing",
};
/// Faults of `transom run --fault`, with `;` between them.
pub const FAULT: Variable = of_a_run("TRANSOM_FAULT", "FAULTS");
/// The run of `transom run` that a program belongs to. The devices of a run are counted, so each gets the same random
/// numbers when the run is repeated.
pub const FAULT_RUN: Variable = of_a_run("TRANSOM_FAULT_RUN", "RUN");
/// The file of `transom run --capture`.
pub const CAPTURE: Variable = of_a_run("TRANSOM_CAPTURE", "FILE");
/// The directory of `transom check`: processes write their findings into it.
pub const CHECK: Variable = of_a_run("TRANSOM_CHECK", "DIR");
/// The directory of `transom exposure`: processes write what they open to peers into it.
pub const EXPOSURE: Variable = of_a_run("TRANSOM_EXPOSURE", "DIR");
/// The directory of `transom rehearse`: it has the plan, and processes write what was provoked into it.
pub const REHEARSE: Variable = of_a_run("TRANSOM_REHEARSE", "DIR");
/// The process beside a program. It speaks for the program when that is killed.
pub const WATCHER: Variable = of_a_run("TRANSOM_WATCHER", "NUMBER");
/// Where processes announce themselves to `transom trace`, which then asks for their events.
pub const TRACE: Variable = of_a_run("TRANSOM_TRACE", "NUMBER");
/// Where processes announce themselves to `transom run --explain` or `transom check`, which then knows whose refusals to
/// tell.
pub const EXPLAIN: Variable = of_a_run("TRANSOM_EXPLAIN", "NUMBER");
/// The directory with the device's files, where they cannot be mounted.
pub const TREE: Variable = of_a_run("TRANSOM_TREE", "DIR");

/// All variables.
pub const ALL: [&Variable; 21] = [
    &LIB,
    &DEVICE_NAME,
    &DEVICES,
    &WINDOWS,
    &COPY,
    &MEMORY,
    &LINK,
    &CONGESTION,
    &CONNECT_TIMEOUT,
    &LAST_BYTE,
    &LOG,
    &FAULT,
    &FAULT_RUN,
    &CAPTURE,
    &CHECK,
    &EXPOSURE,
    &REHEARSE,
    &WATCHER,
    &TRACE,
    &EXPLAIN,
    &TREE,
];

/// What is allowed in a variable of a run.
pub const SET_BY_A_RUN: &str = "what `transom run` sets it to";

/// The beginning of all names.
pub const PREFIX: &str = "TRANSOM_";

/// A variable has a value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value:?}, and may be {allowed}; or unset it")]
pub struct NotAllowed {
    name: &'static str,
    value: OsString,
    allowed: String,
}

impl From<NotAllowed> for io::Error {
    fn from(error: NotAllowed) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

const fn of_a_run(name: &'static str, value: &'static str) -> Variable {
    Variable { name, value, effect: "" }
}

impl Variable {
    /// Its value. An empty one counts as not set.
    pub fn text(&self) -> Option<OsString> {
        variable(self.name).filter(|value| !value.is_empty())
    }

    /// The meaning of its value, which must be one of these words.
    ///
    /// # Errors
    /// The value is none of them.
    pub fn choose<T: Copy>(&self, words: &[(&str, T)]) -> Result<Option<T>, NotAllowed> {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let allowed = match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => names.concat(),
        };
        let find = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, it)| *it);
        self.parse(&allowed, find)
    }

    /// The watcher that a variable of a run names, by its number.
    ///
    /// # Errors
    /// The value is no number.
    pub fn watcher(&self) -> Result<Option<u64>, NotAllowed> {
        self.parse(SET_BY_A_RUN, |text| u64::from_str_radix(text, 16).ok())
    }

    /// Its value, as `parse` reads it. `allowed` describes the allowed values, for the message.
    ///
    /// # Errors
    /// `parse` does not take the value.
    pub fn parse<T>(
        &self,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, NotAllowed> {
        let Some(value) = self.text() else { return Ok(None) };
        let Some(parsed) = value.to_str().and_then(parse) else {
            return Err(NotAllowed { name: self.name, value, allowed: allowed.to_owned() });
        };
        Ok(Some(parsed))
    }
}

/// The value of a variable. None in a program with rights that its user does not have.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    (!is_secure()).then(|| std::env::var_os(name)).flatten()
}

/// Whether this program has rights that its user does not have.
fn is_secure() -> bool {
    // SAFETY: looks up a number that the kernel left when the program started.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
