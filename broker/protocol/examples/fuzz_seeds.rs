//! Writes the seeds of the fuzz targets anew (`make seeds`), after a definition changed.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::io;

fn main() -> io::Result<()> {
    for seed in support::seeds::seeds() {
        if let Some(folder) = seed.file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(seed.file, seed.bytes)?;
    }
    Ok(())
}
