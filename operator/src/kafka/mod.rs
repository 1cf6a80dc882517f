//! A thin Kafka admin client: asks brokers what exists and tells them what should, in Kafka's own requests.

mod admin;
mod apply;
mod connection;
mod endpoints;
mod observe;
mod ping;
mod quorum;

pub use admin::{Admin, AdminError};
pub use apply::apply_step;
pub use connection::{Connection, ConnectionError};
pub use endpoints::{Endpoints, recorded_endpoints, set_endpoints};
pub use observe::observe;
pub use ping::{PingError, ping, run_ping};
pub use quorum::run_quorum;
