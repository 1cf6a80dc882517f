//! The transactions that a cleaning meets on its way through a log (Kafka's `CleanedTransactionMetadata`): which records were
//! aborted, which markers may go, and which aborted transactions must stay known.
//!
//! A marker may go when no batch of its transaction was met before it: they were all removed by an earlier cleaning. The
//! entry of an aborted transaction goes and stays with its marker's need.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use taffrail_protocol::records::BatchHeader;

use crate::transaction_index::AbortedTransaction;

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// Its transaction was aborted.
    Abort,
    /// Its transaction was committed.
    Commit,
    /// Nothing any more: an earlier cleaning emptied it.
    Emptied,
    /// Something that ends no transaction.
    Other,
}

/// Transactions whose marker has not been met yet.
pub(crate) struct CleanedTransactions {
    /// Aborted ones that begin behind what was read, by their first offsets.
    to_come: VecDeque<AbortedTransaction>,
    /// Aborted ones by producer, and whether a batch of them was met.
    aborted: BTreeMap<i64, (AbortedTransaction, bool)>,
    /// Producers of which a batch was met that is not aborted.
    committed: BTreeSet<i64>,
    /// Those of which records were met, since somebody asked; by their markers.
    kept: Vec<AbortedTransaction>,
}

impl CleanedTransactions {
    /// `aborted` are all that have records in what is to be read, by their first offsets.
    pub(crate) fn new(aborted: &[AbortedTransaction]) -> CleanedTransactions {
        CleanedTransactions {
            to_come: aborted.iter().copied().collect(),
            aborted: BTreeMap::new(),
            committed: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    /// Takes note of a batch of records. Tells whether they were aborted.
    pub(crate) fn handle_records(&mut self, header: &BatchHeader) -> bool {
        if !header.attributes.is_transactional() {
            return false;
        }
        self.begin_up_to(header.last_offset());
        if let Some((aborted, met)) = self.aborted.get_mut(&header.producer_id) {
            if header.base_offset < aborted.last_offset {
                *met = true;
                return true;
            }
            self.aborted.remove(&header.producer_id);
        }
        self.committed.insert(header.producer_id);
        false
    }

    /// Takes note of a control batch. Tells whether nothing needs it any more.
    pub(crate) fn handle_marker(&mut self, header: &BatchHeader, marker: Marker) -> bool {
        match marker {
            Marker::Emptied => return true,
            Marker::Other => return false,
            Marker::Abort | Marker::Commit => {}
        }
        self.begin_up_to(header.last_offset());
        // Whatever was met of the producer belongs to the transaction that ends here.
        let is_needed = self.committed.remove(&header.producer_id);
        if marker == Marker::Commit {
            return !is_needed;
        }
        match self.aborted.remove(&header.producer_id) {
            Some((aborted, true)) => {
                self.kept.push(aborted);
                false
            }
            Some((_, false)) | None => !is_needed,
        }
    }

    /// The aborted transactions that must stay known and whose markers were met since the last call, in their order.
    pub(crate) fn take_kept(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.kept)
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(aborted) = self
            .to_come
            .pop_front_if(|aborted| aborted.first_offset <= offset)
        {
            self.aborted.insert(aborted.producer_id, (aborted, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taffrail_protocol::records::RecordBatchBuilder;

    fn header(offset: i64, producer_id: i64, control: bool) -> BatchHeader {
        let mut batch = RecordBatchBuilder::new(offset, 0)
            .producer(producer_id, 0, 0)
            .transactional(true)
            .control(control);
        batch.push(Some(b"key"), None, &[]);
        BatchHeader::parse(&batch.build()).expect("a batch")
    }

    fn aborted(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: last_offset + 1,
        }
    }

    #[test]
    fn aborted_records_are_told_from_committed_ones_of_the_same_producer() {
        let entries = [aborted(1, 0, 3), aborted(2, 1, 9)];
        let mut transactions = CleanedTransactions::new(&entries);
        assert!(transactions.handle_records(&header(0, 1, false)));
        assert!(transactions.handle_records(&header(1, 2, false)));
        assert!(!transactions.handle_records(&header(2, 3, false)));
        assert!(!transactions.handle_marker(&header(3, 1, true), Marker::Abort));
        assert!(!transactions.handle_records(&header(4, 1, false)));
        assert!(!transactions.handle_marker(&header(5, 1, true), Marker::Commit));
        assert!(!transactions.handle_marker(&header(6, 3, true), Marker::Commit));
        assert_eq!(transactions.take_kept(), [aborted(1, 0, 3)]);
        assert!(transactions.handle_records(&header(7, 2, false)));
        assert!(!transactions.handle_marker(&header(9, 2, true), Marker::Abort));
        assert_eq!(transactions.take_kept(), [aborted(2, 1, 9)]);
    }

    #[test]
    fn markers_of_transactions_without_records_may_go() {
        let mut transactions = CleanedTransactions::new(&[aborted(1, 0, 3)]);
        assert!(transactions.handle_marker(&header(3, 1, true), Marker::Abort));
        assert!(transactions.handle_marker(&header(4, 2, true), Marker::Commit));
        assert!(transactions.handle_marker(&header(5, 2, true), Marker::Emptied));
        assert!(!transactions.handle_marker(&header(6, 2, true), Marker::Other));
        assert_eq!(transactions.take_kept(), []);
        // An abort whose entry is missing is kept while there are records that it might end.
        assert!(!transactions.handle_records(&header(7, 4, false)));
        assert!(!transactions.handle_marker(&header(8, 4, true), Marker::Abort));
    }

    #[test]
    fn a_lost_marker_does_not_abort_what_comes_later() {
        let mut transactions = CleanedTransactions::new(&[aborted(1, 0, 3)]);
        assert!(transactions.handle_records(&header(0, 1, false)));
        assert!(!transactions.handle_records(&header(4, 1, false)));
        assert!(!transactions.handle_marker(&header(5, 1, true), Marker::Commit));
    }
}
