//! How large a socket's buffers and queues are, and what else its options say.

use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Sizes that a socket's queue pair and buffers are made with. A socket that is accepted has its
/// listener's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Requests under way.
    pub(crate) sends: u16,
    /// Messages that wait to be received.
    pub(crate) receives: u16,
    /// Bytes sent inline.
    pub(crate) inline: u32,
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
    /// Buffers of the peer's that this end can be told of for `riowrite`.
    pub(crate) mappings: u16,
    /// How long a call looks for data before it sleeps.
    pub(crate) polling_time: Duration,
}

/// Requests that only messages about the stream itself take: data waits until there are more.
pub(crate) const CONTROLS: u16 = 4;
/// The fewest requests and messages that a stream goes on with.
const FEWEST: u16 = 16;
/// The least that a buffer may have.
const LEAST: u32 = 4096;
/// The most: what a message may say has more bits.
const MOST: u32 = 1 << 28;
/// Sets one of the sizes.
type Set = fn(&mut Settings, c_int);
/// Where the administrator sets other defaults.
const FOLDER: &str = "/etc/rdma/rsocket";

impl Settings {
    /// The defaults of this system.
    pub(crate) fn new() -> Self {
        static SYSTEM: OnceLock<Settings> = OnceLock::new();
        *SYSTEM.get_or_init(|| {
            let mut settings = Self {
                sends: 384,
                receives: 384,
                inline: 64,
                send_buffer: 1 << 17,
                receive_buffer: 1 << 17,
                mappings: 0,
                polling_time: Duration::from_micros(10),
            };
            settings.read(Path::new(FOLDER));
            settings
        })
    }

    /// Takes what the files of a folder say, one number each.
    fn read(&mut self, folder: &Path) {
        let read = |name| {
            let text = std::fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse::<c_int>().ok().filter(|number| *number >= 0)
        };
        let files: [(&str, Set); 6] = [
            ("sqsize_default", Self::set_sends),
            ("rqsize_default", Self::set_receives),
            ("inline_default", Self::set_inline),
            ("wmem_default", Self::set_send_buffer),
            ("mem_default", Self::set_receive_buffer),
            ("iomap_size", Self::set_mappings),
        ];
        for (name, set) in files {
            if let Some(number) = read(name) {
                set(self, number);
            }
        }
        if let Some(microseconds) = read("polling_time") {
            self.polling_time = Duration::from_micros(microseconds as u64);
        }
    }

    pub(crate) fn set_sends(&mut self, count: c_int) {
        self.sends = few(count).max(FEWEST);
    }

    pub(crate) fn set_receives(&mut self, count: c_int) {
        self.receives = few(count).max(FEWEST);
    }

    pub(crate) fn set_inline(&mut self, bytes: c_int) {
        self.inline = bytes.clamp(0, c_int::from(u16::MAX)) as u32;
    }

    pub(crate) fn set_send_buffer(&mut self, bytes: c_int) {
        self.send_buffer = (bytes.max(0) as u32).clamp(LEAST, MOST);
    }

    /// It has two halves.
    pub(crate) fn set_receive_buffer(&mut self, bytes: c_int) {
        self.receive_buffer = (bytes.max(0) as u32).clamp(LEAST, MOST) & !1;
    }

    /// As many as the peer can be told.
    pub(crate) fn set_mappings(&mut self, count: c_int) {
        self.mappings = super::protocol::unscaled(super::protocol::scaled(few(count)));
    }
}

fn few(count: c_int) -> u16 {
    // Messages are counted modulo 2^16.
    count.clamp(0, c_int::from(i16::MAX)) as u16
}

/// What the other options of a socket say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// Of `SO_LINGER`: how long closing may take for what was sent.
    pub(crate) linger: Option<Duration>,
    /// Numbers that are kept and answered, and change nothing.
    pub(crate) kept: Vec<((c_int, c_int), c_int)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_kept_within_what_works() {
        let mut settings = Settings::new();
        settings.set_sends(-1);
        settings.set_receives(c_int::MAX);
        settings.set_receive_buffer(4097);
        settings.set_send_buffer(c_int::MAX);
        settings.set_mappings(1000);
        assert_eq!((settings.sends, settings.receives), (16, 32767));
        assert_eq!((settings.receive_buffer, settings.send_buffer), (4096, 1 << 28));
        assert_eq!(settings.mappings, 768);
    }

    #[test]
    fn files_of_the_administrator_set_defaults() {
        let folder = std::env::temp_dir().join(format!("rsocket-settings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("mem_default"), "1000000\n").unwrap();
        std::fs::write(folder.join("polling_time"), "0").unwrap();
        std::fs::write(folder.join("sqsize_default"), "many").unwrap();
        let mut settings = Settings::new();
        let sends = settings.sends;
        settings.read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(settings.receive_buffer, 1_000_000);
        assert_eq!((settings.polling_time, settings.sends), (Duration::ZERO, sends));
    }
}
