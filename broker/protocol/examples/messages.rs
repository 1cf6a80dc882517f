//! Prints the generated message code, or only the module named by the argument:
//! `cargo run -q -p taffrail-protocol --example messages -- fetch_request`.

const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/messages.rs"));

fn main() {
    let Some(module) = std::env::args().nth(1) else {
        print!("{GENERATED}");
        return;
    };
    let head = format!("pub mod {module} {{");
    let lines = GENERATED.lines().skip_while(|line| *line != head);
    let mut count = 0;
    for line in lines.take_while(|line| *line != "}") {
        count += 1;
        println!("{line}");
    }
    if count == 0 {
        eprintln!("no module {module}");
        std::process::exit(1);
    }
    println!("}}");
}
