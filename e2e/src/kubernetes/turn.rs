//! Whose turn it is: most tests share the machine, those that measure have it alone.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;

use crate::kubernetes::namespace::{self, Namespace};
use crate::kubernetes::operator;
use crate::kubernetes::report;

/// For the namespaces of earlier tests to go.
const DELETION_LIMIT: Duration = Duration::from_secs(90);

static TURN: RwLock<()> = RwLock::new(());

/// Runs a test in a namespace of its own beside others.
pub fn together(purpose: &str, body: impl FnOnce(&Namespace) -> Result<()>) -> Result<()> {
    let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
    in_namespace(purpose, body)
}

/// Runs a test in a namespace of its own while no other test runs, and none is being cleared away.
pub fn alone(purpose: &str, body: impl FnOnce(&Namespace) -> Result<()>) -> Result<()> {
    let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
    operator::installed()?;
    namespace::wait_for_deletions(DELETION_LIMIT)?;
    in_namespace(purpose, body)
}

/// A test that fails leaves its namespace for a look, and prints what explains it.
fn in_namespace(purpose: &str, body: impl FnOnce(&Namespace) -> Result<()>) -> Result<()> {
    operator::installed()?;
    let namespace = Namespace::create(purpose)?;
    match body(&namespace) {
        // The test may have deleted it itself.
        Ok(()) => {
            let _ = namespace.delete();
            Ok(())
        }
        Err(error) => {
            println!("{}", report::of(&namespace));
            Err(error)
        }
    }
}
