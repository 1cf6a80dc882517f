//! One run: a cluster, clients, faults by the schedule, then healing, reading everything back, and the verdict.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use taffrail_e2e::admin::Admin;
use taffrail_e2e::history::anomaly::Report;
use taffrail_e2e::history::check::{VALUES_MAX, check};
use taffrail_e2e::history::recorder::Recorder;
use taffrail_e2e::wait::{patient, wait_until};

use crate::bed::{Bed, BedSpec};
use crate::churn::create_and_delete;
use crate::consumers::{ConsumerSpec, be_members, read, read_to_end};
use crate::dice::Dice;
use crate::fault::FaultKind;
use crate::health::wait_whole;
use crate::interrupt;
use crate::pace::Pace;
use crate::producers::{ProducerSpec, produce};
use crate::progress::{Gap, Progress};
use crate::replicas::compare;
use crate::sandbox::{Means, must_succeed};
use crate::torment::{HEAL_LIMIT, Undo, begin, end};
use crate::watcher::{watch, watch_group};

/// What everything is written to.
const TOPIC: &str = "load";
const PARTITIONS: i32 = 6;
const REPLICAS: i32 = 3;
/// What all topics have. Timestamps may be as far from a broker's clock as they like: a clock that is wrong for a while would have
/// records refused for good, whereupon librdkafka's idempotent producer begins a new epoch and numbers anew what it has under way.
/// What stood in a log already then stands there twice, which is no fault of a broker.
pub(crate) const TOPIC_CONFIG: &[(&str, &str)] = &[
    ("min.insync.replicas", "2"),
    ("retention.ms", "-1"),
    ("message.timestamp.before.max.ms", "9223372036854775807"),
    ("message.timestamp.after.max.ms", "9223372036854775807"),
];
/// Producers with idempotence, without, and members of the group.
const IDEMPOTENT: u64 = 2;
const SINGLE: u64 = 1;
const MEMBERS: usize = 3;
/// For a cluster to start and to acknowledge the first records.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a second fault begins while the first one lasts, in percent.
const PAIRS: usize = 35;
/// Between the beginnings of two faults of a pair.
const PAIR_GAP: (Duration, Duration) = (Duration::ZERO, Duration::from_millis(1500));
/// Between the end of one fault and the beginning of the next.
const QUIET: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(1200));
/// No partition may go without an acknowledgement for longer, whatever is done to the cluster: faults last for some seconds, and
/// clients find their way back in as many.
const GAP_LIMIT: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) brokers: usize,
    pub(crate) means: Means,
    pub(crate) faults: Vec<FaultKind>,
    /// Each fault once, in the order given.
    pub(crate) once: bool,
    pub(crate) duration: Duration,
    /// How many faults at most.
    pub(crate) count: u64,
    /// Records to be acknowledged between two faults, in every partition some.
    pub(crate) between: u64,
    /// Records per second.
    pub(crate) rate: u64,
    /// Whether records are flushed before they are acknowledged.
    pub(crate) flushed: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) took: Duration,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) report: Report,
    pub(crate) replicas: usize,
    pub(crate) elections: u64,
    pub(crate) gap: Gap,
    /// Whether a signal ended the run before its time.
    pub(crate) interrupted: bool,
    /// What must not have happened and is no matter of the history.
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    /// Whether everything was as promised.
    pub(crate) fn is_good(&self) -> bool {
        self.failures.is_empty() && self.report.anomalies() == 0
    }
}

/// Runs the plan in `folder`; if it ends badly, everything that tells why is put into `evidence`.
pub(crate) fn run(plan: &Plan, folder: &Path, evidence: &Path) -> Result<Outcome> {
    let config: &[(&str, &str)] = &[
        ("taffrail.flush", if plan.flushed { "ack" } else { "os" }),
        ("auto.create.topics.enable", "false"),
        ("group.initial.rebalance.delay.ms", "500"),
        ("log.segment.bytes", "1048576"),
    ];
    let spec = BedSpec {
        brokers: plan.brokers,
        means: plan.means,
        clocks: plan.faults.contains(&FaultKind::Clock),
        config,
    };
    let mut bed = Bed::start(folder, spec)?;
    let recorder = Arc::new(Recorder::create(&folder.join("history.jsonl"))?);
    let tormented = torment(plan, &mut bed, &recorder);
    let outcome = tormented.and_then(|tormented| judge(tormented, &mut bed, &recorder));
    if !outcome.as_ref().is_ok_and(Outcome::is_good) {
        keep(&bed, &recorder, &outcome, evidence)?;
    }
    outcome
}

/// A run up to the last poll.
struct Tormented {
    took: Duration,
    faults: BTreeMap<&'static str, u64>,
    progress: Arc<Progress>,
}

fn torment(plan: &Plan, bed: &mut Bed, recorder: &Arc<Recorder>) -> Result<Tormented> {
    wait_whole(bed, START_LIMIT)?;
    let bootstrap = bed.addresses().join(",");
    Admin::connect(&bootstrap)?.create_topic(TOPIC, PARTITIONS, REPLICAS, TOPIC_CONFIG)?;
    let progress = Arc::new(Progress::new(usize::try_from(PARTITIONS)?));
    let reading = ConsumerSpec {
        bootstrap: bootstrap.clone(),
        topic: TOPIC.to_owned(),
        name: TOPIC.to_owned(),
        partitions: PARTITIONS,
    };
    let clients = start_clients(plan, &reading, &bed.addresses(), recorder, &progress);
    wait_until("the first acknowledgements", START_LIMIT, || {
        Ok(progress.acknowledged() > plan.rate)
    })?;
    progress.restart_clocks();
    let mut tormentor = Tormentor {
        plan,
        pace: Pace::new(plan.duration, plan.count),
        dice: Dice::new(plan.seed),
        deck: Vec::new(),
        recorder: Arc::clone(recorder),
        progress: Arc::clone(&progress),
        faults: BTreeMap::new(),
        topics: 0,
    };
    while !tormentor.is_done() {
        let Err(error) = tormentor.round(bed) else {
            continue;
        };
        progress.fail(format!("{error:#}"));
        if let Err(error) = tormentor.start_all_anew(bed) {
            progress.fail(format!("{error:#}"));
            break;
        }
    }
    let (pace, faults) = (tormentor.pace, tormentor.faults);
    progress.now("the end");
    progress.stop();
    for client in clients {
        match client.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => progress.fail(format!("a client failed: {error:#}")),
            Err(_) => progress.fail("a client panicked".to_owned()),
        }
    }
    println!("reading everything back");
    if let Err(error) = read_to_end(&reading, recorder) {
        progress.fail(format!("not everything can be read back: {error:#}"));
    }
    Ok(Tormented {
        took: pace.elapsed(),
        faults,
        progress,
    })
}

type Client = JoinHandle<Result<()>>;
/// What reads or watches until told to stop; not each needs all of it.
type Reader = fn(&ConsumerSpec, &[String], Dice, &Recorder, &Progress) -> Result<()>;

fn start_clients(
    plan: &Plan,
    reading: &ConsumerSpec,
    addresses: &[String],
    recorder: &Arc<Recorder>,
    progress: &Arc<Progress>,
) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..IDEMPOTENT + SINGLE {
        let (recorder, progress) = (Arc::clone(recorder), Arc::clone(progress));
        let spec = ProducerSpec {
            bootstrap: reading.bootstrap.clone(),
            topic: reading.topic.clone(),
            name: reading.name.clone(),
            partitions: reading.partitions,
            rate: plan.rate / (IDEMPOTENT + SINGLE),
            idempotent: number < IDEMPOTENT,
        };
        clients.push(thread::spawn(move || produce(&spec, &recorder, &progress)));
    }
    let mut start = |client: Reader, dice: Dice| {
        let (recorder, progress) = (Arc::clone(recorder), Arc::clone(progress));
        let (reading, addresses) = (reading.clone(), addresses.to_vec());
        clients.push(thread::spawn(move || {
            client(&reading, &addresses, dice, &recorder, &progress)
        }));
    };
    let mut dice = Dice::new(!plan.seed);
    start(
        |spec, _, _, recorder, progress| read(spec, recorder, progress),
        dice.clone(),
    );
    for _ in 0..MEMBERS {
        let own = Dice::new(dice.next());
        start(
            |spec, _, dice, recorder, progress| be_members(spec, dice, recorder, progress),
            own,
        );
    }
    start(
        |spec, addresses, _, recorder, progress| watch(spec, addresses, recorder, progress),
        dice.clone(),
    );
    start(
        |spec, _, _, recorder, progress| watch_group(spec, recorder, progress),
        dice,
    );
    clients
}

/// Carries out the schedule.
struct Tormentor<'a> {
    plan: &'a Plan,
    pace: Pace,
    dice: Dice,
    /// Kinds still to come before each comes again; the next one last.
    deck: Vec<FaultKind>,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    faults: BTreeMap<&'static str, u64>,
    topics: u64,
}

impl Tormentor<'_> {
    fn count(&self) -> u64 {
        self.faults.values().sum()
    }

    fn is_done(&self) -> bool {
        let all_once = self.plan.once && self.count() >= self.plan.faults.len() as u64;
        interrupt::came() || all_once || self.pace.is_over(self.count())
    }

    /// One fault or two at once, healing, and some quiet.
    fn round(&mut self, bed: &mut Bed) -> Result<()> {
        let first = self.draw();
        let mut undo = Vec::new();
        let begun = self.begin_some(first, bed, &mut undo);
        // Power comes back first, so that nobody is started on a dead disk; reassignments are undone last: they end when everybody
        // is there.
        undo.sort_by_key(|undo| match undo {
            Undo::PowerOn(_) => 0,
            Undo::AllReplicas(..) => 2,
            Undo::Nothing
            | Undo::Start(_)
            | Undo::Continue(_)
            | Undo::Reconnect(_)
            | Undo::Unthrottle(_)
            | Undo::Empty(_)
            | Undo::SetClock(_) => 1,
        });
        let mut undone = Ok(());
        for undo in undo {
            let done = end(undo, TOPIC, bed);
            undone = undone.and(done);
        }
        let words = begun?;
        undone.with_context(|| format!("cannot undo {words}"))?;
        let healing = Instant::now();
        self.revive(&words, bed)?;
        let whole = wait_whole(bed, HEAL_LIMIT);
        self.revive(&words, bed)?;
        whole.with_context(|| format!("after {words}"))?;
        let healed = healing.elapsed();
        self.recorder.note("whole");
        println!(
            "{:8.1} s  {words}; whole {:.1} s later; {} acknowledged; {}",
            Duration::from_millis(self.recorder.ms()).as_secs_f64(),
            healed.as_secs_f64(),
            self.progress.acknowledged(),
            self.pace.words(self.count())
        );
        self.wait_for_records()
            .with_context(|| format!("after {words}"))?;
        let quiet = self.dice.between(QUIET.0, QUIET.1);
        interrupt::sleep(quiet);
        Ok(())
    }

    /// What was just recovered is used before it is tormented again.
    fn wait_for_records(&self) -> Result<()> {
        if self.plan.between == 0 {
            return Ok(());
        }
        let (whole, wanted) = (
            Instant::now(),
            self.progress.acknowledged() + self.plan.between,
        );
        wait_until("records to be acknowledged", GAP_LIMIT, || {
            let enough = self.progress.acknowledged() >= wanted
                && self.progress.all_acknowledged_after(whole);
            Ok(enough || interrupt::came())
        })
    }

    /// Brokers that ended by themselves must not have, and are started again.
    fn revive(&self, words: &str, bed: &mut Bed) -> Result<()> {
        for ended in bed.revive()? {
            self.recorder.note(&ended);
            self.progress.fail(format!("after {words}: {ended}"));
        }
        Ok(())
    }

    /// Begins one fault, perhaps a second one, and lets them last; gives both in words.
    fn begin_some(
        &mut self,
        first: FaultKind,
        bed: &mut Bed,
        undo: &mut Vec<Undo>,
    ) -> Result<String> {
        let mut words = self.begin(first, bed, undo)?;
        let second = self.deck.last().copied().filter(|second| {
            !self.plan.once
                && *second != first
                && first.mixes(self.plan.flushed)
                && second.mixes(self.plan.flushed)
        });
        let mut span = first.span();
        if let Some(second) = second
            && self.dice.percent(PAIRS)
        {
            self.deck.pop();
            let gap = self.dice.between(PAIR_GAP.0, PAIR_GAP.1);
            interrupt::sleep(gap);
            words = format!("{words} and {}", self.begin(second, bed, undo)?);
            span = (span.0.max(second.span().0), span.1.max(second.span().1));
        }
        let lasting = self.dice.between(span.0, span.1);
        interrupt::sleep(lasting);
        Ok(format!("{words} for {:.1} s", lasting.as_secs_f64()))
    }

    fn begin(&mut self, kind: FaultKind, bed: &mut Bed, undo: &mut Vec<Undo>) -> Result<String> {
        self.progress.now(kind.name());
        self.recorder.note(format!("{} begins", kind.name()));
        let begun = begin(kind, TOPIC, PARTITIONS, &mut self.dice, bed)
            .with_context(|| format!("cannot begin {}", kind.name()))?;
        undo.push(begun.undo);
        if kind == FaultKind::Topics {
            self.topics += 1;
            create_and_delete(self.topics, &bed.addresses(), &self.recorder)
                .context("topics cannot be created and deleted while all is well")?;
        }
        self.recorder.note(&begun.words);
        self.progress.now(&begun.words);
        if begun.took_effect {
            *self.faults.entry(kind.name()).or_default() += 1;
        }
        Ok(begun.words)
    }

    fn draw(&mut self) -> FaultKind {
        if self.deck.is_empty() {
            let faults = &self.plan.faults;
            self.deck = if self.plan.once {
                faults.iter().rev().copied().collect()
            } else {
                let order = self.dice.order(faults.len());
                order.into_iter().map(|at| faults[at]).collect()
            };
        }
        self.deck.pop().unwrap_or(FaultKind::Kill)
    }

    /// The cluster did not heal: that is a failure already; what comes after is still worth knowing.
    fn start_all_anew(&mut self, bed: &mut Bed) -> Result<()> {
        self.recorder.note("all brokers are started anew");
        let everybody: Vec<usize> = (0..bed.brokers()).collect();
        bed.kill(&everybody)?;
        for id in everybody {
            bed.run(id)?;
        }
        wait_whole(bed, HEAL_LIMIT).context("also after all brokers were started anew")
    }
}

/// Ends the brokers and judges what the clients saw and what the disks hold.
fn judge(tormented: Tormented, bed: &mut Bed, recorder: &Recorder) -> Result<Outcome> {
    let (gap, elections, mut failures) = tormented.progress.outcome();
    if gap.length > patient(GAP_LIMIT) {
        let seconds = gap.length.as_secs_f64();
        failures.push(format!(
            "a partition had no acknowledgement for {seconds:.1} s ({})",
            gap.during
        ));
    }
    let everybody: Vec<usize> = (0..bed.brokers()).collect();
    bed.kill(&everybody)?;
    let replicas = match compare(bed, TOPIC, PARTITIONS, usize::try_from(REPLICAS)?) {
        Ok((replicas, differences)) => {
            failures.extend(differences);
            replicas
        }
        Err(error) => {
            failures.push(format!("replicas cannot be compared: {error:#}"));
            0
        }
    };
    let report = check(&recorder.finish()?, VALUES_MAX)?;
    Ok(Outcome {
        took: tormented.took,
        faults: tormented.faults,
        report,
        replicas,
        elections,
        gap,
        interrupted: interrupt::came(),
        failures,
    })
}

fn keep(bed: &Bed, recorder: &Recorder, outcome: &Result<Outcome>, evidence: &Path) -> Result<()> {
    fs::create_dir_all(evidence)
        .with_context(|| format!("cannot create {}", evidence.display()))?;
    let history: PathBuf = recorder.finish()?;
    fs::copy(&history, evidence.join("history.jsonl"))?;
    bed.keep_logs(evidence)?;
    for id in 0..bed.brokers() {
        let kept = evidence.join(format!("broker-{id}.data"));
        must_succeed(
            Command::new("cp")
                .args(["-r", "--sparse=always"])
                .args([bed.log_dir(id), kept]),
        )?;
    }
    let verdict = match outcome {
        Ok(outcome) => format!("{}\n{}\n", outcome.report, outcome.failures.join("\n")),
        Err(error) => format!("{:?}\n", anyhow!("{error:#}")),
    };
    fs::write(evidence.join("verdict.txt"), verdict)?;
    Ok(())
}
