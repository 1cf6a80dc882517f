//! Everything that takes bytes or text from outside, as fuzz targets: what each does with its input, what memory it may take, and
//! a search by mutation that needs no special compiler. The smoke test runs it for seconds, `make fuzz` for as long as asked.

pub mod search;
pub mod targets;
