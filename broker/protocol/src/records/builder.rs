//! Makes record batches: for internal topics, for clients of our own, and for tests.

use super::batch_header::crc;
use super::{
    Attributes, BATCH_HEADER_LENGTH, BatchHeader, Compression, LENGTH_PREFIX, MAGIC, compress,
};
use crate::varint;

/// A batch that grows record by record.
#[derive(Clone, Debug)]
pub struct RecordBatchBuilder {
    base_offset: i64,
    partition_leader_epoch: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    compression: Compression,
    transactional: bool,
    control: bool,
    log_append_time: bool,
    delete_horizon: bool,
    last_offset_delta: i32,
    record_count: i32,
    records: Vec<u8>,
    body: Vec<u8>,
}

impl RecordBatchBuilder {
    /// An empty batch. `timestamp`, in milliseconds, is that of the records unless they bring their own.
    pub fn new(base_offset: i64, timestamp: i64) -> Self {
        Self {
            base_offset,
            partition_leader_epoch: -1,
            base_timestamp: timestamp,
            max_timestamp: i64::MIN,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            compression: Compression::None,
            transactional: false,
            control: false,
            log_append_time: false,
            delete_horizon: false,
            last_offset_delta: -1,
            record_count: 0,
            records: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The codec of the records.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The producer and the sequence of the first record.
    pub fn producer(mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Self {
        (self.producer_id, self.producer_epoch, self.base_sequence) =
            (producer_id, producer_epoch, base_sequence);
        self
    }

    /// The epoch of the leader that appends the batch; -1 until it does.
    pub fn partition_leader_epoch(mut self, partition_leader_epoch: i32) -> Self {
        self.partition_leader_epoch = partition_leader_epoch;
        self
    }

    /// Marks the batch as part of a transaction.
    pub fn transactional(mut self, transactional: bool) -> Self {
        self.transactional = transactional;
        self
    }

    /// Marks the batch as one that holds a marker.
    pub fn control(mut self, control: bool) -> Self {
        self.control = control;
        self
    }

    /// Says that the leader stamped the records.
    pub fn log_append_time(mut self, log_append_time: bool) -> Self {
        self.log_append_time = log_append_time;
        self
    }

    /// Says that the batch's timestamp is the time from which its tombstones or its marker may go (KIP-534).
    pub fn delete_horizon(mut self, delete_horizon: bool) -> Self {
        self.delete_horizon = delete_horizon;
        self
    }

    /// Appends a record with the next offset and the batch's timestamp.
    pub fn push(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        self.push_at(
            self.last_offset_delta + 1,
            self.base_timestamp,
            key,
            value,
            headers,
        );
    }

    /// Appends a record with an offset delta and a timestamp of its own.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        let body = &mut self.body;
        body.clear();
        body.push(0);
        varint::write_long(body, timestamp.wrapping_sub(self.base_timestamp));
        varint::write(body, offset_delta);
        write_nullable(body, key);
        write_nullable(body, value);
        varint::write(body, headers.len() as i32);
        for (key, value) in headers {
            write_nullable(body, Some(key));
            write_nullable(body, *value);
        }
        varint::write(&mut self.records, body.len() as i32);
        self.records.extend_from_slice(body);
        self.last_offset_delta = offset_delta;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.record_count += 1;
    }

    /// Sets the last offset delta behind that of the last record, as compaction leaves it.
    pub fn last_offset_delta(mut self, last_offset_delta: i32) -> Self {
        self.last_offset_delta = last_offset_delta;
        self
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Bytes of the batch so far, before compression.
    pub fn uncompressed_length(&self) -> usize {
        BATCH_HEADER_LENGTH + self.records.len()
    }

    /// The batch. One without records is what compaction keeps of an emptied batch.
    pub fn build(self) -> Vec<u8> {
        let records = match self.compression {
            Compression::None => self.records,
            codec => compress(codec, &self.records),
        };
        let mut attributes = Attributes::new(self.compression, self.transactional, self.control);
        if self.log_append_time {
            attributes = attributes.with_log_append_time();
        }
        if self.delete_horizon {
            attributes = attributes.with_delete_horizon();
        }
        let mut header = BatchHeader {
            base_offset: self.base_offset,
            batch_length: (BATCH_HEADER_LENGTH - LENGTH_PREFIX + records.len()) as i32,
            partition_leader_epoch: self.partition_leader_epoch,
            magic: MAGIC,
            crc: 0,
            attributes,
            last_offset_delta: self.last_offset_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp: if self.record_count == 0 {
                self.base_timestamp
            } else {
                self.max_timestamp
            },
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        };
        let mut head = [0; BATCH_HEADER_LENGTH];
        header.write(&mut head);
        let mut batch = Vec::with_capacity(BATCH_HEADER_LENGTH + records.len());
        batch.extend_from_slice(&head);
        batch.extend_from_slice(&records);
        header.crc = crc(&batch[21..]);
        batch[17..21].copy_from_slice(&header.crc.to_be_bytes());
        batch
    }
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::write(out, -1),
        Some(bytes) => {
            varint::write(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}
