//! The messages, generated from `messages/*.msg`: a module per message, all top-level types re-exported here.
//! To read the generated code: `cargo run -q -p taffrail-protocol --example messages`.
#![allow(clippy::all, unused_variables, unused_mut)]

/// What the generated modules use.
mod prelude {
    pub(super) use crate::error::{DecodeError, EncodeError};
    pub(super) use crate::reader::Reader;
    pub(super) use crate::writer::Writer;
    pub(super) use crate::{Message, Records, Request, Uuid};
}
use prelude::*;

include!(concat!(env!("OUT_DIR"), "/messages.rs"));
