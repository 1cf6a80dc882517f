//! Requests to the API server that change something, each counted and bounded in time, and the events that tell of
//! them.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use super::objects::FIELD_MANAGER;
use crate::metrics::Metrics;
use crate::object::ObjectKey;

/// Who reports events.
const REPORTER: &str = "taffrail.io/operator";

/// The API's limits for an event's note and reason, in bytes.
const NOTE_BYTES_MAX: usize = 1024;

/// How long one request may take.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a request did not succeed.
#[derive(Debug, Error)]
pub(super) enum ApiError {
    /// The API server refused it, or could not be reached.
    #[error("{}", told(.0))]
    Request(Box<kube::Error>),
    /// No answer within the limit.
    #[error("the API server gave no answer within {} s", REQUEST_WAIT_MAX.as_secs())]
    TimedOut,
}

impl ApiError {
    /// Whether the object is not there.
    pub(super) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object was changed by another since it was read.
    pub(super) fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the request is refused because its namespace is being deleted.
    pub(super) fn is_namespace_going(&self) -> bool {
        match self {
            Self::Request(error) => match error.as_ref() {
                kube::Error::Api(status) => {
                    status.code == 403
                        && (status.message.contains("because it is being terminated")
                            || status
                                .details
                                .iter()
                                .flat_map(|details| &details.causes)
                                .any(|cause| cause.reason == "NamespaceTerminating"))
                }
                _ => false,
            },
            Self::TimedOut => false,
        }
    }

    /// Whether the object that would result is against the rules of its kind.
    pub(super) fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Request(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::TimedOut => None,
        }
    }
}

/// What a person needs of an error: of a refusal the API server's own sentence.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => error.to_string(),
    }
}

/// A namespaced kind.
pub(super) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// Something was done.
    Normal,
    /// Something is refused or failed.
    Warning,
}

/// Writes to the API server.
#[derive(Clone)]
pub(super) struct Writer {
    client: Client,
    metrics: Metrics,
    /// Names this operator among several.
    instance: String,
}

impl Writer {
    pub(super) fn new(client: Client, metrics: Metrics, instance: String) -> Self {
        Self {
            client,
            metrics,
            instance,
        }
    }

    /// Reads an object past the caches; none if it is not there.
    pub(super) async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<K>, ApiError> {
        self.request::<K, _>("get", self.api::<K>(key).get_opt(&key.name))
            .await
    }

    /// Server-side apply: the object is made, or our fields of it become as they are here.
    pub(super) async fn apply<K: Kind>(&self, key: &ObjectKey, object: &K) -> Result<K, ApiError> {
        let api = self.api::<K>(key);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        self.request::<K, _>(
            "apply",
            api.patch(&key.name, &parameters, &Patch::Apply(object)),
        )
        .await
    }

    /// A merge patch (RFC 7386).
    pub(super) async fn patch<K: Kind>(
        &self,
        key: &ObjectKey,
        patch: &Value,
    ) -> Result<K, ApiError> {
        let api = self.api::<K>(key);
        self.request::<K, _>(
            "patch",
            api.patch(&key.name, &merging(), &Patch::Merge(patch)),
        )
        .await
    }

    /// Makes lists as they are here, with what others added to them taken away, which an apply leaves alone. What the
    /// operator's own applies set stays theirs alone, so that a later apply can take it away.
    pub(super) async fn put_right<K: Kind>(
        &self,
        key: &ObjectKey,
        object: &K,
    ) -> Result<K, ApiError> {
        let mut value = serde_json::to_value(object).unwrap_or_default();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            // Others' labels, annotations and finalizers are theirs.
            metadata.retain(|name, _| name == "uid" || name == "resourceVersion");
        }
        self.patch::<K>(key, &value).await?;
        let applied = self.apply(key, object).await?;
        let mut fields = applied.meta().managed_fields.clone().unwrap_or_default();
        fields.retain(|entry| {
            entry.manager.as_deref() != Some(FIELD_MANAGER)
                || entry.operation.as_deref() != Some("Update")
                || entry.subresource.is_some()
        });
        let patch = json!({"metadata": {
            "resourceVersion": applied.meta().resource_version,
            "managedFields": fields,
        }});
        self.patch(key, &patch).await
    }

    /// A merge patch of the status.
    pub(super) async fn patch_status<K: Kind>(
        &self,
        key: &ObjectKey,
        status: &Value,
    ) -> Result<K, ApiError> {
        let api = self.api::<K>(key);
        let patch = json!({ "status": status });
        self.request::<K, _>(
            "patch",
            api.patch_status(&key.name, &merging(), &Patch::Merge(&patch)),
        )
        .await
    }

    /// Sets the finalizers, if the object is still the version that was read.
    pub(super) async fn set_finalizers<K: Kind>(
        &self,
        object: &K,
        finalizers: &[String],
    ) -> Result<K, ApiError> {
        let key = super::cache::key_of(object);
        let patch = json!({"metadata": {
            "resourceVersion": object.meta().resource_version,
            "finalizers": finalizers,
        }});
        self.patch(&key, &patch).await
    }

    /// Deletes exactly this object, not another of its name. One that is gone already is no error.
    pub(super) async fn delete<K: Kind>(
        &self,
        object: &K,
        propagation: PropagationPolicy,
    ) -> Result<(), ApiError> {
        let key = super::cache::key_of(object);
        let api = self.api::<K>(&key);
        let parameters = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions {
                uid: object.meta().uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let result = self
            .request::<K, _>("delete", api.delete(&key.name, &parameters))
            .await;
        match result {
            Ok(_) => Ok(()),
            // A conflict is about the uid: the one that was meant is gone.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells of a decision. Best effort: an event that is lost changes nothing.
    pub(super) async fn event(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        severity: Severity,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let namespace = regarding.namespace.clone().unwrap_or_default();
        let event = self.new_event(regarding, related, severity, reason, action, note);
        let key = ObjectKey::new(Some(&namespace), event.metadata.name.as_deref());
        let api = self.api::<Event>(&key);
        let created = self
            .request::<Event, _>("create", api.create(&PostParams::default(), &event))
            .await;
        if let Err(error) = created {
            tracing::debug!(%error, reason, "an event was not written");
        }
    }

    /// Whether a namespace is being deleted. Asked by a creation that is not carried out, since an operator may not
    /// read namespaces.
    pub(super) async fn is_namespace_going(&self, namespace: &str) -> bool {
        let regarding = ObjectReference {
            kind: Some("Namespace".to_owned()),
            api_version: Some("v1".to_owned()),
            name: Some(namespace.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        let event = self.new_event(regarding, None, Severity::Normal, "Asked", "Ask", "");
        let key = ObjectKey::new(Some(namespace), event.metadata.name.as_deref());
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let api = self.api::<Event>(&key);
        let asked = self
            .request::<Event, _>("create", api.create(&parameters, &event))
            .await;
        asked.is_err_and(|error| error.is_namespace_going())
    }

    fn new_event(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        severity: Severity,
        reason: &str,
        action: &str,
        note: &str,
    ) -> Event {
        let now = Timestamp::now();
        let name = regarding.name.clone().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(
                match severity {
                    Severity::Normal => "Normal",
                    Severity::Warning => "Warning",
                }
                .to_owned(),
            ),
            reason: Some(reason.to_owned()),
            action: Some(action.to_owned()),
            note: Some(cut(note, NOTE_BYTES_MAX)),
            regarding: Some(regarding),
            related,
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    fn api<K: Kind>(&self, key: &ObjectKey) -> Api<K> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn request<K: Kind, T>(
        &self,
        verb: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        self.metrics.api_request(verb, &K::kind(&()));
        timeout(REQUEST_WAIT_MAX, request)
            .await
            .map_err(|_| ApiError::TimedOut)?
            .map_err(|error| ApiError::Request(Box::new(error)))
    }
}

/// A text of at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> String {
    const CUT: &str = " …";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", &text[..end])
}

/// Parameters of a merge patch in the operator's name.
fn merging() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_api_server() {
        let status = Status::failure("spec.ports[1].name: Duplicate value", "Invalid");
        let error = ApiError::Request(Box::new(kube::Error::Api(Box::new(status.with_code(422)))));
        assert!(error.is_invalid());
        assert_eq!(error.to_string(), "spec.ports[1].name: Duplicate value");
    }

    #[test]
    fn long_notes_are_cut_between_letters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcdefgh", 6), "ab …");
        assert_eq!(cut("äöüäöü", 8), "äö …");
    }
}
