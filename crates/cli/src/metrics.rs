//! `transom metrics`: the counters of the device, for the tools that people watch a host with.

mod exposition;
mod held;
mod seen;
mod server;
mod sysfs;

use crate::failure::{Failure, Result};
use seen::Seen;
use server::Server;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use transom_ibverbs::DeviceName;
use transom_system::environment::DEVICE_NAME;
use transom_system::registry::Registry;

const HELP: &str = "\
Without an option it prints the metrics once, as OpenMetrics. With one it goes on until you end it.

The counters of the port (node_infiniband_…) are sums over all processes of your user in this network
namespace. Those of processes that have ended stay in them. All others (transom_…) are by process, as
long as it runs.

Examples:
  transom metrics | grep refusals
  transom metrics --listen 127.0.0.1:9879
  transom metrics --file /var/lib/prometheus/node-exporter/transom.prom
  transom metrics --sysfs /run/transom-sys &
  prometheus-node-exporter --path.sysfs=/run/transom-sys";

/// Show the counters of the device to the tools that watch a host
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct MetricsArgs {
    /// Answer Prometheus at http://ADDRESS/metrics, on a loopback address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Keep a file up to date, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep a directory up to date that looks like /sys with the device in it, for exporters outside `transom run`
    #[arg(long, value_name = "DIR")]
    sysfs: Option<PathBuf>,
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
    let registry = crate::devices::registry()?;
    if args.listen.is_none() && args.file.is_none() && args.sysfs.is_none() {
        let text = text(registry, &name)?;
        return Ok(io::stdout().write_all(text.as_bytes())?);
    }
    let server = args.listen.map(Server::new).transpose()?;
    let path = args.sysfs.as_deref();
    let directory = path.map(|path| sysfs::Directory::new(path, name.clone())).transpose()?;
    // Before another thread begins, so that no signal ends this process there.
    let ends = Ends::block()?;
    if let Some(server) = server {
        let name = name.clone();
        std::thread::spawn(move || server.run(registry, &name));
    }
    let held = held::Held::default();
    loop {
        let tree = directory.as_ref().map(sysfs::Directory::tree).transpose()?;
        let text = args.file.as_ref().map(|_| text(registry, &name)).transpose()?;
        // Before anybody can see what a process has counted: then it is not lost if that process is killed.
        held.refresh(registry);
        if let (Some(directory), Some(tree)) = (&directory, &tree) {
            directory.refresh(tree)?;
        }
        if let (Some(file), Some(text)) = (&args.file, &text) {
            write(file, &exposition::plain(text))?;
        }
        if ends.come_within(INTERVAL) {
            break;
        }
    }
    // Nobody is to take old values for new ones.
    if let Some(file) = &args.file {
        fs::remove_file(file).map_err(|error| failure(file, &error))?;
    }
    directory.map_or(Ok(()), |directory| directory.remove())
}

fn text(registry: &Registry, name: &DeviceName) -> Result<String> {
    exposition::text(Seen::now(registry, name)?).map_err(Failure::new)
}

/// Replaces a file in one step.
fn write(file: &Path, text: &str) -> Result {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, file));
    written.map_err(|error| failure(file, &error))
}

fn failure(file: &Path, error: &io::Error) -> Failure {
    Failure::new(format_args!("{}: {error}", file.display()))
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
