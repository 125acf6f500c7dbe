//! The module of a program, which has no library to call.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../appliance/src/config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzz::settings(data));
