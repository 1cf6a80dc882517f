//! Writes the CustomResourceDefinitions into crds/, or with `--check` tells whether the files are current.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let check = match env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            eprintln!("unknown argument {other}; the only one is --check");
            return ExitCode::from(2);
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for definition in taffrail_crds::definitions::definitions() {
        let path = folder.join(definition.file);
        let result = definition
            .yaml()
            .map_err(|error| error.to_string())
            .and_then(|yaml| {
                if check {
                    match fs::read_to_string(&path) {
                        Ok(current) if current == yaml => Ok(()),
                        _ => Err("not what the types say; run `make crds`".to_owned()),
                    }
                } else {
                    fs::write(&path, yaml).map_err(|error| error.to_string())
                }
            });
        if let Err(error) = result {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
