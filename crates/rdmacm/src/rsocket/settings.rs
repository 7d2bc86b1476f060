//! The sizes of a socket's buffers and queues, and its other options.

use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The sizes of a socket's queue pair and buffers. An accepted socket has its listener's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The most requests under way.
    pub(crate) sends: u16,
    /// The most messages that wait to be received.
    pub(crate) receives: u16,
    /// The most bytes sent inline.
    pub(crate) inline: u32,
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
    /// The most mappings of the peer, for `riowrite`, that this end has room for.
    pub(crate) mappings: u16,
    /// How long a call polls before it sleeps.
    pub(crate) polling_time: Duration,
}

/// Requests reserved for messages about the stream itself. Data waits until there are more.
pub(crate) const CONTROLS: u16 = 4;
/// The fewest requests and messages with which a stream works.
const FEWEST: u16 = 16;
/// The smallest buffer, in bytes.
const LEAST: u32 = 4096;
/// The largest buffer, in bytes. The length in a message has more bits than this needs.
const MOST: u32 = 1 << 28;
/// Sets one of the sizes.
type Set = fn(&mut Settings, c_int);
/// The folder where the administrator sets other defaults.
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

    /// Reads the files of a folder. Each has one number.
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

    /// The length is even, because the buffer has two halves.
    pub(crate) fn set_receive_buffer(&mut self, bytes: c_int) {
        self.receive_buffer = (bytes.max(0) as u32).clamp(LEAST, MOST) & !1;
    }

    /// Rounds to a count that the introduction can express.
    pub(crate) fn set_mappings(&mut self, count: c_int) {
        self.mappings = super::protocol::unscaled(super::protocol::scaled(few(count)));
    }
}

fn few(count: c_int) -> u16 {
    // Messages are counted modulo 2^16.
    count.clamp(0, c_int::from(i16::MAX)) as u16
}

/// The other options of a socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// `SO_LINGER`: how long a close may wait until sent data has arrived.
    pub(crate) linger: Option<Duration>,
    /// Options that are only stored, and change nothing.
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
