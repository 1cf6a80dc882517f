//! A Kubernetes cluster as a user has it: driven by kubectl and Helm, looked at from a pod and from outside.
//!
//! [`turn`] gives each test its namespace; [`operator`] is the one installation that all share; [`client`] is the pod that clients
//! run in.

pub mod client;
pub mod command;
pub mod environment;
pub mod kafka;
pub mod kinds;
pub mod load;
pub mod namespace;
pub mod operator;
pub mod outside;
pub mod prometheus;
pub mod report;
pub mod turn;
pub mod writes;
