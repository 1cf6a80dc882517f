//! Reconciles Cluster and Topic, on Kubernetes or on this machine: observe, validate, plan, apply, status.
//!
//! `validate`, `plan` and `status` are pure and the same everywhere; only how the world is observed and how a plan is
//! applied differs. The broker is known here by its public protocols alone.

pub mod cli;
pub mod health;
pub mod http;
pub mod kafka;
pub mod kubernetes;
pub mod local;
pub mod manifest;
pub mod metrics;
pub mod object;
pub mod observed;
pub mod plan;
pub mod refusal;
pub mod status;
pub mod validate;

mod json;
mod properties;

#[cfg(test)]
mod world;
