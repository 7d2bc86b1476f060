#![no_main]

libfuzzer_sys::fuzz_target!(init: transom_inputs::commands::alone(), |bytes: &[u8]| {
    transom_inputs::commands(bytes);
});
