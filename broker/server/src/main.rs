//! The broker binary: sockets, files, signals and HTTP around one node.
fn main() {}
