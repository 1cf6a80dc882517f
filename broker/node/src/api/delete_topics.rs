//! DeleteTopics: by name, or by id from version 6 on; decided by the active controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::controller::TopicSelector;
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::TopicId;
use taffrail_core::metadata::Image;
use taffrail_protocol::messages::delete_topics_request::DeleteTopicState;
use taffrail_protocol::messages::delete_topics_response::DeletableTopicResult;
use taffrail_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use taffrail_protocol::{ErrorCode, Uuid};

use super::topics;
use crate::access::Operation;
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// Has the active controller delete what the client may delete. A topic that is named more than once is refused, as in Kafka's
/// `ControllerApis.deleteTopics`: what is named again the same way here, what is named by name and by id by the controller.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let timeout_ms = request.timeout_ms;
    let deadline = topics::deadline(&broker, timeout_ms);
    let image = broker.cluster.image();
    let mut response = DeleteTopicsResponse::default();
    let by_name = request.topics.is_empty();
    let mut allowed = Vec::new();
    let (once, repeated) = by_times_named(asked(request));
    let refused = repeated.into_iter().map(|topic| {
        let message = Some("A topic is named twice in the request.".to_owned());
        failed(
            topic.name,
            topic.topic_id,
            ErrorCode::InvalidRequest,
            message,
        )
    });
    response.responses.extend(refused);
    for topic in once {
        let name = topic
            .name
            .clone()
            .or_else(|| Some(image.topic(TopicId(topic.topic_id.0))?.name.clone()));
        let may =
            |operation, name: &str| topics::allows(&broker, &context.principal, operation, name);
        match name {
            Some(name) if !may(Operation::Delete, &name) => {
                let hidden = topic.name.is_none() && !may(Operation::Describe, &name);
                let shown = if hidden { None } else { Some(name) };
                response.responses.push(failed(
                    shown,
                    topic.topic_id,
                    ErrorCode::TopicAuthorizationFailed,
                    None,
                ));
            }
            Some(_) | None => allowed.push(topic),
        }
    }
    if !broker.config.delete_topic_enable {
        let code = if context.version < 3 {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        let message = Some("delete.topic.enable is false.".to_string());
        let refused = allowed
            .into_iter()
            .map(|topic| failed(topic.name, topic.topic_id, code, message.clone()));
        response.responses.extend(refused);
        return response;
    }
    if allowed.is_empty() {
        return response;
    }
    let request = narrowed(allowed, by_name, timeout_ms);
    match broker
        .cluster
        .call_controller(&context, &request, deadline)
        .await
    {
        Ok(answer) => {
            let done = |topic: &&DeletableTopicResult| topic.error_code == ErrorCode::None.code();
            // A new topic of the same name may be there already, so what must go is told by id; versions before 6 do
            // not answer ids, but then the image that was looked at before has them.
            let of_name = |topic: &DeletableTopicResult| {
                Some(image.topic_by_name(topic.name.as_deref()?)?.id)
            };
            let id = |topic: &DeletableTopicResult| {
                if topic.topic_id.is_zero() {
                    of_name(topic)
                } else {
                    Some(TopicId(topic.topic_id.0))
                }
            };
            let deleted: Vec<TopicId> = answer
                .responses
                .iter()
                .filter(done)
                .filter_map(id)
                .collect();
            let gone = |image: &Image| deleted.iter().all(|id| image.topic(*id).is_none());
            broker.cluster.wait_for_image(deadline, gone).await;
            response.responses.extend(answer.responses);
        }
        Err(error) => {
            let (code, message) = (error.code(), Some(error.to_string()));
            let refused = asked(request)
                .into_iter()
                .map(|topic| failed(topic.name, topic.topic_id, code, message.clone()));
            response.responses.extend(refused);
        }
    }
    response
}

/// The topics of a request, of whatever version.
fn asked(request: DeleteTopicsRequest) -> Vec<DeleteTopicState> {
    let mut topics = request.topics;
    let named = request.topic_names.into_iter();
    topics.extend(named.map(|name| DeleteTopicState {
        name: Some(name),
        ..DeleteTopicState::default()
    }));
    topics
}

/// The topics that are named once the same way, in order, and those that are named more than once, each once.
fn by_times_named(asked: Vec<DeleteTopicState>) -> (Vec<DeleteTopicState>, Vec<DeleteTopicState>) {
    let key = |topic: &DeleteTopicState| (topic.name.clone(), topic.topic_id.0);
    let mut times: BTreeMap<_, usize> = BTreeMap::new();
    for topic in &asked {
        *times.entry(key(topic)).or_default() += 1;
    }
    let (once, mut again): (Vec<_>, Vec<_>) =
        (asked.into_iter()).partition(|topic| times.get(&key(topic)) == Some(&1));
    again.retain(|topic| times.remove(&key(topic)).is_some());
    (once, again)
}

/// A request for only these topics, in the form that its version has.
fn narrowed(allowed: Vec<DeleteTopicState>, by_name: bool, timeout_ms: i32) -> DeleteTopicsRequest {
    let (topics, topic_names) = if by_name {
        let names = allowed.into_iter().filter_map(|topic| topic.name);
        (Vec::new(), names.collect())
    } else {
        (allowed, Vec::new())
    };
    DeleteTopicsRequest {
        topics,
        topic_names,
        timeout_ms,
    }
}

fn failed(
    name: Option<String>,
    topic_id: Uuid,
    code: ErrorCode,
    message: Option<String>,
) -> DeletableTopicResult {
    DeletableTopicResult {
        name,
        topic_id,
        error_code: code.code(),
        error_message: message,
    }
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: DeleteTopicsRequest,
) -> Result<DeleteTopicsResponse, Undecided> {
    let asked = asked(request);
    let legal: Vec<TopicSelector> = asked.iter().filter_map(selector).collect();
    let mut deleted = broker
        .cluster
        .decide_for_client(move |controller, _| controller.delete_topics(&legal))
        .await?
        .into_iter();
    let both = || {
        ApiError::new(
            ErrorKind::InvalidRequest,
            "A topic is named either by name or by id.",
        )
    };
    let responses = asked.into_iter().map(|topic| {
        let result = if is_named_one_way(&topic) {
            deleted
                .next()
                .unwrap_or_else(|| Err(ErrorKind::UnknownServerError.into()))
        } else {
            Err(both())
        };
        match result {
            Ok((topic_id, name)) => DeletableTopicResult {
                name: Some(name),
                topic_id: Uuid(topic_id.0),
                ..Default::default()
            },
            Err(error) => {
                let (error_code, error_message) = code_and_message(error);
                DeletableTopicResult {
                    name: topic.name,
                    topic_id: topic.topic_id,
                    error_code,
                    error_message,
                }
            }
        }
    });
    Ok(DeleteTopicsResponse {
        responses: responses.collect(),
        ..DeleteTopicsResponse::default()
    })
}

fn is_named_one_way(topic: &DeleteTopicState) -> bool {
    topic.name.is_some() == topic.topic_id.is_zero()
}

fn selector(topic: &DeleteTopicState) -> Option<TopicSelector> {
    is_named_one_way(topic).then(|| match &topic.name {
        Some(name) => TopicSelector::Name(name.clone()),
        None => TopicSelector::Id(TopicId(topic.topic_id.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_told_apart_by_how_often_they_are_named() {
        let named = |name: &str| DeleteTopicState {
            name: Some(name.to_owned()),
            ..DeleteTopicState::default()
        };
        let with_id = |id: u8| DeleteTopicState {
            topic_id: Uuid([id; 16]),
            ..DeleteTopicState::default()
        };
        let asked = vec![
            named("a"),
            with_id(1),
            named("b"),
            named("a"),
            with_id(2),
            named("a"),
            with_id(1),
        ];
        let (once, again) = by_times_named(asked);
        assert_eq!(once, [named("b"), with_id(2)]);
        assert_eq!(again, [named("a"), with_id(1)]);
        // What comes by the list of names is the same topic.
        let request = DeleteTopicsRequest {
            topics: vec![named("c")],
            topic_names: vec!["c".to_owned()],
            ..DeleteTopicsRequest::default()
        };
        assert_eq!(
            by_times_named(super::asked(request)),
            (vec![], vec![named("c")])
        );
    }
}
