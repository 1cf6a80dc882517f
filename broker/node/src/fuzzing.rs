//! The decoders of this crate, for the fuzz targets in `broker/fuzz`. Nothing else calls them.

pub use crate::cluster::fuzzing::{metadata_log, metadata_log_seeds, raft_messages};
pub use crate::groups::try_log as group_log;
pub use crate::replication::try_fetch_answer as fetch_answer;
