//! A voter whose disk is lost is taken out and added again, with Kafka's own tool and with ours.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::java;
use taffrail_e2e::tools::binary;
use taffrail_e2e::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(30);

fn quorum(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary("taffrail-operator")?);
    Ok(command.arg("quorum").args(arguments).output()?)
}

/// The voters with their directories, as our command tells them.
fn voters(bootstrap: &str) -> Result<Vec<(i64, String)>> {
    let output = quorum(&["describe", "--bootstrap", bootstrap, "-o", "json"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let voters = told["voters"].as_array().context("no voters")?;
    let voter = |voter: &serde_json::Value| {
        let directory = voter["directoryId"].as_str().context("no directory")?;
        Ok((voter["id"].as_i64().context("no id")?, directory.to_owned()))
    };
    voters.iter().map(voter).collect()
}

#[test]
fn a_voter_whose_disk_is_lost_is_removed_and_added_and_its_vote_counts() -> Result<()> {
    let mut cluster = Cluster::start(ClusterSpec {
        kind: BrokerKind::Taffrail,
        ..ClusterSpec::new(3)?
    })?;
    let bootstrap = cluster.bootstrap();
    let before = wait_for("three voters with their directories", LIMIT, || {
        let voters = voters(&bootstrap)?;
        Ok((voters.len() == 3).then_some(voters))
    })?;
    let (_, lost) = before.last().context("no voter")?;

    // The disk is lost, and its directory with it.
    cluster.kill(2)?;
    let data = cluster.members()[2].data();
    fs::remove_dir_all(&data)?;
    fs::create_dir(&data)?;
    let removed = java::metadata_quorum(
        &bootstrap,
        None,
        &[
            "remove-controller",
            "--controller-id",
            "2",
            "--controller-directory-id",
            lost,
        ],
    )?;
    ensure!(removed.contains("Removed"), "{removed}");
    ensure!(voters(&bootstrap)? == before[..2], "it still votes");

    // On the new one it follows, and votes when it is asked to.
    cluster.start_broker(2)?;
    cluster.wait_ready()?;
    ensure!(voters(&bootstrap)? == before[..2], "it votes unasked");
    let member = &cluster.members()[2];
    let file = member.folder.join("controller.properties");
    let properties = format!(
        "node.id=2\nprocess.roles=broker,controller\ncontroller.listener.names=INTERNAL\nlisteners=INTERNAL://{}\nlog.dirs={}\n",
        member.internal.address(),
        data.display()
    );
    fs::write(&file, properties)?;
    let added = java::metadata_quorum(&bootstrap, Some(&file), &["add-controller"])?;
    ensure!(added.contains("Added controller 2"), "{added}");
    let after = voters(&bootstrap)?;
    ensure!(after.len() == 3 && after[..2] == before[..2], "{after:?}");
    ensure!(after[2].1 != *lost, "the lost directory still votes");

    // Its vote counts: the other two could not do without either of them otherwise.
    cluster.kill(0)?;
    cluster.admin()?.create_assigned("after", &[1, 2], &[])?;
    let output = quorum(&["remove-voter", "--bootstrap", &bootstrap, "--id", "1"])?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && told.contains("no majority of the voters would live"),
        "{told}"
    );
    let output = quorum(&["remove-voter", "--bootstrap", &bootstrap, "--id", "0"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(voters(&bootstrap)?.len() == 2, "broker 0 still votes");
    cluster.finish();
    Ok(())
}
