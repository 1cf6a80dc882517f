//! Transaction coordinators: what the core's decisions look like in `__transaction_state`.

pub mod bytes;
