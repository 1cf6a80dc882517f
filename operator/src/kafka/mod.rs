//! A thin Kafka admin client: asks brokers what exists and tells them what should, in Kafka's own requests.

mod admin;
mod apply;
mod connection;
mod observe;

pub use admin::{Admin, AdminError};
pub use apply::apply_step;
pub use connection::{Connection, ConnectionError};
pub use observe::observe;
