//! Replaced below.

fn main() {}
