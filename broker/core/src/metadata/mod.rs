//! The cluster's metadata: the records of the metadata log and the image that they build.
//!
//! `Image::apply` and `Image::try_apply` are the only writers. An image is the same whether its records came one by one or from a snapshot.

mod changes;
mod contradiction;
mod image;
mod record;
mod standing;

pub use changes::Changes;
pub use contradiction::Contradiction;
pub use image::{Broker, Endpoints, Image, Topic, Voter, VoterIntent};
pub use record::{ConfigResource, Listener, Partition, Record};
pub use standing::{named_with_standing, standing, why_leaderless};
