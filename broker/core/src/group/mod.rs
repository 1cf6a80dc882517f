//! Placeholder; see the module's own first change.
