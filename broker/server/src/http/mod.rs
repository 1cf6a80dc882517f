//! HTTP on the metrics port: Prometheus text, the probes, the admin JSON and the page. It only reads. It runs on a
//! thread of its own, so that a stuck event loop is told instead of shared.

mod answer;
mod process;
mod stream;

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use taffrail_core::config::HostPort;
use taffrail_node::Node;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::env::ServerEnv;
use crate::listener;
use answer::Answer;
use process::ProcessMetrics;
use stream::HttpStream;

/// Connections at a time: a few Prometheus servers, a kubelet, a browser; 64 leaves room for all of them twice.
const CONNECTIONS_MAX: usize = 64;

/// How long one connection, which carries one request, may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// What the answers are made from.
pub(crate) struct Http {
    node: Node<ServerEnv>,
    clock: Arc<Clock>,
    process: ProcessMetrics,
}

/// Binds the metrics port.
pub(crate) async fn bind(place: &HostPort) -> anyhow::Result<TcpListener> {
    let mut failure = None;
    for address in listener::addresses(&place.host, place.port).await? {
        match TcpListener::bind(address) {
            Ok(socket) => {
                info!(address = %socket.local_addr()?, "metrics, probes and admin page");
                return Ok(socket);
            }
            Err(error) => failure = Some(error),
        }
    }
    let failure = failure.unwrap_or_else(|| std::io::Error::other("the host has no address"));
    Err(failure).with_context(|| format!("taffrail.metrics.listener cannot use {place}"))
}

impl Http {
    /// Serves until the process ends.
    pub(crate) fn start(
        socket: TcpListener,
        node: Node<ServerEnv>,
        clock: Arc<Clock>,
    ) -> anyhow::Result<()> {
        let process = ProcessMetrics::register(&node.metrics().registry)?;
        let http = Arc::new(Http {
            node,
            clock,
            process,
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        socket.set_nonblocking(true)?;
        std::thread::Builder::new()
            .name("http".to_string())
            .spawn(move || {
                if let Err(error) = runtime.block_on(http.accept(socket)) {
                    warn!(%error, "metrics, probes and admin page are no longer served");
                }
            })?;
        Ok(())
    }

    async fn accept(self: Arc<Self>, socket: TcpListener) -> std::io::Result<()> {
        let socket = tokio::net::TcpListener::from_std(socket)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok((stream, _)) = socket.accept().await else {
                // Out of descriptors: the brokers' own connections matter more.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Beyond the limit a connection is closed at once.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                continue;
            };
            let http = Arc::clone(&self);
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let answer = http.answer(request.method(), request.uri().path());
                    std::future::ready(Ok::<_, Infallible>(answer.into_response()))
                });
                let connection = http1::Builder::new()
                    .keep_alive(false)
                    .header_read_timeout(None)
                    .serve_connection(HttpStream(stream), service);
                match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "HTTP connection failed"),
                    Err(_elapsed) => debug!("HTTP connection took too long"),
                }
                drop(place);
            });
        }
    }

    fn answer(&self, method: &hyper::Method, path: &str) -> Answer {
        if method != hyper::Method::GET {
            return Answer::text(405, "only GET is served here\n");
        }
        match path {
            "/metrics" => self.metrics(),
            "/livez" => self.livez(),
            "/startupz" => self.startupz(),
            "/readyz" => self.readyz(),
            "/admin/state" => Answer::json(200, &self.node.state()),
            "/admin/safe-to-stop" => {
                let verdict = self.node.safe_to_stop();
                Answer::json(if verdict.safe { 200 } else { 409 }, &verdict)
            }
            "/" => Answer::html(include_str!("page.html")),
            _ => Answer::text(
                404,
                "there is /metrics /livez /startupz /readyz /admin/state /admin/safe-to-stop and /\n",
            ),
        }
    }

    fn metrics(&self) -> Answer {
        self.process.refresh();
        let families = self.node.metrics().registry.gather();
        match prometheus::TextEncoder::new().encode_to_string(&families) {
            Ok(text) => Answer::prometheus(text),
            Err(error) => Answer::text(500, &format!("{error}\n")),
        }
    }

    fn livez(&self) -> Answer {
        match self.clock.stuck_for() {
            None => Answer::text(200, "the event loop turns\n"),
            Some(stuck) => Answer::text(
                503,
                &format!("the event loop has been stuck for {} s\n", stuck.as_secs()),
            ),
        }
    }

    fn startupz(&self) -> Answer {
        let health = self.node.health();
        if health.started {
            return Answer::text(200, "recovery has finished\n");
        }
        let (recovered, all) = health.recovery;
        let now = health.recovering.join(", ");
        Answer::text(
            503,
            &format!("recovered {recovered} of {all} logs, now: {now}\n"),
        )
    }

    fn readyz(&self) -> Answer {
        match self.node.health().not_ready {
            None => Answer::text(200, "ready\n"),
            Some(reason) => Answer::text(503, &format!("{reason}\n")),
        }
    }
}
