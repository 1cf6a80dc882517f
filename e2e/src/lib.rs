//! Real clusters, real clients and the proof that nothing was lost.
//!
//! [`cluster::Cluster`] starts brokers as processes on this machine, Taffrail's or Apache Kafka's: every test of `e2e/tests` can be
//! pointed at the reference (`E2E_BROKER=kafka`), so that a test is known to be right before it judges Taffrail.

pub mod admin;
pub mod cluster;
pub mod history;
pub mod http;
pub mod java;
pub mod kafka;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod load;
pub mod local;
pub mod logcheck;
pub mod port;
pub mod process;
pub mod python;
pub mod read;
pub mod serving;
pub mod taffrail;
pub mod text;
pub mod tools;
pub mod wait;
pub mod wire;
