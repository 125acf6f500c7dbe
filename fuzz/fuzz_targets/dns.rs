//! See the function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandboxo_egress::fuzz::dns(data));
