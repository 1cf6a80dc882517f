//! Blocks of producer ids, so that a broker asks once for a thousand producers.

use super::{Controller, Decision};
use crate::error::ApiError;
use crate::ids::{BrokerEpoch, BrokerId, ProducerId};
use crate::metadata::Record;

/// The ids of one block, as in Kafka's `ProducerIdsBlock`.
const BLOCK_SIZE: i32 = 1000;

/// Producer ids that one broker may give out: `first` to `first + count - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: ProducerId,
    /// How many.
    pub count: i32,
}

impl Controller {
    /// Gives a broker the next block. No two blocks overlap.
    pub fn allocate_producer_ids(
        &self,
        broker: BrokerId,
        epoch: BrokerEpoch,
    ) -> Decision<Result<ProducerIdBlock, ApiError>> {
        if let Err(kind) = self.check_epoch(broker, epoch) {
            return Decision::reply(Err(kind.into()));
        }
        let first = self.image.next_producer_id();
        // 2^63 ids: a million a second for 292,000 years.
        let next = first + i64::from(BLOCK_SIZE);
        Decision {
            records: vec![Record::ProducerIds { next }],
            reply: Ok(ProducerIdBlock {
                first: ProducerId(first),
                count: BLOCK_SIZE,
            }),
        }
    }
}
