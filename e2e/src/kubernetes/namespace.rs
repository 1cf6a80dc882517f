//! One namespace with the restricted Pod Security level enforced, and the objects in it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::kafka::random_id;
use crate::kubernetes::command::{kubectl, run, text};
use crate::wait::wait_for_every;

/// Between two looks at the API server: each is a process.
pub const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Which namespaces are the suite's.
const LABEL: &str = "taffrail.io/e2e";
/// The label's value for a namespace of one test.
const OF_A_TEST: &str = "test";

/// Deletes what tests of earlier runs left for a look.
pub fn delete_left_ones() -> Result<()> {
    let selector = format!("{LABEL}={OF_A_TEST}");
    run(
        &mut kubectl(&["delete", "namespaces", "-l", &selector, "--wait=false"]),
        &[],
    )?;
    Ok(())
}

/// Waits until no namespace of a test is on its way out.
pub fn wait_for_deletions(limit: Duration) -> Result<()> {
    let selector = format!("{LABEL}={OF_A_TEST}");
    let path = "jsonpath={.items[?(@.status.phase=='Terminating')].metadata.name}";
    wait_for_every(LOOK_EVERY, "deleted namespaces to be gone", limit, || {
        let words = ["get", "namespaces", "-l", &selector, "-o", path];
        let left = text(&mut kubectl(&words), "")?;
        if left.trim().is_empty() {
            return Ok(Some(()));
        }
        Err(anyhow!("{left}"))
    })
}

/// A namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a new one, whose name begins with `purpose`.
    pub fn create(purpose: &str) -> Result<Self> {
        let random = random_id()?.to_lowercase();
        Self::labelled(&format!("e2e-{purpose}-{}", &random[..5]), OF_A_TEST)
    }

    /// Makes the one of this name unless it is there.
    pub fn ensure(name: &str) -> Result<Self> {
        Self::labelled(name, "shared")
    }

    fn labelled(name: &str, label: &str) -> Result<Self> {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                LABEL: label,
            }},
        });
        run(
            &mut kubectl(&["apply", "-f", "-"]),
            namespace.to_string().as_bytes(),
        )?;
        Ok(Self {
            name: name.to_owned(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `kubectl` in this namespace.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with(arguments, "")
    }

    /// `kubectl` in this namespace with a standard input.
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        text(kubectl(&["-n", &self.name]).args(arguments), input)
    }

    /// `kubectl apply` of one object.
    pub fn apply(&self, object: &Value) -> Result<()> {
        self.kubectl_with(&["apply", "-f", "-"], &object.to_string())?;
        Ok(())
    }

    /// `kubectl apply` of a file.
    pub fn apply_file(&self, path: &Path) -> Result<()> {
        let path = path.to_str().context("a path is text")?;
        self.kubectl(&["apply", "-f", path])?;
        Ok(())
    }

    /// One object, if it is there; `what` as in `topic/orders`.
    pub fn get(&self, what: &str) -> Result<Option<Value>> {
        let found = self.kubectl(&["get", what, "-o", "json", "--ignore-not-found"])?;
        if found.trim().is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&found)?))
    }

    /// Objects of one kind by labels; an empty `selector` takes all.
    pub fn list(&self, kind: &str, selector: &str) -> Result<Vec<Value>> {
        let found = self.kubectl(&["get", kind, "-l", selector, "-o", "json"])?;
        let mut list: Value = serde_json::from_str(&found)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => Err(anyhow!("a list of {kind} has the items {other}")),
        }
    }

    /// Waits until `Ready` is true for what the object says now.
    pub fn wait_ready(&self, what: &str, limit: Duration) -> Result<Value> {
        self.wait_for(what, "ready", limit, |object| {
            let generation = &object["metadata"]["generation"];
            let ready = condition(object, "Ready")
                .with_context(|| format!("no Ready condition in {}", object["status"]))?;
            if ready["status"] == "True" && &ready["observedGeneration"] == generation {
                return Ok(());
            }
            Err(anyhow!(
                "generation {generation}, conditions {}",
                object["status"]["conditions"]
            ))
        })
    }

    /// Waits until `check` holds of an object, and gives it.
    pub fn wait_for(
        &self,
        what: &str,
        aim: &str,
        limit: Duration,
        mut check: impl FnMut(&Value) -> Result<()>,
    ) -> Result<Value> {
        wait_for_every(LOOK_EVERY, &format!("{what} to be {aim}"), limit, || {
            let object = self
                .get(what)?
                .with_context(|| format!("there is no {what}"))?;
            check(&object)?;
            Ok(Some(object))
        })
    }

    /// Waits until an object is gone.
    pub fn wait_gone(&self, what: &str, limit: Duration) -> Result<()> {
        wait_for_every(
            LOOK_EVERY,
            &format!("{what} to be gone"),
            limit,
            || match self.get(what)? {
                None => Ok(Some(())),
                Some(object) => Err(anyhow!("{}", object["metadata"])),
            },
        )
    }

    /// Asks for its deletion, and does not wait.
    pub fn delete(&self) -> Result<()> {
        self.kubectl(&["delete", "namespace", &self.name, "--wait=false"])?;
        Ok(())
    }

    /// Waits until the namespace itself is gone.
    pub fn wait_deleted(&self, limit: Duration) -> Result<()> {
        self.wait_gone(&format!("namespace/{}", self.name), limit)
    }
}

/// One condition of an object's status.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}
