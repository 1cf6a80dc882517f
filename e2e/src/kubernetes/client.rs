//! The pod that clients run in: kcat, and this crate's client program beside it.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::kubernetes::command::{kubectl, run};
use crate::kubernetes::environment::environment;
use crate::kubernetes::namespace::Namespace;

/// Where it runs; not a test's namespace, for all tests share it.
const NAMESPACE: &str = "taffrail-clients";
const POD: &str = "client";
/// For an image that is there.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a kcat may run.
const KCAT_SECONDS: &str = "120";

/// The pod, with the client program in it.
#[derive(Debug)]
pub struct Client {
    namespace: Namespace,
}

/// Starts the pod once for all tests of this process and copies `program`, this crate's client, into it.
pub fn client(program: &Path) -> Result<&'static Client> {
    static CLIENT: OnceLock<Result<Client, String>> = OnceLock::new();
    CLIENT
        .get_or_init(|| Client::start(program).map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!("there is no client pod: {error}"))
}

impl Client {
    fn start(program: &Path) -> Result<Self> {
        let namespace = Namespace::ensure(NAMESPACE)?;
        // One that an earlier run left may hold an older program, or wait for a node that is gone.
        namespace.kubectl(&[
            "delete",
            "pod",
            POD,
            "--ignore-not-found",
            "--grace-period=1",
        ])?;
        namespace.apply(&pod(&environment()?.client_image))?;
        namespace.wait_for(&format!("pod/{POD}"), "running", START_LIMIT, |pod| {
            let status = &pod["status"];
            if status["containerStatuses"][0]["ready"] == true {
                return Ok(());
            }
            Err(anyhow!("{status}"))
        })?;
        let client = Self { namespace };
        client.copy(program)?;
        Ok(client)
    }

    /// The node it runs on.
    pub fn node(&self) -> Result<String> {
        let pod = self.namespace.get(&format!("pod/{POD}"))?;
        pod.and_then(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
            .context("the client pod runs nowhere")
    }

    /// kcat with these words; its time is limited.
    pub fn kcat(&self, words: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        run(
            self.exec(&["timeout", KCAT_SECONDS, "kcat"]).args(words),
            input,
        )
    }

    /// The command that runs this crate's client program in the pod; its words follow.
    pub fn program(&self) -> Command {
        self.exec(&[
            "/scratch/loader",
            "--library-path",
            "/scratch",
            "/scratch/taffrail-e2e-client",
        ])
    }

    fn exec(&self, words: &[&str]) -> Command {
        let mut command = kubectl(&["-n", NAMESPACE, "exec", "-i", POD, "--"]);
        command.args(words);
        command
    }

    /// Copies the program with every library that it needs and their loader, so that nothing depends on what the image has.
    fn copy(&self, program: &Path) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let stripped = folder.path().join("taffrail-e2e-client");
        run(
            Command::new("strip").arg("-o").arg(&stripped).arg(program),
            &[],
        )?;
        let listed = run(Command::new("ldd").arg(program), &[])?;
        let mut loader = None;
        for word in String::from_utf8(listed)?.split_whitespace() {
            let path = Path::new(word);
            let Some(name) = path.file_name().filter(|_| path.is_absolute()) else {
                continue;
            };
            if name.to_string_lossy().starts_with("ld-linux") {
                loader = Some(path.to_owned());
            }
            std::fs::copy(path, folder.path().join(name))?;
        }
        let loader = loader.context("ldd names no loader")?;
        std::fs::copy(loader, folder.path().join("loader"))?;
        let archive = run(
            Command::new("tar")
                .args(["-cf", "-", "-C"])
                .arg(folder.path())
                .arg("."),
            &[],
        )?;
        run(
            &mut self.exec(&["tar", "-xf", "-", "-C", "/scratch"]),
            &archive,
        )?;
        Ok(())
    }
}

/// As the restricted level wants it.
fn pod(image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 10001, "runAsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "client",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "86400"],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
            }],
            "volumes": [{"name": "work", "emptyDir": {}}],
        },
    })
}
