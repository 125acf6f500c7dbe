//! The module of a program, which has no library to call.
#![no_main]
#![allow(dead_code, unused_imports)]

// The folder and not the file, so that its own modules are found.
#[path = "../../appliance/src"]
mod appliance {
    pub(crate) mod config;
}

use appliance::config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzz::settings(data));
