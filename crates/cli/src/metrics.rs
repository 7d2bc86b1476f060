//! `transom metrics`: the counters of the device, for the tools that people watch a host with.

mod exposition;
pub(crate) mod held;
pub(crate) mod seen;
mod server;
mod sysfs;
mod timed;

use crate::failure::{Failure, Result};
use crate::layout;
use crate::signals::Signals;
use held::Held;
use seen::Seen;
use server::Server;
use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transom_ibverbs::{Description, DeviceName};
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
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Keep a file up to date, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep a directory up to date that looks like /sys with the device in it, for exporters outside `transom run`
    #[arg(long, value_name = "DIR")]
    sysfs: Option<PathBuf>,
    /// Give the first device another name there
    #[arg(long, value_name = "NAME")]
    device_name: Option<DeviceName>,
}

/// An address of the host itself, with a port.
fn parse_address(text: &str) -> std::result::Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9879".to_owned())
}

/// How often files are brought up to date.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &MetricsArgs) -> Result {
    let devices = match &args.device_name {
        Some(name) => vec![Description::plain(name.clone())],
        None => Description::chosen().map_err(Failure::new)?.to_vec(),
    };
    let registry = crate::devices::registry()?;
    if args.listen.is_none() && args.file.is_none() && args.sysfs.is_none() {
        let text = text(registry, &devices)?;
        return Ok(io::stdout().write_all(text.as_bytes())?);
    }
    let server = args.listen.map(Server::new).transpose()?;
    // Before another thread begins, so that no signal ends this process there.
    let ends = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let path = args.sysfs.as_deref();
    let directory =
        path.map(|path| sysfs::Directory::new(path, registry, devices.clone())).transpose()?;
    let file = args.file.as_deref().map(TextFile::new);
    let source = Arc::new(Source { registry, devices, held: Held::default() });
    if let Some(server) = server {
        let source = source.clone();
        std::thread::spawn(move || server.run(&source));
    }
    let kept = keep(&source, directory.as_ref(), file.as_ref(), &ends);
    // Nobody is to take old values for new ones, whatever went wrong.
    let removed = file.map_or(Ok(()), |file| file.remove());
    let emptied = directory.map_or(Ok(()), |directory| directory.remove());
    kept.and(removed).and(emptied)
}

/// What all that this command shows is made of.
struct Source {
    registry: &'static Registry,
    devices: Vec<Description>,
    held: Held,
}

impl Source {
    /// The metrics. None of their sums is less than in any that were shown before.
    fn text(&self) -> Result<String> {
        self.held.whole(self.registry, || text(self.registry, &self.devices))
    }
}

/// Keeps the files up to date until a signal comes.
fn keep(
    source: &Source,
    directory: Option<&sysfs::Directory>,
    file: Option<&TextFile<'_>>,
    ends: &Signals,
) -> Result {
    let Source { registry, held, .. } = source;
    let mut timed = timed::Processes::default();
    let mut is_told = false;
    loop {
        timed.refresh(registry);
        // Others may have asked for nothing for a while.
        held.refresh(registry);
        if let Some(directory) = directory {
            directory.refresh(&held.whole(registry, || directory.tree())?)?;
        }
        if let Some(file) = file {
            file.write(&exposition::plain(&source.text()?))?;
        }
        if !std::mem::replace(&mut is_told, true) {
            let kept = [directory.map(|it| it.path()), file.map(|it| it.path)];
            kept.into_iter().flatten().for_each(tell_what_is_kept);
        }
        if ends.next_within(INTERVAL).is_some() {
            return Ok(());
        }
    }
}

/// Says that a file or a directory is there now.
fn tell_what_is_kept(path: &Path) {
    // If standard error cannot be written, it is there all the same.
    let _ = layout::stderr().text(format_args!(
        "transom metrics: keeps {} up to date until you end this command",
        path.display()
    ));
}

fn text(registry: &Registry, devices: &[Description]) -> Result<String> {
    exposition::text(Seen::now(registry, devices)?).map_err(Failure::new)
}

/// The file that this command keeps up to date.
struct TextFile<'a> {
    path: &'a Path,
    /// What is there now is this command's.
    is_written: Cell<bool>,
}

impl<'a> TextFile<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, is_written: Cell::new(false) }
    }

    /// Replaces it in one step.
    fn write(&self, text: &str) -> Result {
        let mut beside = self.path.as_os_str().to_owned();
        beside.push(".new");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, self.path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        self.is_written.set(self.is_written.get() || written.is_ok());
        written.map_err(|error| self.failure(&error))
    }

    fn remove(&self) -> Result {
        if !self.is_written.get() {
            return Ok(());
        }
        fs::remove_file(self.path).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::new(format_args!("{}: {error}", self.path.display()))
    }
}
