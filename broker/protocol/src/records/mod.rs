//! Record batches of format 2 (magic 2): header view and patches, iteration, shape check, compression, and a builder.
//!
//! ```text
//! position  bytes  field                          position  bytes  field
//!        0      8  base offset                          27      8  base timestamp, ms
//!        8      4  batch length, counted from 12        35      8  max timestamp, ms
//!       12      4  partition leader epoch               43      8  producer id
//!       16      1  magic, 2                             51      2  producer epoch
//!       17      4  CRC32C of all from 21 on             53      4  base sequence
//!       21      2  attributes                           57      4  record count
//!       23      4  last offset delta                    61      …  records, compressed as one piece
//! ```

mod batch_header;
mod batches;
mod builder;
mod compression;
mod end_transaction_marker;
mod record;
mod shape;

pub use batch_header::{
    Attributes, BATCH_HEADER_LENGTH, BatchError, BatchHeader, LENGTH_PREFIX, MAGIC, TimestampType,
    crc_matches, patch_base_offset_and_epoch, set_log_append_time, set_max_timestamp,
};
pub use batches::Batches;
pub use builder::RecordBatchBuilder;
pub use compression::{Compression, DecompressError, compress, decompress};
pub use end_transaction_marker::{EndTransactionMarker, MarkerError};
pub use record::{HeaderIter, Record, RecordError, RecordHeader, RecordIter};
pub use shape::{RecordsError, RecordsShape, uncompressed_records, validate_records};
