//! `taffrail-operator run`: sets up client, watches, leader election and HTTP, then runs passes until it is told to
//! stop.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch as signal_watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::KubernetesError;
use super::api::Writer;
use super::cache::Scope;
use super::context::Context;
use super::deletion;
use super::dirty::Dirty;
use super::lease::{self, Candidate};
use super::pass;
use super::queue::{Next, Outcome};
use super::watch::{self, Caches};
use crate::cli::RunArguments;
use crate::http::{self, Page};
use crate::metrics::Metrics;
use crate::object::ObjectKey;

/// Clusters looked at at the same time. A pass waits for brokers and the API server most of its time, and with eight
/// connections each to brokers at most 80 sockets are open.
const PASSES_MAX: usize = 8;

/// How long one pass may take before it is given up: everything in it has a time limit of its own, of which 200 Topics
/// may meet many.
const PASS_WAIT_MAX: Duration = Duration::from_secs(120);

/// How long passes may take to end when the operator is told to stop. What they were about is done by the next one.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs the operator until SIGTERM or Ctrl-C.
pub fn run(arguments: &RunArguments) -> Result<(), KubernetesError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| setup_failed("the runtime", error))?;
    let result = runtime.block_on(run_until_told(arguments));
    // Watches have no end of their own.
    runtime.shutdown_background();
    result
}

async fn run_until_told(arguments: &RunArguments) -> Result<(), KubernetesError> {
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    let config = Config::infer()
        .await
        .map_err(|error| KubernetesError::NoCluster(error.to_string()))?;
    let named = [&arguments.lease_namespace, &arguments.pod_namespace];
    let own_namespace = named
        .into_iter()
        .flatten()
        .find(|namespace| !namespace.is_empty())
        .cloned()
        .unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| setup_failed("the client", error))?;
    let metrics = Metrics::new().map_err(|error| setup_failed("metrics", error))?;
    let scopes = scopes(&arguments.watch_namespaces);
    let caches = Arc::new(Caches::new(&scopes));
    serve(arguments, &metrics, &caches, scopes.len()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespaces = arguments.watch_namespaces,
        image = arguments.broker_image,
        "taffrail-operator runs"
    );

    let dirty = Arc::new(Dirty::default());
    watch::start(&client, &scopes, &caches, &dirty, &metrics);
    let candidate = Candidate {
        namespace: own_namespace.clone(),
        lease: arguments.lease_name.clone(),
        identity: identity(arguments),
    };
    let (leads, mut leading) = signal_watch::channel(false);
    let election = tokio::spawn(lease::hold(
        client.clone(),
        candidate.clone(),
        metrics.clone(),
        leads,
    ));
    let writer = Writer::new(client.clone(), metrics.clone(), candidate.identity.clone());
    let context = Arc::new(Context::new(
        Arc::clone(&caches),
        writer,
        metrics.clone(),
        arguments
            .broker_image
            .clone()
            .filter(|image| !image.is_empty()),
        arguments
            .broker_image_pull_policy
            .clone()
            .filter(|policy| !policy.is_empty()),
    ));
    let mut passes = Passes::default();
    loop {
        let leads = *leading.borrow_and_update();
        metrics.set_leader(leads);
        if !leads && !passes.is_empty() {
            // Another may write from now on.
            passes.give_up().await;
            dirty.abandon();
        }
        let next = if leads {
            start_passes(&mut passes, &context, &dirty)
        } else {
            None
        };
        let alarm = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
        tokio::select! {
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
            _ = leading.changed() => {}
            () = dirty.changed() => {}
            Some((key, outcome)) = passes.ended() => dirty.ended(&key, outcome),
            () = sleep_until(alarm.into()) => {}
        }
    }
    tracing::info!("stops");
    let leads = *leading.borrow();
    let ends = async { while passes.ended().await.is_some() {} };
    if timeout(STOP_WAIT_MAX, ends).await.is_err() {
        passes.give_up().await;
    }
    // Without a Lease, which goes with its namespace too, there is no other that would do it.
    if !lease::is_anothers(client.clone(), &candidate, &metrics).await {
        deletion::leave_namespace(&context, &own_namespace).await;
    }
    election.abort();
    if leads {
        lease::release(client, &candidate, &metrics).await;
    }
    Ok(())
}

/// Starts what is due; says when something will be.
fn start_passes(passes: &mut Passes, context: &Arc<Context>, dirty: &Dirty) -> Option<Instant> {
    loop {
        match dirty.next(PASSES_MAX) {
            Next::Wait(until) => return until,
            // One namespace that cannot be listed, gone perhaps or without its Role, holds no other one up.
            Next::Start(key) if !context.caches.are_complete_for(&key.namespace) => {
                tracing::debug!(cluster = %key, "waits: not all objects of its namespace are listed");
                dirty.ended(&key, Outcome::UnderWay);
            }
            Next::Start(key) => {
                let context = Arc::clone(context);
                passes.start(key.clone(), async move {
                    let pass = timeout(PASS_WAIT_MAX, pass::run(&context, &key));
                    pass.await.unwrap_or_else(|_| {
                        tracing::warn!(cluster = %key, "a pass took too long and was given up");
                        Outcome::Failed
                    })
                });
            }
        }
    }
}

/// Passes under way, each of its own Cluster: one that breaks off concerns no other.
#[derive(Default)]
struct Passes {
    tasks: JoinSet<Outcome>,
    keys: HashMap<Id, ObjectKey>,
}

impl Passes {
    fn start(&mut self, key: ObjectKey, pass: impl Future<Output = Outcome> + Send + 'static) {
        let task = self.tasks.spawn(pass);
        self.keys.insert(task.id(), key);
    }

    /// The next that ends; none if none is under way.
    async fn ended(&mut self) -> Option<(ObjectKey, Outcome)> {
        let (id, outcome) = match self.tasks.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => {
                let cluster = self.keys.get(&error.id()).map(tracing::field::display);
                tracing::error!(cluster, %error, "a pass broke off");
                (error.id(), Outcome::Failed)
            }
        };
        let key = self.keys.remove(&id)?;
        tracing::debug!(cluster = %key, ?outcome, "a pass ended");
        Some((key, outcome))
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    async fn give_up(&mut self) {
        self.tasks.shutdown().await;
        self.keys.clear();
    }
}

/// Stand-bys serve too: they are ready to take over when their caches are complete.
async fn serve(
    arguments: &RunArguments,
    metrics: &Metrics,
    caches: &Arc<Caches>,
    watched: usize,
) -> Result<(), KubernetesError> {
    let listener = TcpListener::bind(&arguments.http_listener)
        .await
        .map_err(|error| {
            setup_failed(
                "--http-listener",
                format!("{}: {error}", arguments.http_listener),
            )
        })?;
    let (metrics, caches) = (metrics.clone(), Arc::clone(caches));
    tokio::spawn(http::serve(listener, move |path| match path {
        "/readyz" => Some(readiness(watched, &caches.missing())),
        _ => metrics.page(path),
    }));
    Ok(())
}

/// Ready once one of the namespaces, and the nodes, are listed; what is not listed is told either way.
fn readiness(watched: usize, missing: &BTreeMap<Scope, Vec<&'static str>>) -> Page {
    let told: Vec<String> = missing
        .iter()
        .map(|(scope, kinds)| match scope {
            Some(namespace) => format!("namespace {namespace}: {}", kinds.join(", ")),
            None => kinds.join(", "),
        })
        .collect();
    let named = missing.keys().filter(|scope| scope.is_some()).count();
    let page = Page::ok(if told.is_empty() {
        "ok\n".to_owned()
    } else {
        format!("not listed yet: {}\n", told.join("; "))
    });
    if !missing.contains_key(&None) && (named == 0 || named < watched) {
        return page;
    }
    Page {
        status: "503 Service Unavailable",
        ..page
    }
}

/// Namespaces to watch; one that stands for all where none is named.
fn scopes(namespaces: &str) -> Vec<Scope> {
    let named: BTreeSet<&str> = namespaces
        .split(',')
        .map(str::trim)
        .filter(|namespace| !namespace.is_empty())
        .collect();
    if named.is_empty() {
        return vec![None];
    }
    named
        .into_iter()
        .map(|namespace| Some(namespace.to_owned()))
        .collect()
}

/// The pod's name, under which a restarted container goes on at once; elsewhere this process on this machine.
fn identity(arguments: &RunArguments) -> String {
    arguments.pod_name.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!("{}-{}", host.trim(), std::process::id())
    })
}

fn listen(kind: SignalKind) -> Result<Signal, KubernetesError> {
    signal(kind).map_err(|error| setup_failed("signals", error))
}

fn setup_failed(what: &'static str, error: impl ToString) -> KubernetesError {
    KubernetesError::Setup {
        what,
        error: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_a_list_or_all() {
        let some = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect();
        for (text, expected) in [
            ("", vec![None]),
            (" , ", vec![None]),
            ("b,a, b", some(&["a", "b"])),
        ] {
            assert_eq!(scopes(text), expected);
        }
    }

    #[test]
    fn readiness_names_what_is_missing() {
        let namespace = |name: &str| Some(name.to_owned());
        for (watched, missing, ready, told) in [
            (1, vec![], true, "ok"),
            (1, vec![(None, vec!["pods", "nodes"])], false, "pods, nodes"),
            (
                1,
                vec![(namespace("a"), vec!["pods"])],
                false,
                "namespace a: pods",
            ),
            // One namespace that is gone must not take the others' operator away.
            (
                2,
                vec![(namespace("a"), vec!["pods"])],
                true,
                "namespace a: pods",
            ),
            (
                2,
                vec![(None, vec!["nodes"]), (namespace("a"), vec!["pods"])],
                false,
                "nodes; namespace a: pods",
            ),
        ] {
            let page = readiness(watched, &missing.into_iter().collect());
            assert_eq!(page.status.starts_with("200"), ready, "{told}");
            assert!(page.body.contains(told), "{}", page.body);
        }
    }

    #[test]
    fn a_pass_that_breaks_off_fails_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let key = |name: &str| ObjectKey::new(Some("ns"), Some(name));
            let mut passes = Passes::default();
            async fn broken() -> Outcome {
                panic!("broken")
            }
            passes.start(key("a"), broken());
            passes.start(key("b"), async { Outcome::Converged });
            let mut ended = Vec::new();
            while let Some((key, outcome)) = passes.ended().await {
                ended.push((key.name, outcome));
            }
            ended.sort_by(|one, other| one.0.cmp(&other.0));
            let expected = [("a", Outcome::Failed), ("b", Outcome::Converged)];
            assert_eq!(
                ended,
                expected.map(|(name, outcome)| (name.to_owned(), outcome))
            );
            assert!(passes.is_empty() && passes.keys.is_empty());
        });
    }
}
