//! The controller's decisions as lists of cases, and random histories.

mod alter_partition;
mod brokers;
mod cluster;
mod configs;
mod elections;
mod impaired;
mod reassignment;
mod replay;
mod suspects;
mod topics;
mod voters;
