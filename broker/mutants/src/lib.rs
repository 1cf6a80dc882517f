//! Planted faults: mistakes of the kind that lose records, one line each in the shipping crates, which the simulator must
//! catch. `core`, `log` and `node` know of this crate only with their feature `mutants`, which `make mutants` alone asks
//! for; the broker binary does not compile with it.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// acks=all is answered as soon as the leader alone has the records.
    AckBeforeReplication,
    /// A replica that begins to follow cuts its log to its own high watermark (KIP-101).
    TruncateToHighWatermark,
    /// The leader epoch of a request is not compared (KIP-320).
    SkipEpochFence,
    /// An idempotent producer's batch is appended however often it comes.
    DropDuplicateDetection,
    /// Recovery takes a batch without its checksum, and with it what follows a torn one.
    TrustAfterTornBatch,
    /// A consumer is shown one offset beyond the high watermark. (Without transactions the last stable offset is the
    /// high watermark, so this is also the last stable offset, off by one.)
    ReadBeyondHighWatermark,
    /// With `taffrail.flush=ack`, leader and followers count records before they are fsynced.
    AckBeforeFsync,
    /// Recovery takes intact batches of lower offsets, which a file that is used again still holds behind its content.
    AcceptStaleTail,
    /// A replica joins the ISR by what an earlier incarnation of its broker fetched (KIP-903).
    JoinWithoutBrokerEpoch,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 9] = [
        Mutant::AckBeforeReplication,
        Mutant::TruncateToHighWatermark,
        Mutant::SkipEpochFence,
        Mutant::DropDuplicateDetection,
        Mutant::TrustAfterTornBatch,
        Mutant::ReadBeyondHighWatermark,
        Mutant::AckBeforeFsync,
        Mutant::AcceptStaleTail,
        Mutant::JoinWithoutBrokerEpoch,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutant::AckBeforeReplication => "ack-before-replication",
            Mutant::TruncateToHighWatermark => "truncate-to-high-watermark",
            Mutant::SkipEpochFence => "skip-epoch-fence",
            Mutant::DropDuplicateDetection => "drop-duplicate-detection",
            Mutant::TrustAfterTornBatch => "trust-after-torn-batch",
            Mutant::ReadBeyondHighWatermark => "read-beyond-high-watermark",
            Mutant::AckBeforeFsync => "ack-before-fsync",
            Mutant::AcceptStaleTail => "accept-stale-tail",
            Mutant::JoinWithoutBrokerEpoch => "join-without-broker-epoch",
        }
    }
}

/// Plants a fault in everything that this thread does from now on, or none.
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether this thread has that fault.
pub fn is_planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}
