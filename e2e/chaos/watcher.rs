//! Asks brokers, all the time: where partitions end, who leads, what the group has committed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use taffrail_e2e::history::event::{Event, Kind};
use taffrail_e2e::history::recorder::Recorder;

use crate::consumers::{ConsumerSpec, ask_committed, onlooker};
use crate::health::leaders;
use crate::progress::Progress;
use crate::record::key;
use crate::wire;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two questions for what the group has committed.
const COMMITTED_EVERY: Duration = Duration::from_secs(1);

/// Leader epochs seen so far, by topic and partition.
type Epochs = BTreeMap<(String, i32), i32>;

/// Watches until told to stop.
pub(crate) fn watch(
    spec: &ConsumerSpec,
    addresses: &[String],
    recorder: &Recorder,
    progress: &Progress,
) -> Result<()> {
    let process = recorder.process();
    let (mut epochs, mut partition) = (Epochs::new(), 0);
    while !progress.stopped() {
        partition = (partition + 1) % spec.partitions;
        ask_end(spec, partition, addresses, process, recorder);
        for address in addresses {
            // Who does not answer is being tormented.
            if let Ok(metadata) = wire::metadata(address) {
                progress.elected(count_elections(&mut epochs, &leaders(&metadata)));
                break;
            }
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Asks what the group has committed until told to stop.
pub(crate) fn watch_group(
    spec: &ConsumerSpec,
    recorder: &Recorder,
    progress: &Progress,
) -> Result<()> {
    let (process, consumer) = (recorder.process(), onlooker(spec)?);
    let mut asked = Instant::now();
    while !progress.stopped() {
        thread::sleep(PAUSE);
        if asked.elapsed() >= COMMITTED_EVERY {
            ask_committed(&consumer, spec, process, recorder)?;
            asked = Instant::now();
        }
    }
    Ok(())
}

/// Asks the leader where a partition ends, and then everybody else whether there is a newer leader.
fn ask_end(
    spec: &ConsumerSpec,
    partition: i32,
    addresses: &[String],
    process: u32,
    recorder: &Recorder,
) {
    let tell = |kind, epoch, offset, current| {
        recorder.record(&Event::Latest {
            kind,
            process,
            key: key(&spec.name, partition),
            epoch,
            offset,
            current,
        });
    };
    tell(Kind::Invoke, None, None, false);
    let place = (spec.topic.clone(), partition);
    // Whoever believes to lead is asked: also a leader of yesterday that does not know.
    let believed = addresses.iter().enumerate().find(|(id, address)| {
        let known = wire::metadata(address).map(|metadata| leaders(&metadata));
        known.is_ok_and(|known| known.get(&place).map(|l| l.0) == i32::try_from(*id).ok())
    });
    let answer = believed.and_then(|(_, address)| {
        let answer = wire::latest(address, &spec.topic, partition);
        answer.ok()
    });
    match answer {
        Some((epoch, end)) => {
            let current = addresses.iter().all(|address| {
                wire::metadata(address).is_ok_and(|metadata| {
                    leaders(&metadata)
                        .get(&place)
                        .is_some_and(|(_, known)| *known <= epoch)
                })
            });
            tell(Kind::Ok, Some(epoch), Some(end), current);
        }
        None => tell(Kind::Fail, None, None, false),
    }
}

/// How many leader epochs began since the last look. A topic that is seen for the first time had no election.
fn count_elections(epochs: &mut Epochs, leaders: &BTreeMap<(String, i32), (i32, i32)>) -> u64 {
    let mut count = 0;
    for (partition, (_, epoch)) in leaders {
        let known = epochs.entry(partition.clone()).or_insert(*epoch);
        count += u64::try_from(epoch - *known).unwrap_or(0);
        *known = (*known).max(*epoch);
    }
    count
}
