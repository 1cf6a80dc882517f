//! Who leads the metadata quorum, asked with DescribeQuorum: the controller that Metadata names is any broker.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(60);

/// The id of the active controller, as one of the brokers tells.
pub(crate) fn controller(cluster: &Cluster) -> Result<usize> {
    wait_for("a broker to know the active controller", LIMIT, || {
        for member in cluster.members() {
            if let Ok(leader) = ask(&member.client.address())
                && let Ok(leader) = usize::try_from(leader)
            {
                return Ok(Some(leader));
            }
        }
        Ok(None)
    })
}

fn ask(address: &str) -> Result<i32> {
    const TOPIC: &[u8] = b"__cluster_metadata";
    let mut request = vec![0, 55, 0, 0, 0, 0, 0, 1, 0, 5]; // DescribeQuorum 0, correlation id, client id
    request.extend_from_slice(b"bench");
    request.extend_from_slice(&[0, 2]); // no tags; one topic
    request.push(u8::try_from(TOPIC.len() + 1)?);
    request.extend_from_slice(TOPIC);
    request.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]); // partition 0; no tags, three times
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.write_all(&u32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?.min(1 << 20)];
    stream.read_exact(&mut answer)?;
    // Correlation id and tags; the error of the whole; the topic with its name; the partition's index and error.
    let error = answer.get(5..7).context("a short answer")?;
    if error != [0, 0] {
        bail!("DescribeQuorum failed: {error:?}");
    }
    let name = usize::from(*answer.get(8).context("a short answer")?).saturating_sub(1);
    let partition = 9 + name + 1;
    let (error, leader) = (partition + 4, partition + 6);
    if answer.get(error..leader) != Some(&[0, 0]) {
        bail!("DescribeQuorum failed for the partition");
    }
    let leader = answer.get(leader..leader + 4).context("a short answer")?;
    Ok(i32::from_be_bytes(leader.try_into()?))
}
