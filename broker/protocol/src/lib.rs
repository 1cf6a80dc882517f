//! Kafka bytes to Rust values and back, bounded; no I/O.
