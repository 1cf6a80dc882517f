//! Topics that come and go beside the load: what a deleted topic held must not be seen in a new one of its name.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use taffrail_e2e::admin::Admin;
use taffrail_e2e::history::recorder::Recorder;
use taffrail_e2e::wait::wait_until;
use taffrail_protocol::messages::MetadataResponse;

use crate::consumers::{ConsumerSpec, read_to_end};
use crate::producers::{ProducerSpec, produce_some};
use crate::progress::Progress;
use crate::run::TOPIC_CONFIG;
use crate::wire::metadata;

const PARTITIONS: i32 = 2;
const RECORDS: u64 = 100;
/// For all brokers to know a new topic, and to know a deleted one no more.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);

/// Creates a topic, writes and reads it, and deletes it, twice under one name.
pub(crate) fn create_and_delete(
    number: u64,
    addresses: &[String],
    recorder: &Arc<Recorder>,
) -> Result<()> {
    let bootstrap = addresses.join(",");
    let (topic, admin) = (format!("churn-{number}"), Admin::connect(&bootstrap)?);
    for life in 1..=2 {
        admin.create_topic(&topic, PARTITIONS, 3, TOPIC_CONFIG)?;
        // A client that asks a broker which does not know the topic yet is told that there is none.
        wait_for_all(addresses, &format!("{topic} to be known"), |known| {
            leads(known, &topic) == Some(true)
        })?;
        let name = format!("{topic}#{life}");
        let reading = ConsumerSpec {
            bootstrap: bootstrap.clone(),
            topic: topic.clone(),
            name: name.clone(),
            partitions: PARTITIONS,
        };
        let found = read_to_end(&reading, recorder)?;
        ensure!(found == 0, "{topic} is new and has {found} records");
        let writing = ProducerSpec {
            bootstrap: bootstrap.clone(),
            topic: topic.clone(),
            name,
            partitions: PARTITIONS,
            rate: 1000,
            idempotent: true,
        };
        let progress = Arc::new(Progress::new(usize::try_from(PARTITIONS)?));
        produce_some(&writing, RECORDS, recorder, &progress)?;
        read_to_end(&reading, recorder)?;
        admin.delete_topic(&topic)?;
        wait_for_all(addresses, &format!("{topic} to be gone"), |known| {
            leads(known, &topic).is_none()
        })?;
    }
    Ok(())
}

fn wait_for_all(
    addresses: &[String],
    what: &str,
    as_it_should: impl Fn(&MetadataResponse) -> bool,
) -> Result<()> {
    wait_until(what, KNOWN_LIMIT, || {
        for address in addresses {
            if !as_it_should(&metadata(address)?) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Whether all partitions of a topic are led, if it is known.
fn leads(metadata: &MetadataResponse, topic: &str) -> Option<bool> {
    let topic = metadata
        .topics
        .iter()
        .find(|known| known.name.as_deref() == Some(topic))?;
    let led = topic.partitions.iter().filter(|p| p.leader_id >= 0).count();
    Some(i32::try_from(led) == Ok(PARTITIONS))
}
