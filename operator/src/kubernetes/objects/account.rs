//! The ServiceAccount of the brokers, which know nothing of Kubernetes: no rights, no token.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::Blueprint;
use super::labels::metadata;

pub(super) fn service_account(blueprint: &Blueprint<'_>) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(blueprint, blueprint.names().brokers()),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
