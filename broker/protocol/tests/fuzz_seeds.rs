//! The committed seeds of the fuzz targets are those that the definitions make.

mod support;

use std::fs;

use support::seeds::seeds;

#[test]
fn seeds_are_those_of_the_definitions() {
    let seeds = seeds();
    let differ = seeds
        .iter()
        .filter(|seed| fs::read(&seed.file).ok().as_ref() != Some(&seed.bytes));
    let files: Vec<String> = differ.map(|seed| seed.file.display().to_string()).collect();
    assert!(files.is_empty(), "run `make seeds`: {files:#?}");
}
