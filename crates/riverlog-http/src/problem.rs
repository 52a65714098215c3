//! Problem documents (RFC 9457): the one table from errors to HTTP.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use riverlog_node::AppendFailure;
use riverlog_wire::ErrorCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// What went wrong, for programs and for people.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Problem(Box<Document>);

/// A problem document (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Document {
    /// A stable name: `urn:riverlog:problem:` and a slug.
    #[serde(rename = "type")]
    kind: String,
    /// The same words for every problem of the type.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What was found this time, and what to do.
    detail: String,
    /// The request, as in the header `Riverlog-Request-Id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    /// The error that a Kafka client would be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    kafka_error: Option<KafkaError>,
    /// Whether the same request may succeed later.
    retriable: bool,
    /// When to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// What helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// What belongs to some types alone: bounds of a partition, the current generation, ….
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Value>)]
    more: BTreeMap<&'static str, Value>,
}

impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        Document::schema()
    }
}

impl ToSchema for Problem {
    fn name() -> std::borrow::Cow<'static, str> {
        "Problem".into()
    }
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Document::schemas(schemas);
    }
}

/// The error that a Kafka client would be told.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct KafkaError {
    name: &'static str,
    code: i16,
}

/// How long to wait where nothing better is known.
const RETRY_MS: u64 = 500;

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        slug: &str,
        title: impl Into<String>,
        detail: impl Into<String>,
    ) -> Problem {
        Problem(Box::new(Document {
            kind: format!("urn:riverlog:problem:{slug}"),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            instance: None,
            kafka_error: None,
            retriable: false,
            retry_after_ms: None,
            hint: None,
            more: BTreeMap::new(),
        }))
    }

    /// The request makes no sense: 400.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "bad-request",
            "the request can't be understood",
            detail,
        )
    }

    /// The request is well-formed and asks for something that can't be: 422.
    pub(crate) fn unprocessable(slug: &str, detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            slug,
            "the request asks for something that can't be",
            detail,
        )
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            "the body is larger than this listener takes",
            detail,
        )
        .hint("send smaller requests, or one line a record as application/x-ndjson; riverlog.http.request.max.bytes is the bound")
    }

    /// Too much is under way: 503.
    pub(crate) fn busy(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too much is under way",
            detail,
        )
        .retry(RETRY_MS)
    }

    /// The node stops.
    pub(crate) fn closing() -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the node is stopping",
            "the node stopped before it answered; a write may have happened",
        )
        .retry(RETRY_MS)
    }

    pub(crate) fn unsupported_type(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "the body's type isn't served here",
            detail,
        )
    }

    pub(crate) fn not_acceptable(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not-acceptable",
            "no type that was asked for is served here",
            detail,
        )
    }

    pub(crate) fn no_topic(name: &str) -> Problem {
        Problem::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
            .detail(format!("there is no topic {name:?}"))
            .hint("GET /v1/topics lists them; POST /v1/topics makes one")
    }

    pub(crate) fn no_partition(topic: &str, partition: i32, count: usize) -> Problem {
        let mut problem = Problem::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).detail(format!(
            "topic {topic:?} has no partition {partition}; it has {count}, numbered from 0"
        ));
        "urn:riverlog:problem:unknown-partition".clone_into(&mut problem.0.kind);
        problem.0.retriable = false;
        problem
    }

    /// What a Kafka error means here.
    pub(crate) fn kafka(code: ErrorCode) -> Problem {
        let (status, slug) = of_code(code);
        let mut problem = Problem::new(status, slug, code.message(), code.message());
        problem = problem.of_kafka(code);
        problem.0.retriable = code.retriable() && status != StatusCode::NOT_FOUND;
        if matches!(
            status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            problem.0.retry_after_ms = Some(RETRY_MS);
        }
        problem
    }

    /// Why a batch wasn't stored.
    pub(crate) fn append(failure: &AppendFailure) -> Problem {
        let mut problem = Problem::kafka(failure.error).detail(failure.message.clone());
        if let Some(after) = failure.retry_after {
            problem = problem.retry(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        if failure.error == ErrorCode::REQUEST_TIMED_OUT {
            problem = problem.hint(
                "the write may have happened; read the partition, or send it again with a producer id and sequence or an Idempotency-Key, which store it once",
            );
        }
        problem
    }

    /// With the error that a Kafka client would be told.
    pub(crate) fn of_kafka(mut self, code: ErrorCode) -> Problem {
        self.0.kafka_error = Some(KafkaError {
            name: code.name(),
            code: code.into(),
        });
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Problem {
        self.0.detail = detail.into();
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn retry(mut self, after_ms: u64) -> Problem {
        self.0.retriable = true;
        self.0.retry_after_ms = Some(after_ms);
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Problem {
        self.0.more.insert(name, value.into());
        self
    }

    pub(crate) fn of_request(mut self, id: &str) -> Problem {
        self.0.instance = Some(format!("urn:riverlog:request:{id}"));
        self
    }

    /// Whether it is of the type with this slug.
    pub(crate) fn is(&self, slug: &str) -> bool {
        self.0.kind.rsplit(':').next() == Some(slug)
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// What befell each of several records, in their order.
    pub(crate) fn with_errors(self, errors: &[&Problem]) -> Problem {
        let errors = errors
            .iter()
            .map(|e| serde_json::to_value(e).unwrap_or_default());
        self.with("errors", Value::Array(errors.collect()))
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        // A map of strings and numbers always has a JSON form.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(ms) = self.0.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        response
    }
}

/// Kafka's errors as HTTP has them: status and slug. What isn't named is the client's fault when it is final, and passes when
/// Kafka's own clients would try again.
fn of_code(code: ErrorCode) -> (StatusCode, &'static str) {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => {
            (StatusCode::NOT_FOUND, "unknown-topic")
        }
        ErrorCode::GROUP_ID_NOT_FOUND => (StatusCode::NOT_FOUND, "unknown-group"),
        ErrorCode::TRANSACTIONAL_ID_NOT_FOUND => (StatusCode::NOT_FOUND, "unknown-transaction"),
        ErrorCode::RESOURCE_NOT_FOUND => (StatusCode::NOT_FOUND, "not-found"),
        ErrorCode::OFFSET_OUT_OF_RANGE => {
            (StatusCode::RANGE_NOT_SATISFIABLE, "offset-out-of-range")
        }
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::UNKNOWN_LEADER_EPOCH => (StatusCode::SERVICE_UNAVAILABLE, "leader-moving"),
        ErrorCode::NOT_ENOUGH_REPLICAS | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND => {
            (StatusCode::SERVICE_UNAVAILABLE, "not-enough-replicas")
        }
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::NOT_COORDINATOR
        | ErrorCode::NOT_CONTROLLER => (StatusCode::SERVICE_UNAVAILABLE, "coordinator-moving"),
        ErrorCode::KAFKA_STORAGE_ERROR => (StatusCode::SERVICE_UNAVAILABLE, "storage"),
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => {
            (StatusCode::PAYLOAD_TOO_LARGE, "record-too-large")
        }
        ErrorCode::INVALID_RECORD => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-record"),
        ErrorCode::CORRUPT_MESSAGE => (StatusCode::UNPROCESSABLE_ENTITY, "corrupt-batch"),
        ErrorCode::INVALID_TIMESTAMP => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-timestamp"),
        ErrorCode::OPERATION_NOT_ATTEMPTED => (StatusCode::FAILED_DEPENDENCY, "not-attempted"),
        ErrorCode::INVALID_CONFIG => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-config"),
        ErrorCode::INVALID_PARTITIONS
        | ErrorCode::INVALID_REPLICATION_FACTOR
        | ErrorCode::INVALID_REPLICA_ASSIGNMENT => {
            (StatusCode::UNPROCESSABLE_ENTITY, "invalid-partitions")
        }
        ErrorCode::INVALID_TOPIC_EXCEPTION => {
            (StatusCode::UNPROCESSABLE_ENTITY, "invalid-topic-name")
        }
        ErrorCode::POLICY_VIOLATION => (StatusCode::TOO_MANY_REQUESTS, "partition-full"),
        ErrorCode::TOPIC_ALREADY_EXISTS => (StatusCode::CONFLICT, "topic-exists"),
        ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::STALE_MEMBER_EPOCH
        | ErrorCode::FENCED_MEMBER_EPOCH => (StatusCode::CONFLICT, "stale-generation"),
        ErrorCode::UNKNOWN_MEMBER_ID => (StatusCode::CONFLICT, "unknown-member"),
        ErrorCode::REBALANCE_IN_PROGRESS => (StatusCode::CONFLICT, "rebalance-in-progress"),
        ErrorCode::FENCED_INSTANCE_ID | ErrorCode::UNRELEASED_INSTANCE_ID => {
            (StatusCode::CONFLICT, "fenced-instance")
        }
        ErrorCode::NON_EMPTY_GROUP | ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC => {
            (StatusCode::CONFLICT, "group-not-empty")
        }
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL => (StatusCode::CONFLICT, "group-protocol"),
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => (StatusCode::CONFLICT, "out-of-order-sequence"),
        ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::PRODUCER_FENCED => {
            (StatusCode::CONFLICT, "producer-fenced")
        }
        ErrorCode::INVALID_PRODUCER_ID_MAPPING => (StatusCode::CONFLICT, "unknown-producer"),
        ErrorCode::INVALID_TXN_STATE | ErrorCode::TRANSACTION_ABORTABLE => {
            (StatusCode::CONFLICT, "transaction-state")
        }
        ErrorCode::CONCURRENT_TRANSACTIONS => {
            (StatusCode::SERVICE_UNAVAILABLE, "transaction-ending")
        }
        ErrorCode::UNSTABLE_OFFSET_COMMIT => (StatusCode::SERVICE_UNAVAILABLE, "unstable-offset"),
        ErrorCode::THROTTLING_QUOTA_EXCEEDED => (StatusCode::TOO_MANY_REQUESTS, "throttled"),
        ErrorCode::REQUEST_TIMED_OUT => (StatusCode::GATEWAY_TIMEOUT, "timed-out"),
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::GROUP_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => (StatusCode::FORBIDDEN, "forbidden"),
        ErrorCode::SASL_AUTHENTICATION_FAILED => (StatusCode::UNAUTHORIZED, "unauthenticated"),
        ErrorCode::UNKNOWN_SERVER_ERROR => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        code if code.retriable() => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_kafka_is_an_error_here() {
        for code in ErrorCode::all().filter(|code| *code != ErrorCode::NONE) {
            let problem = Problem::kafka(code);
            assert!((400..600).contains(&problem.0.status), "{code:?}");
            let body = serde_json::to_value(&problem).unwrap();
            assert_eq!(body["kafka_error"]["code"], i16::from(code));
            let wait = matches!(problem.0.status, 429 | 503);
            assert_eq!(problem.0.retry_after_ms.is_some(), wait, "{code:?}");
        }
    }

    #[test]
    fn a_document_says_what_when_and_how_to_go_on() {
        let problem = Problem::kafka(ErrorCode::OFFSET_OUT_OF_RANGE)
            .detail("offset 9 isn't there")
            .with("log_start_offset", 3)
            .of_request("1");
        let text = serde_json::to_string(&problem).unwrap();
        assert_eq!(
            text,
            "{\"type\":\"urn:riverlog:problem:offset-out-of-range\",\"title\":\"the offset is outside of what the partition holds; ask for its bounds and seek\",\
             \"status\":416,\"detail\":\"offset 9 isn't there\",\"instance\":\"urn:riverlog:request:1\",\
             \"kafka_error\":{\"name\":\"OFFSET_OUT_OF_RANGE\",\"code\":1},\"retriable\":false,\"log_start_offset\":3}"
        );
    }
}
