//! The names of places in code, which every sanitizer can look up.

use std::ffi::{c_char, c_void};

use crate::function;

/// Its function.
pub struct Symbolizer(unsafe extern "C" fn(*const c_void, *const c_char, *mut c_char, usize));

impl Symbolizer {
    /// That of this process.
    pub fn find() -> Option<Self> {
        // SAFETY: nobody else has a function of this name, and `sanitizer/common_interface_defs.h` declares its type.
        unsafe { function(c"__sanitizer_symbolize_pc").map(Self) }
    }

    /// The places of an address of code, each as `function file line`, the innermost inlined function first. Empty if
    /// they are unknown.
    pub fn places(&self, pc: usize) -> Vec<String> {
        const ROOM: usize = 1024;
        let mut text = [0_u8; ROOM];
        // SAFETY: it writes strings that end in zero, and an empty one behind them, into a buffer of this size.
        unsafe {
            let format = c"%f %s %l";
            (self.0)(pc as *const c_void, format.as_ptr(), text.as_mut_ptr().cast(), ROOM);
        }
        let places = text.split(|byte| *byte == 0).take_while(|place| !place.is_empty());
        places.map(|place| String::from_utf8_lossy(place).into_owned()).collect()
    }
}
