//! The brokers of one cluster as a whole: a connection to whichever answers, or to the one that is asked for, kept until
//! it fails.

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
    #[error("{address} is a broker of cluster {found:?}, not of {expected:?}")]
    OtherCluster {
        /// The address.
        address: SocketAddr,
        /// Its cluster; empty if it does not know yet.
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
    /// A step names a topic by something that is no topic id.
    #[error("{0:?} is no topic id, and topics are not deleted by name")]
    NoTopicId(String),
    /// A broker answered with an error.
    #[error("{error}{}", .message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())]
    Refused {
        /// Kafka's error.
        error: ErrorName,
        /// What the broker said beside it.
        message: Option<String>,
    },
}

impl AdminError {
    /// Whether the next request would most likely end in the same way.
    pub fn is_connection(&self) -> bool {
        match self {
            Self::NoBroker { .. }
            | Self::NoAddresses
            | Self::OtherCluster { .. }
            | Self::Connection { .. } => true,
            Self::NoTopicId(_) | Self::Refused { .. } => false,
        }
    }
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
    pub fn set_cluster(&mut self, cluster_id: &str) {
        if self.cluster_id.as_deref() != Some(cluster_id) {
            self.cluster_id = Some(cluster_id.to_owned());
            self.connection = None;
        }
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

    /// Has the broker at this address answer from now on. If it does not, whoever did before goes on; says which of both
    /// it is.
    pub async fn turn_to(&mut self, address: SocketAddr) -> bool {
        if matches!(&self.connection, Some((connected, _)) if *connected == address) {
            return true;
        }
        match self.open(address).await {
            Ok(connection) => {
                self.connection = Some((address, connection));
                true
            }
            Err(_) => false,
        }
    }

    /// Drops the connection, so that the next request finds a broker anew.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    async fn connect(&self) -> Result<(SocketAddr, Connection), AdminError> {
        let mut last = None;
        for &address in &self.addresses {
            match self.open(address).await {
                Ok(connection) => return Ok((address, connection)),
                Err(error) => last = Some(error),
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

    async fn open(&self, address: SocketAddr) -> Result<Connection, AdminError> {
        let mut connection = Connection::open(address)
            .await
            .map_err(|error| AdminError::Connection { address, error })?;
        self.check_cluster(address, &mut connection).await?;
        Ok(connection)
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
        if found == *expected {
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

#[cfg(test)]
mod tests {
    use super::*;
    use taffrail_protocol::api::ApiKey;
    use taffrail_protocol::frame::encode_response;
    use taffrail_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
    use taffrail_protocol::messages::describe_cluster_response::DescribeClusterResponse;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A broker that calls itself one of this cluster, on each of its connections.
    async fn broker(cluster_id: &'static str) -> SocketAddr {
        let versions = ApiVersionsResponse {
            api_keys: vec![ApiVersion {
                api_key: DescribeClusterRequest::API_KEY,
                ..ApiVersion::default()
            }],
            ..ApiVersionsResponse::default()
        };
        let cluster = DescribeClusterResponse {
            cluster_id: cluster_id.to_owned(),
            ..DescribeClusterResponse::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                for number in 1.. {
                    let Ok(length) = stream.read_i32().await else {
                        break;
                    };
                    let mut request = vec![0; usize::try_from(length).expect("positive")];
                    stream.read_exact(&mut request).await.expect("a request");
                    let answer = match number {
                        1 => encode_response(number, ApiKey::ApiVersions, 3, &versions),
                        _ => encode_response(number, ApiKey::DescribeCluster, 0, &cluster),
                    };
                    let answer = answer.expect("an answer").buf;
                    stream.write_all(&answer).await.expect("a client");
                }
            }
        });
        address
    }

    #[test]
    fn only_brokers_of_the_cluster_are_talked_to() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let request = DescribeClusterRequest::default();
            for (found, expected, accepted) in [
                ("a", None, true),
                ("a", Some("a"), true),
                ("b", Some("a"), false),
                // It does not know yet, so that it might be any cluster's.
                ("", Some("a"), false),
            ] {
                let mut admin = Admin::new(vec![broker(found).await]);
                if let Some(expected) = expected {
                    admin.set_cluster(expected);
                }
                let answer = admin.call(&request).await;
                assert_eq!(
                    answer.is_ok(),
                    accepted,
                    "{found:?} {expected:?} {answer:?}"
                );
                // What was connected before is asked again.
                admin.set_cluster("other");
                let answer = admin.call(&request).await;
                assert!(matches!(answer, Err(AdminError::OtherCluster { .. })));
            }
        });
    }
}
