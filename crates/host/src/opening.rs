//! Opening a device: everything it needs of the machine, and its driver.

use std::io;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::info;
use transom_device::protection::Scramble;
use transom_net::faults::FaultyNetwork;
use transom_net::{DevicePort, Network, PortOptions};
use transom_system::environment::CHECK;
use transom_system::memory::{Copier, begin_sharing, consent, needs_consent, say_slow, sharing};
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::tools::Tool;
use transom_system::{ThisProcess, failure, fork, leave_the_hint_out, sanitizers};

use crate::capture::{Capture, CaptureObserver};
use crate::device::{Copying, Device, Memory, Observer, OpenError, Options, hears_all};
use crate::objects::Adapter;
use crate::progress::Threads;

/// How long closing a device waits for the background thread's current round.
const LAST_ROUND: Duration = Duration::from_secs(1);

impl Adapter {
    /// Opens a device for this process and starts its background thread. The thread ends with the last reference to the
    /// device.
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        let faults = options.faults.and_then(|faults| faults.network);
        Self::open_on(options, |registry, slot| {
            let faults = faults?;
            let counted = options.run.map(|run| u64::from(registry.count_device(run)));
            let network = FaultyNetwork::new(&faults, counted.unwrap_or(slot.into()));
            Some(Arc::new(Mutex::new(network)))
        })
    }

    /// Opens a device whose packets pass through a test network, which is made for its slot in the registry.
    pub(crate) fn open_on(
        options: Options,
        network: impl FnOnce(&Registry, u8) -> Option<Arc<dyn Network>>,
    ) -> Result<Arc<Self>, OpenError> {
        let step = |doing: &'static str| move |cause| OpenError::new(doing, cause);
        failure::begin_anew()?;
        let segment = Segment::create().map_err(step("making its shared memory"))?;
        let mut seed = vec![0; Scramble::SEED_BYTES + 2];
        getrandom::fill(&mut seed)
            .map_err(io::Error::other)
            .map_err(step("asking the system for random numbers"))?;
        let (seed, first_qp) = seed.split_at(Scramble::SEED_BYTES);
        let first_qp = u16::from_le_bytes([first_qp[0], first_qp[1]]);
        segment.scramble().seed(seed.try_into().expect("split at its length"));
        let capture = options.capture.map(|path| {
            let doing = || format!("opening the capture file {}", path.display());
            Capture::open(path).map_err(|cause| OpenError::new(doing(), cause))
        });
        let capture = capture.transpose()?;
        let identity = capture.as_ref().map_or(0, |capture| capture.identity());
        segment.header().capture.store(identity, Relaxed);
        sanitizers::begin();
        let injects = options.faults.is_some_and(|faults| !faults.rules.is_empty());
        let shadow = sanitizers::notes_for_others();
        let hidden = sanitizers::are_told() && shadow == 0;
        let by_message = injects || capture.is_some() || hidden || hears_all();
        segment.header().shadow.store(shadow, Relaxed);
        segment.header().by_message.store(u32::from(by_message), Relaxed);
        let copier = match options.copying {
            Copying::Best => Copier::best(),
            Copying::Rings => Copier::pipes(),
        };
        let copier = copier.map_err(step("finding a way to copy memory"))?;
        if options.copying == Copying::Best && !matches!(copier, Copier::Kernel) {
            say_slow("the kernel does not let this process use process_vm_readv (seccomp)");
        }
        if matches!(copier, Copier::Kernel) && needs_consent() {
            consent();
        }
        let copier = copier.watched();
        // What reaches memory by instructions asks no sanitizer and tells nobody.
        let may_share = !sanitizers::are_told() && !hears_all();
        if options.memory == Memory::Shared && may_share {
            match begin_sharing() {
                Ok(descriptor) => {
                    segment.header().shared_memory.store(descriptor + 1, Relaxed);
                    segment.header().registered.set_sharing(sharing());
                }
                Err(error) => info!(%error, "all memory is private"),
            }
        }
        // From here on a fork waits until the device is open, or the child would find it half open.
        fork::begin().map_err(step("asking to be told of forks"))?;
        let registry = Registry::open().map_err(step("opening the registry of processes"))?;
        segment.header().device.store(options.number.into(), Relaxed);
        let claim = registry.claim(segment.descriptor(), options.number);
        let claim = claim.map_err(step("taking a slot in the registry"))?;
        if options.port_is_down {
            claim.take_packets_only();
        }
        if let Some(watcher) = options.watcher {
            registry.tell_watcher(watcher, claim.announcer());
        }
        if let Some(explainer) = options.explainer
            && registry.tell_watcher(explainer, claim.announcer())
            // `transom check` tells it only of a program that fails.
            && CHECK.text().is_none()
        {
            leave_the_hint_out();
        }
        let slot = claim.announcer().slot;
        let process = Arc::new(ThisProcess::new(claim, segment, copier));
        if let Some(tracer) = options.tracer {
            wait_for_tracer(&process, tracer);
        }
        let capture = capture.map(|capture| Arc::new(CaptureObserver { capture, registry, slot }));
        let departures = capture.clone().map(|it| it as Arc<dyn transom_net::Observer>);
        let observer = capture.map(|it| it as Arc<dyn Observer>);
        // Only what goes over the wire can be lost there.
        let wire_only = options.wire_only || options.port_is_down;
        let network = network(registry, slot);
        let port_options =
            PortOptions { wire_only, interface: options.interface, observer: departures, network };
        let of = options.interface.map_or(String::new(), |name| format!(" of interface {name}"));
        let port = DevicePort::new(process.clone(), port_options).map_err(|cause| {
            OpenError::new(format!("asking the kernel for the addresses{of}"), cause)
        })?;
        if options.port_is_down {
            port.outages().begin();
        }
        let device = Device::new(options, process, port, observer);
        let adapter = Arc::new(Self::new(device, &Threads, first_qp));
        let handler: Weak<Self> = Arc::downgrade(&adapter);
        fork::watch(handler).map_err(step("asking to be told of forks"))?;
        Threads::start(&adapter).map_err(step("starting its background thread"))?;
        adapter.device().schedule_faults();
        let process = adapter.device().process();
        let (slot, generation) = (process.announcer().slot, process.announcer().generation);
        let copying = match process.copier() {
            Copier::Kernel => "kernel",
            Copier::Pipes(_) => "pipes",
            Copier::Watched(_) => "watched",
        };
        info!(slot, generation, copying, wire_only = options.wire_only, "device opened");
        Ok(adapter)
    }

    /// Gives up this reference. If it was the last, the device is closed when this returns: peers are told, and the
    /// background thread has ended, even if the thread held the last reference. The thread may itself be waiting for a
    /// process that is stopped, so this waits at most a second for its current round.
    pub fn close(self: Arc<Self>) {
        let (device, adapter) = (self.device().clone(), Arc::downgrade(&self));
        drop(self);
        // A forked child has a copy of its parent's device, but none of its thread.
        if device.process().is_inherited() {
            return;
        }
        let Some(holding) = device.work.holding.try_lock_for(LAST_ROUND) else { return };
        let is_closed = adapter.strong_count() == 0;
        drop(holding);
        let thread = is_closed.then(|| device.work.thread.lock().take()).flatten();
        // How it ended has been reported.
        thread.map(JoinHandle::join);
    }
}

/// Announces the process to whoever wants its events from the beginning, and waits until they are asked for.
fn wait_for_tracer(process: &ThisProcess, tracer: u64) {
    let wanted = &process.segment().header().wanted;
    let until = Instant::now() + LAST_ROUND;
    if process.registry().tell_watcher(tracer, process.announcer()) {
        while !wanted.is_asked_for(Tool::Events) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::turn;

    /// A program may exit as soon as it has closed its device. Work left then is lost.
    #[test]
    fn closing_closes_a_device_though_others_still_have_it() {
        let _turn = turn();
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let (device, weak) = (adapter.device().clone(), Arc::downgrade(&adapter));
        let announcer = device.process().announcer();
        let working = device.work.working.lock();
        device.process().wake();
        while device.work.holding.try_lock().is_some() {
            std::thread::yield_now();
        }
        let weak = &weak;
        std::thread::scope(|scope| {
            let closing = scope.spawn(move || {
                adapter.close();
                weak.strong_count()
            });
            // The thread keeps a device that nobody else has.
            while weak.strong_count() > 1 {
                std::thread::yield_now();
            }
            drop(working);
            assert_eq!(closing.join().expect("no panic"), 0, "the background thread has it");
        });
        assert_eq!(Arc::strong_count(&device), 1, "somebody else holds parts of it");
        drop(device);
        let registry = Registry::open().expect("it was open");
        let after = registry.process(announcer.slot).expect("there was one");
        assert!(after.closed || after.announcer != announcer, "its slot is taken");
    }

    #[test]
    fn a_device_that_somebody_else_has_stays_open() {
        let _turn = turn();
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        adapter.clone().close();
        assert!(adapter.device().work.thread.lock().is_some(), "its thread goes on");
        assert_eq!(adapter.device().process().segment().header().departed.load(Relaxed), 0);
    }
}
