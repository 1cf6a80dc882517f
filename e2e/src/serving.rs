//! Whether a cluster serves: the question after everything that a test did to it.

use anyhow::{Result, ensure};

use crate::cluster::Cluster;
use crate::read::read_all;
use crate::text::Text;

/// The cluster takes a text into its topic "text" and gives it back, with all that was taken so before.
pub fn must_serve(cluster: &Cluster) -> Result<()> {
    let text = Text::of(1000)?;
    text.produce(
        &cluster.bootstrap(),
        "text",
        0,
        text.count(),
        &[("message.timeout.ms", "20000")],
    )?;
    let records = read_all(&cluster.bootstrap(), "text", |_| ())?;
    ensure!(records % 1000 == 0 && records > 0, "{records} records");
    Ok(())
}
