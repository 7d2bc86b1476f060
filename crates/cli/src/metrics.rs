//! `transom metrics`: the counters of the device, for the tools that people watch a host with.

mod held;
mod sysfs;

use crate::failure::{Failure, Result};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use transom_ibverbs::DeviceName;
use transom_system::environment::DEVICE_NAME;

const HELP: &str = "\
Examples:
  transom metrics --sysfs /run/transom-sys &
  prometheus-node-exporter --path.sysfs=/run/transom-sys \\
    --collector.disable-defaults --collector.infiniband";

/// Show the counters of the device to the tools that watch a host.
///
/// The counters are sums over all processes of your user in this network namespace. Those of processes that have
/// ended stay in them.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct MetricsArgs {
    /// Keep a directory up to date that looks like /sys with the device in it, for exporters outside `transom run`
    #[arg(long, value_name = "DIR")]
    sysfs: PathBuf,
    /// Give the device another name there
    #[arg(long, value_name = "NAME")]
    device_name: Option<DeviceName>,
}

/// How often files are brought up to date.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &MetricsArgs) -> Result {
    let name = match &args.device_name {
        Some(name) => name.clone(),
        None => DeviceName::chosen()
            .cloned()
            .map_err(|error| Failure::new(format_args!("{}: {error}", DEVICE_NAME.name)))?,
    };
    let (registry, held) = (crate::devices::registry()?, held::Held::default());
    let directory = sysfs::Directory::new(&args.sysfs, name)?;
    let ends = Ends::block()?;
    loop {
        held.refresh(registry);
        directory.refresh()?;
        if ends.come_within(INTERVAL) {
            return directory.remove();
        }
    }
}

/// The signals that end this command.
struct Ends(libc::sigset_t);

impl Ends {
    /// Has them wait until they are asked for.
    fn block() -> Result<Self> {
        // SAFETY: `sigemptyset` fills the set in before anything reads it, and each call gets valid pointers.
        let (set, blocked) = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            (set, libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
        };
        if blocked != 0 {
            return Err(Failure::new(io::Error::last_os_error()));
        }
        Ok(Self(set))
    }

    /// Waits that long. True if one comes.
    fn come_within(&self, time: Duration) -> bool {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: both are valid, and nothing is told of the signal.
        unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const time) > 0 }
    }
}
