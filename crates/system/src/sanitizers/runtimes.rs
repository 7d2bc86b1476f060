//! The sanitizers in this process, asked and told together.

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use transom_sanitizers::{
    AddressSanitizer, Fibers, HwAddressSanitizer, MemorySanitizer, Symbolizer,
};

use super::Access;
use crate::valgrind;

/// The sanitizers of this process. Null if there are none.
static RUNTIMES: AtomicPtr<Runtimes> = AtomicPtr::new(null_mut());

/// The sanitizers of this process, if there are any.
#[inline]
pub(super) fn runtimes() -> Option<&'static Runtimes> {
    // SAFETY: null, or a box that was leaked.
    unsafe { RUNTIMES.load(Acquire).as_ref() }
}

/// Looks for sanitizers, once.
pub fn begin() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| {
        if let Some(found) = Runtimes::find() {
            RUNTIMES.store(Box::into_raw(Box::new(found)), Release);
        }
    });
}

/// Those that were found.
pub(super) struct Runtimes {
    address: Option<AddressSanitizer>,
    tags: Option<HwAddressSanitizer>,
    pub(super) thread: Option<Fibers>,
    memory: Option<MemorySanitizer>,
    memcheck: bool,
    symbolizer: Option<Symbolizer>,
}

impl Runtimes {
    fn find() -> Option<Self> {
        let found = Self {
            address: AddressSanitizer::find(),
            tags: HwAddressSanitizer::find(),
            thread: Fibers::find(),
            memory: MemorySanitizer::find(),
            memcheck: valgrind::is_under_memcheck(),
            symbolizer: Symbolizer::find(),
        };
        let Self { address, tags, thread, memory, memcheck, .. } = &found;
        let any = address.is_some() || tags.is_some() || thread.is_some() || memory.is_some();
        (any || *memcheck).then_some(found)
    }

    /// Whether a sanitizer knows which memory was freed, and where.
    pub(super) const fn see_what_is_freed(&self) -> bool {
        self.address.is_some() || self.tags.is_some() || self.memcheck
    }

    /// The offset of AddressSanitizer's notes, if it is the only one and has them as others expect.
    pub(super) fn notes_for_others(&self) -> Option<u64> {
        const SCALE: usize = 3;
        let Self {
            address: Some(asan),
            tags: None,
            thread: None,
            memory: None,
            memcheck: false,
            ..
        } = self
        else {
            return None;
        };
        let (scale, offset) = asan.shadow_mapping()?;
        (scale == SCALE).then_some(offset)
    }

    /// Whether one of them looks at what Transom's own code does unless it is told not to.
    pub(super) const fn look_inside(&self) -> bool {
        self.thread.is_some() || self.memory.is_some() || self.memcheck
    }

    /// The first byte of a range that is not the program's to use, if there is one.
    pub(super) fn first_poisoned(&self, address: u64, length: u64) -> Option<u64> {
        if let Some(asan) = &self.address {
            return asan.first_poisoned(address, length);
        }
        if let Some(hwasan) = &self.tags {
            return hwasan.first_poisoned(address, length);
        }
        (self.memcheck && valgrind::has_unaddressable(address, length)).then_some(address)
    }

    /// Makes the sanitizer report that. Most then end the process.
    pub(super) fn report_poisoned(&self, first: u64, address: u64, length: u64, access: Access) {
        let writes = access == Access::Write;
        if let Some(asan) = &self.address {
            asan.report(first, address + length - first, writes);
        } else if let Some(hwasan) = &self.tags {
            hwasan.check(address, length, writes);
        }
        if self.memcheck {
            valgrind::pause_reports(false);
            valgrind::has_unaddressable(address, length);
            valgrind::pause_reports(true);
        }
    }

    /// Whether the program has not written all of a range.
    pub(super) fn has_undefined(&self, address: u64, length: u64) -> bool {
        match &self.memory {
            Some(msan) => msan.has_undefined(address, length),
            None => self.memcheck && valgrind::has_undefined(address, length),
        }
    }

    /// Makes the sanitizer report that.
    pub(super) fn report_undefined(&self, address: u64, length: u64) {
        self.memory.iter().for_each(|msan| msan.check(address, length));
        if self.memcheck {
            valgrind::pause_reports(false);
            valgrind::has_undefined(address, length);
            valgrind::pause_reports(true);
        }
    }

    /// Marks memory as written.
    pub(super) fn define(&self, address: u64, length: u64) {
        self.memory.iter().for_each(|msan| msan.define(address, length));
        if self.memcheck {
            valgrind::define(address, length);
        }
    }

    /// Marks memory as not written, so the program must not use its content.
    pub(super) fn undefine(&self, address: u64, length: u64) {
        self.memory.iter().for_each(|msan| msan.undefine(address, length));
        if self.memcheck {
            valgrind::undefine(address, length);
        }
    }

    /// From now on the accesses of this thread are not the program's.
    pub(super) fn begin_inside(&self) {
        self.thread.iter().for_each(|tsan| tsan.thread.pause());
        self.memory.iter().for_each(MemorySanitizer::pause);
        if self.memcheck {
            valgrind::pause_reports(true);
        }
    }

    /// Ends what [`Runtimes::begin_inside`] has begun.
    pub(super) fn end_inside(&self) {
        self.thread.iter().for_each(|tsan| tsan.thread.resume());
        self.memory.iter().for_each(MemorySanitizer::resume);
        if self.memcheck {
            valgrind::pause_reports(false);
        }
    }

    /// The places of an address of code, as [`Symbolizer::places`] has them.
    pub(super) fn places(&self, pc: usize) -> Vec<String> {
        self.symbolizer.as_ref().map_or_else(Vec::new, |symbolizer| symbolizer.places(pc))
    }
}
