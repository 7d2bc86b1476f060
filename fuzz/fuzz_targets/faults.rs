//! The faults that a user asks for: what is refused says why.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = text.parse::<transom_net::faults::Faults>() {
        assert!(!error.to_string().is_empty());
    }
});
