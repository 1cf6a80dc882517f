//! A batch of a coordinator's log, read record by record.

use std::fmt::Display;

use taffrail_protocol::records::{BatchHeader, RecordIter, uncompressed_records};

/// A batch of a coordinator may decompress to this: Kafka's own are at most a few MiB.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Gives each record of a batch, its key and value read by `decode`, to `apply`. What cannot be read is left out and told: a later version
/// may have written it. Markers are no records.
pub(crate) fn for_each_record<R, E: Display>(
    header: &BatchHeader,
    batch: &[u8],
    decode: impl Fn(&[u8], Option<&[u8]>) -> Result<R, E>,
    mut apply: impl FnMut(R),
) {
    if header.attributes.is_control() {
        return;
    }
    let (header, records) = match uncompressed_records(batch, BATCH_BYTES_MAX) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(base_offset = header.base_offset, %error, "a batch of a coordinator cannot be read");
            return;
        }
    };
    for record in RecordIter::new(&header, &records) {
        let decoded = record
            .map_err(|error| error.to_string())
            .and_then(|record| {
                decode(record.key.unwrap_or_default(), record.value)
                    .map_err(|error| error.to_string())
            });
        match decoded {
            Ok(record) => apply(record),
            Err(error) => {
                tracing::warn!(
                    base_offset = header.base_offset,
                    error,
                    "a record of a coordinator is left out"
                );
            }
        }
    }
}
