//! Generates the message types and their codec from `messages/*.msg` into `$OUT_DIR/messages.rs`.
//! To read the result: `cargo run -q -p taffrail-protocol --example messages`.

mod definition;
mod generate;
mod tables;

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=messages");
    println!("cargo::rerun-if-changed=build");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("messages");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("messages/")
        .map(|entry| entry.expect("entry").path())
        .collect();
    files.sort();
    let mut definitions = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "msg"))
    {
        let text = fs::read_to_string(file).expect("a readable definition");
        definitions.extend(definition::parse(&file.display().to_string(), &text));
    }
    let output = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("messages.rs");
    fs::write(output, generate::generate(&definitions)).expect("a writable OUT_DIR");
}
