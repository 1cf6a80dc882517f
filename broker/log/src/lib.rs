//! The files of one replica, in Kafka's formats (`FORMAT.md`): segments, indexes, checkpoints, recovery.
//! Everything is synchronous and takes time as an argument; the caller holds one lock around one [`Log`].
//! It never decides anything about replication: offsets of the high watermark come from outside.

mod append_engine;
mod batch_walk;
mod checkpoint;
mod clean_shutdown;
pub mod cleaner;
mod config;
mod directory;
mod disk;
mod epochs;
mod error;
mod folder;
mod identity;
mod index;
pub mod inspect;
mod log;
mod open_files;
mod real_disk;
mod room;
mod segment;
mod transaction_index;
pub mod validate;
pub mod verify;

pub use checkpoint::{CheckpointKind, Offsets};
pub use clean_shutdown::CleanShutdown;
pub use config::LogConfig;
pub use directory::{
    DirectoryError, LogDirectory, identify_directory, settle_swaps, with_fewest_partitions,
};
pub use disk::{DirEntry, Disk, DiskFile, Space};
pub use epochs::{EpochEnd, EpochEntry, LeaderEpochs};
pub use error::LogError;
pub use folder::{FolderState, PartitionFolder};
pub use identity::Identity;
pub use log::{
    Appended, BatchHeaders, CheckStep, Ends, FileRange, Flush, Flushed, LocatedBatch, Log,
    OffsetLookup, OffsetSpec, ReadLimits, RecordSearch, Recovered, Retired, Searched, SegmentCheck,
    TimestampOffset,
};
pub use open_files::OpenFiles;
pub use real_disk::{RealDisk, RealFile};
pub use room::{Reserve, RoomChange, RoomFor};
pub use taffrail_protocol::records::TimestampType;
pub use transaction_index::AbortedTransaction;
