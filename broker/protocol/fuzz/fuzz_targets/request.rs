#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taffrail_protocol_fuzz::request(data));
