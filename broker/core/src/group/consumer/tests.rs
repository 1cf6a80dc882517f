//! A whole group.

mod commits;
mod membership;
mod reconciling;
mod statics;
mod world;
