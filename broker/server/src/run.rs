//! A broker's life: bind, recover, serve, hand over, leave.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use taffrail_core::config::{BrokerConfig, ConfigMap};
use taffrail_node::{Env, Node};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::connection::{Connections, Limits, RequestMemory, Shared};
use crate::env::ServerEnv;
use crate::http::{self, Http};
use crate::peer::LOOKUPS_MAX;
use crate::{limits, listener, logging, settings};

/// Exit code of a broker that left before everything was handed over and flushed.
const EXIT_UNFINISHED: u8 = 4;

/// How long work that is under way may hold up the exit.
const RUNTIME_SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs a broker until it is told to stop.
pub(crate) fn run(file: &Path) -> anyhow::Result<ExitCode> {
    let settings = settings::load(file, std::env::vars())?;
    logging::start(settings.config.log_format, &settings.config.log_level)?;
    logging::stop_on_panic();
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    let runtime = runtime(&settings.config)?;
    let outcome = runtime.block_on(live(settings.config, settings.written));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN);
    if let Err(error) = &outcome {
        error!("cannot start: {error:#}");
    }
    outcome
}

fn runtime(config: &BrokerConfig) -> anyhow::Result<Runtime> {
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if config.worker_threads > 0 {
        builder.worker_threads(count(config.worker_threads));
    }
    let recovery = count(config.num_recovery_threads_per_data_dir) * config.log_dirs.len();
    builder
        .max_blocking_threads(count(config.background_threads).max(recovery) + LOOKUPS_MAX)
        .thread_name("broker")
        .enable_all()
        .build()
        .context("the event loop cannot start")
}

async fn live(mut config: BrokerConfig, written: ConfigMap) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let open_files = limits::raise_open_files().context("the limit of open files")?;
    let clock = Clock::start();
    tokio::spawn(Arc::clone(&clock).run());
    let bound = listener::bind_all(&mut config).await?;
    let metrics_socket = http::bind(&config.metrics_listener).await?;

    let env = ServerEnv::new(Arc::clone(&clock));
    let node = Node::new(env.clone(), config.clone(), written);
    Http::start(metrics_socket, node.clone(), Arc::clone(&clock))?;
    let connections = Connections::new(
        clock,
        connection_limits(&config, open_files),
        &node.metrics().registry,
    )?;

    info!(
        broker = config.node_id,
        version = env!("CARGO_PKG_VERSION"),
        open_files,
        "starting"
    );
    tokio::select! {
        started = node.start() => started?,
        () = signals.next() => {
            warn!("told to stop before the logs were recovered");
            return Ok(ExitCode::from(EXIT_UNFINISHED));
        }
    }

    let request_memory = || {
        let bytes = usize::try_from(config.queued_max_request_bytes).unwrap_or(usize::MAX);
        Arc::new(RequestMemory::new(bytes))
    };
    let shared = Shared {
        node: node.clone(),
        memory: request_memory(),
        internal_memory: request_memory(),
        frame_bytes_max: config.socket_request_max_bytes,
        requests_max: usize::try_from(config.connection_requests_max).unwrap_or(1),
    };
    tokio::spawn(Arc::clone(&connections).sweep());
    let accepting: Vec<_> = bound
        .into_iter()
        .map(|bound| {
            tokio::spawn(listener::accept(
                bound,
                Arc::clone(&connections),
                shared.clone(),
            ))
        })
        .collect();

    let lost_invariant = tokio::select! {
        () = signals.next() => None,
        reason = node.failed() => Some(reason),
    };
    if let Some(reason) = lost_invariant {
        error!(
            reason,
            "stopping: this broker can no longer vouch for its state"
        );
    }

    // Clients are served until leadership has moved, so that they follow it instead of finding a closed port.
    let in_time = stop(&env, &node, &config, &mut signals).await;
    for task in accepting {
        task.abort();
    }
    connections.close_all();
    Ok(match (lost_invariant, in_time) {
        (Some(_), _) => {
            ExitCode::from(u8::try_from(logging::EXIT_LOST_INVARIANT).unwrap_or(u8::MAX))
        }
        (None, true) => ExitCode::SUCCESS,
        (None, false) => ExitCode::from(EXIT_UNFINISHED),
    })
}

fn connection_limits(config: &BrokerConfig, open_files: u64) -> Limits {
    let clients_max = limits::connections_within(open_files, config.max_connections);
    Limits {
        clients_max,
        clients_per_address_max: usize::try_from(config.max_connections_per_ip).unwrap_or(0),
        idle: u64::try_from(config.connections_max_idle_ms)
            .ok()
            .map(Duration::from_millis),
    }
}

/// Hands over and flushes within the deadline; false if that or a second signal came first.
async fn stop(
    env: &ServerEnv,
    node: &Node<ServerEnv>,
    config: &BrokerConfig,
    signals: &mut Signals,
) -> bool {
    let timeout = Duration::from_millis(u64::try_from(config.shutdown_timeout_ms).unwrap_or(0));
    let deadline = env.now() + timeout;
    info!(
        timeout_ms = config.shutdown_timeout_ms,
        "stopping: handing over leadership and flushing"
    );
    tokio::select! {
        () = node.shutdown(deadline) => {
            let in_time = env.now() < deadline;
            if in_time {
                info!("stopped");
            } else {
                warn!("stopped at the deadline, before everything was handed over and flushed");
            }
            in_time
        }
        () = env.sleep_until(deadline + RUNTIME_SHUTDOWN) => {
            warn!("stopped at the deadline, before everything was handed over and flushed");
            false
        }
        () = signals.next() => {
            warn!("stopped by a second signal, before everything was handed over and flushed");
            false
        }
    }
}

/// The signals that mean "stop".
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT")?,
        })
    }

    /// Completes at the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
