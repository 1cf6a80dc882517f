//! Sockets that listen, and the loops that accept from them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use taffrail_core::config::{BrokerConfig, Listener};
use taffrail_node::{Connection, ListenerKind};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::{info, warn};

use crate::connection::{Connections, Shared, serve};
use crate::socket::give_up_when_unreachable;

/// How long accepting rests after an error such as "no file descriptors left".
const REST_AFTER_ERROR: Duration = Duration::from_millis(100);

/// A listener that is bound but does not accept yet: clients that come during recovery wait in the backlog.
pub(crate) struct Bound {
    name: Arc<str>,
    kind: ListenerKind,
    socket: TcpListener,
}

/// Binds every listener. A port of 0 becomes the one that the system chose, in what is advertised too.
pub(crate) async fn bind_all(config: &mut BrokerConfig) -> anyhow::Result<Vec<Bound>> {
    let mut bound = Vec::new();
    let mut listeners = config.listeners.clone();
    for listener in &mut listeners {
        let socket = bind(listener, config).await.with_context(|| {
            format!(
                "listener {} cannot use {}:{}",
                listener.name, listener.host, listener.port
            )
        })?;
        let address = socket.local_addr()?;
        listener.port = address.port();
        for advertised in &mut config.advertised_listeners {
            if advertised.name == listener.name && advertised.port == 0 {
                advertised.port = address.port();
            }
        }
        let kind = if listener.name == config.inter_broker_listener_name {
            ListenerKind::Internal
        } else {
            ListenerKind::Client
        };
        info!(listener = %listener.name, %address, ?kind, "bound");
        bound.push(Bound {
            name: listener.name.as_str().into(),
            kind,
            socket,
        });
    }
    config.listeners = listeners;
    Ok(bound)
}

async fn bind(listener: &Listener, config: &BrokerConfig) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses(&listener.host, listener.port).await? {
        match bind_address(address, config) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The addresses to try, in this order. An empty host is every address, of both families where there are both.
pub(crate) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.is_empty() {
        let every = [
            IpAddr::from(Ipv6Addr::UNSPECIFIED),
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
        ];
        return Ok(every.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

fn bind_address(address: SocketAddr, config: &BrokerConfig) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit both; -1 keeps the system's tuning.
    if let Ok(bytes) = u32::try_from(config.socket_send_buffer_bytes) {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Ok(bytes) = u32::try_from(config.socket_receive_buffer_bytes) {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(address)?;
    socket.listen(u32::try_from(config.socket_listen_backlog_size).unwrap_or(u32::MAX))
}

/// Accepts connections for ever and starts a task for each.
pub(crate) async fn accept(bound: Bound, connections: Arc<Connections>, shared: Shared) {
    loop {
        match bound.socket.accept().await {
            Ok((stream, address)) => open(stream, address, &bound, &connections, &shared),
            Err(error) => {
                if let Some(suppressed) = connections.admit_line() {
                    warn!(listener = %bound.name, %error, suppressed, "cannot accept a connection");
                }
                tokio::time::sleep(REST_AFTER_ERROR).await;
            }
        }
    }
}

fn open(
    stream: TcpStream,
    address: SocketAddr,
    bound: &Bound,
    connections: &Arc<Connections>,
    shared: &Shared,
) {
    // An IPv4 client of an IPv6 socket is shown as what it is.
    let address = address.ip().to_canonical();
    let registered = match connections.admit(address, bound.kind) {
        Ok(registered) => registered,
        Err(reason) => {
            if let Some(suppressed) = connections.admit_line() {
                warn!(listener = %bound.name, %address, suppressed, reason, "connection refused");
            }
            return;
        }
    };
    // A socket that cannot be told to is about to fail anyway, where that is handled.
    let _ = stream.set_nodelay(true);
    if bound.kind == ListenerKind::Internal {
        let _ = give_up_when_unreachable(&stream);
    }
    let connection = Connection::new(
        Arc::clone(&bound.name),
        bound.kind,
        address.to_string().into(),
    );
    let record = Arc::clone(&registered.record);
    let task = tokio::spawn(serve(stream, shared.clone(), connection, registered));
    record.set_task(task.abort_handle());
}
