//! A thread of the program that sleeps until there is a completion event.
//!
//! While it sleeps, peers on this host wake it instead of the background thread. It then takes their messages itself,
//! like a thread that polls: one thread is woken for each message, not two. Others may raise the event as well; they
//! wake the sleepers of the channel.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use transom_system::failure::caught;
use transom_system::sanitizers;
use transom_system::segment::Wakeup;
use transom_thread::{cancelled_at_once, uncancelled};

use super::Dispatch;
use crate::events::{CompletionEvent, EventQueue};
use crate::objects::Adapter;

/// A completion channel.
type Channel = EventQueue<CompletionEvent>;

impl Adapter {
    /// Takes the next event of a completion channel. Blocks if its descriptor does. A thread that is cancelled
    /// meanwhile unwinds from here, and leaves the event.
    ///
    /// # Errors
    ///
    /// Those of [`EventQueue::take`].
    pub fn take_event(&self, channel: &Arc<Channel>) -> io::Result<(CompletionEvent, u64)> {
        while self.can_sleep() && channel.blocks() && self.sleep_until_event(channel)? {
            match channel.take_at_once() {
                // Another thread has it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
                Ok(event) => return Ok(event),
            }
        }
        channel.take()
    }

    /// A forked child has no peers, and nobody may touch a device that has failed.
    fn can_sleep(&self) -> bool {
        let device = self.device();
        !device.process().is_inherited() && !device.failed.load(SeqCst)
    }

    /// False if it cannot sleep here. The caller then has to wait at the descriptor.
    fn sleep_until_event(&self, channel: &Arc<Channel>) -> io::Result<bool> {
        if !channel.has_to_come() {
            return Ok(true);
        }
        let header = self.device().process().segment().header();
        let mut slept = Ok(());
        while slept.is_ok() && channel.has_to_come() {
            let wake_ups = header.wake_ups();
            if !self.arm(Wakeup::Sleeper) || !Asleep::begin(channel) {
                break;
            }
            if channel.has_to_come() {
                slept = cancelled_at_once(|| header.sleep(wake_ups));
            }
            Asleep::end();
        }
        self.arm(Wakeup::Pipe);
        slept.map_err(io::Error::from).map(|()| !channel.has_to_come())
    }

    /// Makes peers wake this process in this way from now on, and takes messages that came before. False if the device
    /// failed over it.
    fn arm(&self, wakeup: Wakeup) -> bool {
        let dispatch = Dispatch { adapter: self };
        let _inside = sanitizers::inside();
        uncancelled(|| caught(|| dispatch.arm(wakeup))).is_ok()
    }
}

thread_local! {
    /// The channel that this thread sleeps for.
    static ASLEEP: Asleep = const { Asleep(RefCell::new(None)) };
}

/// The channel that a thread sleeps for. A cancelled thread leaves it behind when it ends. Something may have woken
/// that thread; it becomes the background thread's work.
struct Asleep(RefCell<Option<Arc<Channel>>>);

impl Asleep {
    /// False if the thread is about to end.
    fn begin(channel: &Arc<Channel>) -> bool {
        let begin = |asleep: &Self| {
            channel.add_sleeper();
            *asleep.0.borrow_mut() = Some(channel.clone());
        };
        ASLEEP.try_with(begin).is_ok()
    }

    fn end() {
        if let Ok(Some(channel)) = ASLEEP.try_with(|asleep| asleep.0.take()) {
            channel.remove_sleeper();
        }
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if let Some(channel) = self.0.take() {
            channel.remove_sleeper();
            channel.wake_background();
        }
    }
}
