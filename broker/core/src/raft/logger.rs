//! Bridges the `raft` crate's slog records to `tracing`, under one target and with its fields in the text.

use std::fmt::Write;

use slog::{Drain, KV, Key, Level, Logger, Never, OwnedKVList, Record, Serializer, o};

/// A logger for one voter. Levels go one down: what is news to the library is detail to an operator, who hears of role
/// changes from the shell.
pub(super) fn to_tracing() -> Logger {
    Logger::root(ToTracing, o!())
}

struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Never> {
        match record.level() {
            Level::Critical | Level::Error => {
                tracing::warn!(target: "taffrail_core::raft", "{}", text(record, values));
            }
            Level::Warning | Level::Info => {
                tracing::debug!(target: "taffrail_core::raft", "{}", text(record, values));
            }
            Level::Debug | Level::Trace => {
                tracing::trace!(target: "taffrail_core::raft", "{}", text(record, values));
            }
        }
        Ok(())
    }

    fn is_enabled(&self, level: Level) -> bool {
        match level {
            Level::Critical | Level::Error => {
                tracing::enabled!(target: "taffrail_core::raft", tracing::Level::WARN)
            }
            Level::Warning | Level::Info => {
                tracing::enabled!(target: "taffrail_core::raft", tracing::Level::DEBUG)
            }
            Level::Debug | Level::Trace => {
                tracing::enabled!(target: "taffrail_core::raft", tracing::Level::TRACE)
            }
        }
    }
}

/// The record's message with its fields behind it. Formatted only when tracing wants it.
fn text(record: &Record<'_>, values: &OwnedKVList) -> String {
    let mut fields = Fields(record.msg().to_string());
    // Writing into a String does not fail, and a field that cannot be formatted is left out.
    let _ = record.kv().serialize(record, &mut fields);
    let _ = values.serialize(record, &mut fields);
    fields.0
}

struct Fields(String);

impl Serializer for Fields {
    fn emit_arguments(&mut self, key: Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
        write!(self.0, " {key}={value}").map_err(slog::Error::from)
    }
}
