//! ApiVersions: what this broker serves, so that a client can pick versions (KIP-511).
//! It answers whatever version is asked, before authentication too, and never closes a connection over a version.

use std::sync::Arc;

use taffrail_protocol::api::{self, ApiKey, ApiVersionRange};
use taffrail_protocol::error_code::ErrorCode;
use taffrail_protocol::messages::api_versions_request::ApiVersionsRequest;
use taffrail_protocol::messages::api_versions_response::{
    ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

use crate::broker::Broker;
use crate::dispatch::{RequestContext, decode, encode};
use crate::env::Env;
use crate::response::Handled;

/// A feature as Kafka names it: the levels that this release supports and the one in force.
struct Feature {
    name: &'static str,
    min: i16,
    max: i16,
    finalized: i16,
}

/// Features that clients and tools read. A level of 0 says that the function is not there.
const FEATURES: [Feature; 3] = [
    Feature {
        name: "eligible.leader.replicas.version",
        min: 0,
        max: 1,
        finalized: 1,
    },
    Feature {
        name: "group.version",
        min: 0,
        max: 0,
        finalized: 0,
    },
    Feature {
        name: "transaction.version",
        min: 0,
        max: 0,
        finalized: 0,
    },
];

/// The first version whose clients accept a supported feature with minimum level 0 (KAFKA-17011, KAFKA-17492).
const FIRST_VERSION_WITH_MIN_ZERO: i16 = 4;

/// Answers a request of any version.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    body: &[u8],
) -> Handled<E> {
    if !ApiKey::ApiVersions.is_served(context.version) {
        // A client that is newer than we are reads a v0 body in every version and tries again with what it says.
        let context = RequestContext {
            version: 0,
            ..context.clone()
        };
        return encode(&context, &unsupported());
    }
    match decode::<ApiVersionsRequest>(context, body) {
        Ok(request) => encode(
            context,
            &respond(context.version, broker.cluster.applied_index(), &request),
        ),
        Err(reason) => Handled::Close(reason),
    }
}

fn unsupported() -> ApiVersionsResponse {
    let api_keys = api::advertised()
        .iter()
        .filter(|range| range.api_key == ApiKey::ApiVersions)
        .map(entry)
        .collect();
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys,
        ..Default::default()
    }
}

fn respond(version: i16, metadata_index: u64, request: &ApiVersionsRequest) -> ApiVersionsResponse {
    if version >= 3
        && !(software(&request.client_software_name) && software(&request.client_software_version))
    {
        return ApiVersionsResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..Default::default()
        };
    }
    let api_keys = api::advertised().iter().map(entry).collect();
    let supported_features = FEATURES
        .iter()
        .filter(|feature| feature.min > 0 || version >= FIRST_VERSION_WITH_MIN_ZERO)
        .map(|feature| SupportedFeatureKey {
            name: feature.name.to_string(),
            min_version: feature.min,
            max_version: feature.max,
        })
        .collect();
    let finalized_features = FEATURES
        .iter()
        .filter(|feature| feature.finalized > 0)
        .map(|feature| FinalizedFeatureKey {
            name: feature.name.to_string(),
            min_version_level: feature.finalized,
            max_version_level: feature.finalized,
        })
        .collect();
    ApiVersionsResponse {
        error_code: ErrorCode::None.code(),
        api_keys,
        supported_features,
        finalized_features_epoch: i64::try_from(metadata_index).unwrap_or(i64::MAX),
        finalized_features,
        ..Default::default()
    }
}

fn entry(range: &ApiVersionRange) -> ApiVersion {
    ApiVersion {
        api_key: range.api_key.code(),
        min_version: range.min_version,
        max_version: range.max_version,
    }
}

/// Letters and digits, with dots and dashes inside (`ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`).
fn software(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'.';
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(inner)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: i16, name: &str, expected_error: ErrorCode, expected_supported: &[&str]) {
        let request = ApiVersionsRequest {
            client_software_name: name.into(),
            client_software_version: "1.0".into(),
            ..Default::default()
        };
        let response = respond(version, 5, &request);
        assert_eq!(response.error_code, expected_error.code(), "{name}");
        let supported: Vec<&str> = response
            .supported_features
            .iter()
            .map(|feature| feature.name.as_str())
            .collect();
        assert_eq!(supported, expected_supported);
    }

    #[test]
    fn features_that_may_be_off_are_told_from_version_4() {
        check(3, "apache-kafka-java", ErrorCode::None, &[]);
        let all = [
            "eligible.leader.replicas.version",
            "group.version",
            "transaction.version",
        ];
        check(4, "apache-kafka-java", ErrorCode::None, &all);
    }

    #[test]
    fn software_names_are_checked_from_version_3() {
        check(2, "", ErrorCode::None, &[]);
        for name in ["", "-a", "a-", "a b", "."] {
            check(3, name, ErrorCode::InvalidRequest, &[]);
        }
        check(3, "a", ErrorCode::None, &[]);
        check(3, "a.-b", ErrorCode::None, &[]);
    }

    #[test]
    fn newer_client_is_told_the_range_of_this_api_alone() {
        let response = unsupported();
        assert_eq!(response.error_code, 35);
        assert_eq!(response.api_keys.len(), 1);
        assert_eq!(
            (
                response.api_keys[0].api_key,
                response.api_keys[0].min_version
            ),
            (18, 0)
        );
    }

    #[test]
    fn produce_is_advertised_from_version_0() {
        let response = respond(
            4,
            0,
            &ApiVersionsRequest {
                client_software_name: "a".into(),
                client_software_version: "1".into(),
                ..Default::default()
            },
        );
        let produce = response
            .api_keys
            .iter()
            .find(|range| range.api_key == 0)
            .unwrap();
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
    }
}
