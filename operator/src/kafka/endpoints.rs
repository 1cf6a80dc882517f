//! Racks and outside addresses of brokers: asks the active controller what is recorded, and tells it what is known.
//! Private APIs, so the addresses must be those of internal listeners.

use std::collections::BTreeMap;

use taffrail_protocol::messages::SetBrokerEndpointsRequest;
use taffrail_protocol::messages::set_broker_endpoints_request::{BrokerEndpoints, Listener};

use super::admin::{Admin, AdminError, refused};

/// What the operator knows of a broker from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Its rack.
    pub rack: Option<String>,
    /// Host and port by listener name, in capitals as brokers have them.
    pub listeners: BTreeMap<String, (String, u16)>,
}

/// What is recorded, by broker id.
pub async fn recorded_endpoints(admin: &mut Admin) -> Result<BTreeMap<i32, Endpoints>, AdminError> {
    let request = SetBrokerEndpointsRequest::default();
    let response = admin.call(&request).await?;
    refused(response.error_code, None)?;
    let recorded = response.recorded.into_iter().map(|broker| {
        let listeners = broker.listeners.into_iter().map(|listener| {
            let port = u16::try_from(listener.port).unwrap_or(0);
            (listener.name, (listener.host, port))
        });
        let endpoints = Endpoints {
            rack: broker.rack,
            listeners: listeners.collect(),
        };
        (broker.broker_id, endpoints)
    });
    Ok(recorded.collect())
}

/// Records endpoints, each instead of what was recorded of the same broker. Brokers take them up at once.
pub async fn set_endpoints(
    admin: &mut Admin,
    endpoints: &BTreeMap<i32, Endpoints>,
) -> Result<(), AdminError> {
    let brokers = endpoints.iter().map(|(&broker_id, set)| {
        let listeners = set.listeners.iter().map(|(name, (host, port))| Listener {
            name: name.clone(),
            host: host.clone(),
            port: (*port).into(),
        });
        BrokerEndpoints {
            broker_id,
            rack: set.rack.clone(),
            listeners: listeners.collect(),
        }
    });
    let request = SetBrokerEndpointsRequest {
        brokers: brokers.collect(),
    };
    let response = admin.call(&request).await?;
    refused(response.error_code, None)?;
    for result in response.results {
        refused(result.error_code, result.error_message.as_deref())?;
    }
    Ok(())
}
