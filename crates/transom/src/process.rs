//! The process that an object belongs to.
//!
//! A forked child has copies of its parent's objects, and drops them when it returns from where they are, or unwinds.
//! The objects themselves are the parent's. On an adapter a verb of the child would end them there, because both
//! processes have the same descriptor. And a thread of the parent that the child does not have, such as that of a
//! [`Driver`](crate::Driver), may have held a lock at the fork, or have been changing what the lock guards. So in a child
//! the drop of an inherited object calls no verb, takes no lock, and leaves the memory as it is.

use crate::{Error, Result};
use std::ffi::c_int;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

/// How many forks lie between this process and the first of the program that counted them.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as its forked children tell it from themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process. From now on it counts its forks.
    pub(crate) fn this() -> Result<Self> {
        static COUNTS: AtomicBool = AtomicBool::new(false);
        if !COUNTS.load(Acquire) {
            // If two threads do this at once, a fork counts twice, which does no harm.
            in_each_child(one_fork_more)?;
            COUNTS.store(true, Release);
        }
        Ok(Self(FORKS.load(Relaxed)))
    }

    /// Whether this process is a forked child of that one.
    pub(crate) fn is_parent(self) -> bool {
        self.0 != FORKS.load(Relaxed)
    }
}

unsafe extern "C" fn one_fork_more() {
    FORKS.fetch_add(1, Relaxed);
}

/// Has each forked child of this process call this function first.
pub(crate) fn in_each_child(first: unsafe extern "C" fn()) -> Result<()> {
    // SAFETY: the function lives as long as this program.
    match unsafe { pthread_atfork(None, None, Some(first)) } {
        0 => Ok(()),
        errno => {
            let subject = "preparing for a fork".to_owned();
            Err(Error::Verb { verb: "pthread_atfork", subject, errno })
        }
    }
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// A part of an object that a forked child does not drop.
#[derive(Debug)]
pub(crate) struct Own<T> {
    /// `None` while it is dropped.
    part: Option<T>,
    process: Process,
}

impl<T> Own<T> {
    pub(crate) fn new(part: T, process: Process) -> Self {
        Self { part: Some(part), process }
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.part.as_ref().expect("it is had until it is dropped")
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        let part = self.part.take();
        if self.process.is_parent() {
            std::mem::forget(part);
        }
    }
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use crate::{
        Access, AddressHandle, CompletionQueue, Connector, Gid, MemoryRegion, ProtectionDomain,
        Provider, QueuePair, Result, Rights, SharedReceiveQueue, Type2, Window, XrcDomain,
    };
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid,
    };
    use std::ffi::c_int;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;
    use transom_abi::*;

    /// Whether this is the child.
    static IN_CHILD: AtomicBool = AtomicBool::new(false);

    /// The exit status of a child that calls a verb.
    const CALLED: c_int = 3;

    unsafe extern "C" {
        fn fork() -> c_int;
        fn _exit(code: c_int) -> !;
    }

    /// Declares verbs that end a child, and a provider that has them.
    macro_rules! verbs_of_parents {
        ($($verb:ident($($argument:ident: $type:ty),*);)*) => {
            $(unsafe extern "C" fn $verb($($argument: $type),*) -> c_int {
                if IN_CHILD.load(Relaxed) {
                    // SAFETY: it ends this process.
                    unsafe { _exit(CALLED) };
                }
                // SAFETY: by the contract of this verb.
                unsafe { transom_ibverbs::$verb($($argument),*) }
            })*

            fn provider() -> Provider {
                Provider::changed(|verbs| {
                    $(verbs.$verb = $verb;)*
                })
            }
        };
    }

    verbs_of_parents! {
        ibv_close_device(context: *mut ibv_context);
        ibv_dealloc_pd(pd: *mut ibv_pd);
        ibv_dereg_mr(mr: *mut ibv_mr);
        ibv_destroy_comp_channel(channel: *mut ibv_comp_channel);
        ibv_destroy_cq(cq: *mut ibv_cq);
        ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int);
        ibv_destroy_qp(qp: *mut ibv_qp);
        ibv_destroy_ah(ah: *mut ibv_ah);
        ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16);
        ibv_destroy_srq(srq: *mut ibv_srq);
    }

    /// How a child ends. One that hangs is killed.
    fn end(child: c_int) -> Option<i32> {
        let child = Pid::from_raw(child).expect("a child");
        let end = pidfd_open(child, PidfdFlags::empty()).unwrap();
        let timeout = Timespec::try_from(Duration::from_secs(20)).unwrap();
        if poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&timeout)).unwrap() == 0 {
            kill_process(child, Signal::KILL).unwrap();
        }
        waitpid(Some(child), WaitOptions::empty()).unwrap().expect("its end").1.exit_status()
    }

    /// On an adapter a verb of the child would end what the parent has. And a thread that the child does not have may
    /// have held any lock at the fork.
    #[test]
    fn a_child_that_drops_what_it_inherits_calls_no_verb_and_waits_for_nobody() {
        let everything = || -> Result<_> {
            let context = crate::devices(&provider())?[0].open()?;
            let pd = ProtectionDomain::new(&context)?;
            let cq = CompletionQueue::new(&context, 16)?;
            let builder = QueuePair::builder(&pd, &cq);
            let (a, b) = (builder.build()?, builder.build()?);
            let (at_a, at_b) = (a.endpoint(), b.endpoint());
            let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
            let access = Access::LOCAL_WRITE | Access::MW_BIND;
            let region = MemoryRegion::register(&pd, vec![0; 8], access)?;
            let window = Window::<Type2>::alloc(&pd)?.bind(&a, &region.all(), Rights::READ)?;
            let window = window.wait()?;
            let received = a.receive(&[region.all()])?;
            let datagrams = QueuePair::datagram(&pd, &cq).build()?;
            let membership = datagrams.join(Gid([0xff; 16]))?;
            let address = AddressHandle::new(&pd, at_b)?;
            let shared = SharedReceiveQueue::new(&pd, &cq, 4, 1)?;
            let xrc_domain = XrcDomain::private(&context)?;
            let nobody = Connector::new("127.0.0.1:1".parse().unwrap());
            let connecting = nobody.connect(builder.shared_receives(&shared).build()?)?;
            let rest = (window, region, b, membership, address, shared, xrc_domain, connecting);
            Ok((received, a, cq, datagrams, rest))
        };
        let (received, a, cq, datagrams, rest) = everything().unwrap();
        let locked = (cq.inner.lock(), datagrams.inner.groups.lock().unwrap());
        // SAFETY: the child only drops what it has, and ends.
        match unsafe { fork() } {
            0 => {
                IN_CHILD.store(true, Relaxed);
                // Nobody unlocks them in a child whose parent's other thread has locked them.
                std::mem::forget(locked);
                drop((received, a, cq, datagrams, rest));
                // SAFETY: it ends this process.
                unsafe { _exit(0) };
            }
            child => {
                drop(locked);
                assert_eq!(end(child), Some(0));
            }
        }
        // The parent has everything still.
        a.fail().unwrap();
        assert!(received.wait().is_err());
    }
}
