//! DescribeCluster: the cluster's id, its brokers and its controller (KIP-700, KIP-1073 for fenced brokers).

use std::collections::BTreeSet;
use std::sync::Arc;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use taffrail_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::topics::CLUSTER_OPERATIONS;
use crate::broker::Broker;
use crate::cluster::endpoints::{Fenced, client_brokers, client_controller};
use crate::dispatch::RequestContext;
use crate::env::Env;

/// Asks for brokers.
const BROKERS: i8 = 1;
/// Asks for controllers, which have no listeners of their own here.
const CONTROLLERS: i8 = 2;

/// Answers from the committed image.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let refused = |code: ErrorCode, message: &str| DescribeClusterResponse {
        error_code: code.code(),
        error_message: Some(message.to_string()),
        endpoint_type: request.endpoint_type,
        ..DescribeClusterResponse::default()
    };
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refused(
                ErrorCode::MismatchedEndpointType,
                "this is a broker: ask for endpoint type 1",
            );
        }
        _ => {
            return refused(
                ErrorCode::UnsupportedEndpointType,
                "endpoint type must be 1 (brokers)",
            );
        }
    }
    let image = broker.cluster.image();
    let fenced = if request.include_fenced_brokers {
        Fenced::All
    } else {
        Fenced::These(BTreeSet::new())
    };
    let brokers = client_brokers(broker, &image, &context.listener, &fenced);
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: broker.cluster.cluster_id().unwrap_or_default(),
        controller_id: client_controller(broker, &brokers),
        brokers: brokers
            .into_iter()
            .map(|broker| DescribeClusterBroker {
                broker_id: broker.id.0,
                host: broker.host,
                port: broker.port,
                rack: broker.rack,
                // Only versions that can ask for fenced brokers can tell them.
                is_fenced: request.include_fenced_brokers && broker.fenced,
            })
            .collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..DescribeClusterResponse::default()
    }
}
