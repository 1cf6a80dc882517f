//! Brokers that have applied the metadata up to the same index have the same metadata.

use std::collections::BTreeMap;

use super::Invariant;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct MetadataAgreement {
    hashes: BTreeMap<i64, (String, i32)>,
}

impl Invariant for MetadataAgreement {
    fn name(&self) -> &'static str {
        "metadata agrees"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for state in &seen.states {
            let said = (state.metadata_hash.clone(), state.broker_id);
            let (hash, broker) = self.hashes.entry(state.metadata_index).or_insert(said);
            if *hash != state.metadata_hash {
                return Err(format!(
                    "brokers {broker} and {} differ at index {}",
                    state.broker_id, state.metadata_index
                ));
            }
        }
        Ok(())
    }
}
