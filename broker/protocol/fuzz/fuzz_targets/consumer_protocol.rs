#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taffrail_protocol_fuzz::consumer_protocol_bytes(data));
