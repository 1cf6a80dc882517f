//! Reconciles Cluster and Topic, on Kubernetes or on this machine.
fn main() {}
