//! The brokers of one cluster as a whole: a connection to whichever answers, kept until it fails.

use std::net::SocketAddr;

use taffrail_protocol::Request;
use taffrail_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use thiserror::Error;

use super::connection::{Connection, ConnectionError, ErrorName};

/// Why a request did not succeed.
#[derive(Debug, Error)]
pub enum AdminError {
    /// None of the addresses answered; the last one's error.
    #[error("no broker answers on {addresses}: {error}")]
    NoBroker {
        /// All addresses that were tried.
        addresses: String,
        /// Why the last did not.
        error: ConnectionError,
    },
    /// There are no addresses.
    #[error("there are no brokers")]
    NoAddresses,
    /// A broker of another cluster answers: its address was another broker's before.
    #[error("{address} is a broker of cluster {found}, not of {expected}")]
    OtherCluster {
        /// The address.
        address: SocketAddr,
        /// Its cluster.
        found: String,
        /// The one that was meant.
        expected: String,
    },
    /// The connection broke during the request.
    #[error("{address}: {error}")]
    Connection {
        /// The broker.
        address: SocketAddr,
        /// Why.
        error: ConnectionError,
    },
    /// A broker answered with an error.
    #[error("{error}{}", .message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())]
    Refused {
        /// Kafka's error.
        error: ErrorName,
        /// What the broker said beside it.
        message: Option<String>,
    },
}

/// A client for the brokers of one cluster.
#[derive(Debug)]
pub struct Admin {
    addresses: Vec<SocketAddr>,
    cluster_id: Option<String>,
    connection: Option<(SocketAddr, Connection)>,
}

impl Admin {
    /// A client that has not connected yet.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            cluster_id: None,
            connection: None,
        }
    }

    /// Talks to brokers of this cluster only. Addresses of pods are given away again.
    #[must_use]
    pub fn of_cluster(mut self, cluster_id: impl Into<String>) -> Self {
        self.cluster_id = Some(cluster_id.into());
        self
    }

    /// Takes other addresses, for brokers that came or went.
    pub fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            self.connection = None;
        }
    }

    /// Sends a request to a broker that answers. It is sent once: whether a broken connection carried it out is for the
    /// next observation to tell.
    pub async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, AdminError> {
        let (address, mut connection) = match self.connection.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        match connection.call(request).await {
            Ok(response) => {
                self.connection = Some((address, connection));
                Ok(response)
            }
            Err(error) => Err(AdminError::Connection { address, error }),
        }
    }

    /// Drops the connection, so that the next request finds a broker anew.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    async fn connect(&self) -> Result<(SocketAddr, Connection), AdminError> {
        let mut last = None;
        for &address in &self.addresses {
            match Connection::open(address).await {
                Ok(mut connection) => match self.check_cluster(address, &mut connection).await {
                    Ok(()) => return Ok((address, connection)),
                    Err(error) => last = Some(error),
                },
                Err(error) => last = Some(AdminError::Connection { address, error }),
            }
        }
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        Err(match last {
            Some(AdminError::Connection { error, .. }) => AdminError::NoBroker {
                addresses: addresses.join(", "),
                error,
            },
            Some(error) => error,
            None => AdminError::NoAddresses,
        })
    }

    async fn check_cluster(
        &self,
        address: SocketAddr,
        connection: &mut Connection,
    ) -> Result<(), AdminError> {
        let Some(expected) = &self.cluster_id else {
            return Ok(());
        };
        let answer = connection.call(&DescribeClusterRequest::default()).await;
        let found = answer
            .map_err(|error| AdminError::Connection { address, error })?
            .cluster_id;
        // A broker that has just started may not know yet.
        if found.is_empty() || found == *expected {
            return Ok(());
        }
        Err(AdminError::OtherCluster {
            address,
            found,
            expected: expected.clone(),
        })
    }
}

/// An error code in an answer, as a result.
pub(super) fn refused(error_code: i16, message: Option<&str>) -> Result<(), AdminError> {
    if error_code == 0 {
        return Ok(());
    }
    Err(AdminError::Refused {
        error: ErrorName(error_code),
        message: message
            .filter(|message| !message.is_empty())
            .map(str::to_owned),
    })
}
