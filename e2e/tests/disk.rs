//! Disks that fill up and disks that fail, under load: what is acknowledged stays, the process goes on, and so do the clients.
//!
//! Needs the right to mount. Without it the tests fail, unless `TAFFRAIL_SKIP_MOUNTS=1` says that they shall not run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::http;
use taffrail_e2e::load::{Load, LoadSpec, read_back};
use taffrail_e2e::logcheck;
use taffrail_e2e::wait::{wait_for, wait_until};

const TOPIC: &str = "load";
const RATE: u64 = 500;
const LIMIT: Duration = Duration::from_secs(60);
/// `_IOR('X', 125, u32)` and EXT4_GOING_FLAGS_NOLOGFLUSH: from then on every write to the file system fails with EIO.
const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587D as libc::Ioctl;
const WITHOUT_LOG_FLUSH: u32 = 2;

/// A file system of a few dozen megabytes, unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    /// In memory.
    fn tmpfs(path: &Path, megabytes: u64) -> Result<Self> {
        let size = format!("size={megabytes}m");
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "taffrail"])
            .arg(path))?;
        Ok(Self(path.to_owned()))
    }

    /// In a file.
    fn ext4(image: &Path, path: &Path, megabytes: u64) -> Result<Self> {
        File::create(image)?.set_len(megabytes << 20)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(image))?;
        fs::create_dir_all(path)?;
        Self::again(image, path)
    }

    fn again(image: &Path, path: &Path) -> Result<Self> {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(path))?;
        Ok(Self(path.to_owned()))
    }

    /// Every write fails from now on.
    fn fail(&self) -> Result<()> {
        let folder = File::open(&self.0)?;
        let flags = WITHOUT_LOG_FLUSH;
        // SAFETY: the request reads one u32 through the pointer, which is valid during the call.
        match unsafe { libc::ioctl(folder.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("EXT4_IOC_SHUTDOWN"),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, since a broker that is being killed may still hold files open.
        if let Err(error) = run(Command::new("umount").arg("-l").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

fn skipped() -> bool {
    std::env::var_os("TAFFRAIL_SKIP_MOUNTS").is_some_and(|skip| skip == "1")
}

/// What a broker's HTTP port answers.
fn http(cluster: &Cluster, broker: usize, path: &str) -> Result<(u16, String)> {
    http::get(&cluster.members()[broker].http(path))
}

/// The value of a metric without labels, or with any.
fn metric(cluster: &Cluster, broker: usize, name: &str) -> Result<f64> {
    let found = http::metric(&cluster.members()[broker].http("/metrics"), name)?;
    found.with_context(|| format!("there is no {name}"))
}

/// Remembers the first error of a delivery.
#[derive(Clone, Default)]
struct FirstError(std::sync::Arc<std::sync::Mutex<Option<KafkaError>>>);

impl rdkafka::ClientContext for FirstError {}

impl ProducerContext for FirstError {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let mut first = self.0.lock().expect("no panic while locked");
            first.get_or_insert_with(|| error.clone());
        }
    }
}

/// Produces large records, without trying again, until one is refused; gives the refusal.
fn fill(bootstrap: &str, topic: &str) -> Result<KafkaError> {
    let context = FirstError::default();
    let producer: ThreadedProducer<FirstError> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("acks", "1")
        .set("retries", "0")
        .set("queue.buffering.max.messages", "20")
        .set("message.max.bytes", "900000")
        .set("log_level", "0")
        .create_with_context(context.clone())?;
    let value = vec![b'x'; 200_000];
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(error) = context.0.lock().expect("no panic while locked").clone() {
            return Ok(error);
        }
        let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(topic).payload(&value);
        if producer.send(record).is_err() {
            producer.flush(Duration::from_millis(20)).ok();
        }
    }
    bail!("nothing was refused")
}

#[test]
fn full_disk_refuses_producers_and_serves_them_again_when_there_is_room() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let spec = ClusterSpec::new(1)?.with("taffrail.disk.reserve.bytes", "16777216");
    let mut cluster = Cluster::prepare(spec)?;
    let disk = Mount::tmpfs(&cluster.members()[0].data(), 96)?;
    cluster.start_broker(0)?;
    cluster.wait_ready()?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, 2, 1, &[])?;
    admin.create_topic("filler", 1, 1, &[("segment.bytes", "4194304")])?;
    let spec = LoadSpec {
        topic: TOPIC.to_owned(),
        partitions: 2,
        rate: RATE,
    };
    let load = Load::start(&cluster.bootstrap(), spec)?;
    wait_until("the load to be acknowledged", LIMIT, || {
        Ok(load.acknowledged() > RATE)
    })?;

    let refusal = fill(&cluster.bootstrap(), "filler")?;
    let code = refusal.rdkafka_error_code();
    ensure!(
        code == Some(RDKafkaErrorCode::KafkaStorageError),
        "refused with {refusal:?}"
    );
    wait_until("the broker to say that it is full", LIMIT, || {
        Ok(metric(&cluster, 0, "taffrail_log_directory_full")? > 0.0)
    })?;
    let (_, state) = http(&cluster, 0, "/admin/state")?;
    ensure!(state.contains("\"full\":true"));
    let usable = metric(&cluster, 0, "taffrail_log_directory_usable_bytes")?;
    ensure!(usable > 8e6, "only {usable} bytes are left of the reserve");
    let before = wait_for("the load to stand still", LIMIT, || {
        let before = load.acknowledged();
        thread::sleep(Duration::from_secs(1));
        Ok((load.acknowledged() == before).then_some(before))
    })?;
    // Reads go on.
    let read = read_back(&cluster.bootstrap(), TOPIC)?;
    ensure!(
        read.len() as u64 >= before,
        "{} of {before} records",
        read.len()
    );

    admin.delete_topic("filler")?;
    wait_until("the load to go on by itself", LIMIT, || {
        Ok(load.acknowledged() > before + RATE)
    })?;
    cluster.must_run()?;
    ensure!(metric(&cluster, 0, "kafka_log_logmanager_offlinelogdirectorycount")? == 0.0);
    let outcomes = load.stop()?;
    logcheck::check(&outcomes.sent, &[read_back(&cluster.bootstrap(), TOPIC)?]).must_hold()?;
    cluster.stop(0)?;
    cluster.finish();
    drop(disk);
    Ok(())
}

#[test]
fn failed_log_directory_moves_its_leaders_and_leaves_the_others() -> Result<()> {
    const PARTITIONS: i32 = 12;
    if skipped() {
        return Ok(());
    }
    let mut cluster = Cluster::prepare(ClusterSpec::new(3)?)?;
    let folder = cluster.members()[1].folder.clone();
    let (image, second) = (folder.join("second.img"), folder.join("second"));
    let disk = Mount::ext4(&image, &second, 64)?;
    // Not the mount's own folder, which has a lost+found.
    let directory = second.join("data");
    add_log_directory(&folder, &directory)?;
    for id in 0..3 {
        cluster.start_broker(id)?;
    }
    cluster.wait_ready()?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
    let spec = LoadSpec {
        topic: TOPIC.to_owned(),
        partitions: PARTITIONS,
        rate: 4 * RATE,
    };
    let load = Load::start(&cluster.bootstrap(), spec)?;
    wait_until("the load to be acknowledged", LIMIT, || {
        Ok(load.acknowledged() > 4 * RATE)
    })?;
    admin.wait_in_sync(TOPIC, PARTITIONS as usize, 3, LIMIT)?;
    let failing = partitions_in(&directory)?;
    ensure!(failing.len() == PARTITIONS as usize / 2, "{failing:?}");

    let at = Instant::now();
    disk.fail()?;
    wait_for(
        "the partitions of the failed directory to leave broker 1",
        LIMIT,
        || {
            let found = admin.partitions(TOPIC)?;
            let moved = found.iter().all(|partition| {
                let fails = failing.contains(&partition.partition);
                let isr: &[i32] = if fails { &[0, 2] } else { &[0, 1, 2] };
                partition.isr == isr && partition.leader >= 0 && !(fails && partition.leader == 1)
            });
            Ok(moved.then_some(()))
        },
    )?;
    println!(
        "leadership and ISR moved within {:.2} s",
        at.elapsed().as_secs_f64()
    );
    let led = admin.partitions(TOPIC)?;
    ensure!(
        led.iter().any(|partition| partition.leader == 1),
        "broker 1 leads others on"
    );
    ensure!(metric(&cluster, 1, "kafka_log_logmanager_offlinelogdirectorycount")? == 1.0);
    ensure!(http(&cluster, 1, "/readyz")?.0 == 200);
    let before = load.acknowledged();
    wait_until("the load to go on", LIMIT, || {
        Ok(load.acknowledged() > before + 4 * RATE)
    })?;
    cluster.must_run()?;

    // The disk is repaired: the directory is used again after a restart.
    let stopped = Instant::now();
    cluster.stop(1)?;
    drop(disk);
    let disk = Mount::again(&image, &second)?;
    cluster.start_broker(1)?;
    admin.wait_in_sync(TOPIC, PARTITIONS as usize, 3, LIMIT)?;
    ensure!(partitions_in(&directory)? == failing);
    let outcomes = load.stop()?;
    let silence = |from, to| outcomes.longest_silence_between(from, to).as_secs_f64();
    println!(
        "longest silence of a partition: {:.2} s after the failure, {:.2} s over the restart",
        silence(at, stopped),
        silence(stopped, Instant::now())
    );
    logcheck::check(&outcomes.sent, &[read_back(&cluster.bootstrap(), TOPIC)?]).must_hold()?;
    for id in 0..3 {
        cluster.stop(id)?;
    }
    cluster.finish();
    drop(disk);
    Ok(())
}

#[test]
fn flipped_bytes_are_found_and_fetched_anew_from_replicas_that_are_whole() -> Result<()> {
    let spec = ClusterSpec::new(3)?
        .with("taffrail.scrub.interval.ms", "1000")
        .with("taffrail.scrub.bytes.per.second", "1073741824");
    let cluster = Cluster::start(spec)?;
    let admin = cluster.admin()?;
    admin.create_assigned(
        "rot",
        &[0, 1, 2],
        &[("segment.bytes", "1048576"), ("min.insync.replicas", "2")],
    )?;
    produce(&cluster.bootstrap(), "rot", 600)?;
    let whole = content(&cluster, 2, "rot")?;
    wait_until("the replicas to be the same", LIMIT, || {
        Ok(content(&cluster, 0, "rot")? == whole && content(&cluster, 1, "rot")? == whole)
    })?;
    // A follower's first segment, and one in the middle of the leader's log.
    flip(&segments(&cluster, 1, "rot")?[0], 30_000)?;
    flip(&segments(&cluster, 0, "rot")?[2], 30_000)?;
    for broker in [0, 1] {
        ensure!(content(&cluster, broker, "rot")? != whole);
    }
    wait_until("both replicas to be whole again", LIMIT, || {
        Ok(content(&cluster, 0, "rot")? == whole && content(&cluster, 1, "rot")? == whole)
    })?;
    admin.wait_in_sync("rot", 1, 3, LIMIT)?;
    ensure!(
        admin.partitions("rot")?[0].leader != 0,
        "a damaged leader resigns"
    );
    for broker in [0, 1] {
        wait_until("no damage to be left", LIMIT, || {
            Ok(metric(&cluster, broker, "taffrail_log_damaged_replicas")? == 0.0)
        })?;
    }
    produce(&cluster.bootstrap(), "rot", 10)?;
    cluster.finish();
    Ok(())
}

#[test]
fn leader_whose_damaged_records_a_follower_refuses_resigns() -> Result<()> {
    let spec = ClusterSpec::new(3)?.with("taffrail.scrub.interval.ms", "-1");
    let mut cluster = Cluster::start(spec)?;
    let admin = cluster.admin()?;
    admin.create_assigned("rot", &[0, 1, 2], &[("min.insync.replicas", "2")])?;
    produce(&cluster.bootstrap(), "rot", 50)?;
    cluster.stop(1)?;
    let before = content(&cluster, 0, "rot")?.len();
    produce(&cluster.bootstrap(), "rot", 50)?;
    let whole = content(&cluster, 2, "rot")?;
    flip(
        &segments(&cluster, 0, "rot")?[0],
        u64::try_from(before)? + 5000,
    )?;
    cluster.start_broker(1)?;
    wait_until("all replicas to be whole", LIMIT, || {
        Ok(content(&cluster, 0, "rot")? == whole && content(&cluster, 1, "rot")? == whole)
    })?;
    admin.wait_in_sync("rot", 1, 3, LIMIT)?;
    ensure!(
        admin.partitions("rot")?[0].leader != 0,
        "a damaged leader resigns"
    );
    cluster.finish();
    Ok(())
}

/// Sends records of 10 kB with acks=all and waits for them.
fn produce(bootstrap: &str, topic: &str, records: usize) -> Result<()> {
    let context = FirstError::default();
    let producer: ThreadedProducer<FirstError> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("acks", "all")
        .set("log_level", "0")
        .create_with_context(context.clone())?;
    for number in 0..records {
        let value = format!("{number:010}").repeat(1000);
        let record: BaseRecord<'_, (), str> = BaseRecord::to(topic).payload(&value);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(LIMIT)?;
    match context.0.lock().expect("no panic while locked").clone() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// The segments of partition 0, in order.
fn segments(cluster: &Cluster, broker: usize, topic: &str) -> Result<Vec<PathBuf>> {
    let folder = cluster.partition_folder(broker, topic, 0);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "log") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// All batches of partition 0.
fn content(cluster: &Cluster, broker: usize, topic: &str) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    for path in segments(cluster, broker, topic)? {
        content.extend(fs::read(path)?);
    }
    Ok(content)
}

/// Changes one bit, as a failing medium does.
fn flip(path: &Path, position: u64) -> Result<()> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)?;
    file.write_all_at(&[byte[0] ^ 4], position)?;
    Ok(())
}

fn add_log_directory(folder: &Path, directory: &Path) -> Result<()> {
    let file = folder.join("broker.properties");
    let text = fs::read_to_string(&file)?;
    let first = folder.join("data").display().to_string();
    let both = format!("{first},{}", directory.display());
    let changed = text.replace(
        &format!("log.dirs={first}\n"),
        &format!("log.dirs={both}\n"),
    );
    ensure!(changed != text, "no log.dirs in {text}");
    fs::write(file, changed)?;
    Ok(())
}

fn partitions_in(directory: &Path) -> Result<BTreeSet<i32>> {
    let mut partitions = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("load-") {
            partitions.insert(number.parse()?);
        }
    }
    Ok(partitions)
}
