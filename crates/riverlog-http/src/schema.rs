//! The shapes of what is read and written by hand, for the description of `/v1`.

use serde_json::Value;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::int64::Int64;
use crate::problem::Problem;

/// A record to be published.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are read without it")]
pub(crate) struct Record {
    /// null, text, `{"base64": …}` or `{"json": …}`; with `embed` what that says.
    key: Option<Value>,
    /// As the key. Must be there; null deletes.
    #[schema(required)]
    value: Value,
    /// In order; names may repeat.
    #[schema(required = false)]
    headers: Vec<Header>,
    /// Where it goes, whatever the key.
    partition: Option<i32>,
    /// ms since 1970; now unless given.
    timestamp: Option<Int64>,
}

/// A header of a record.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are read without it")]
pub(crate) struct Header {
    name: String,
    /// null, text, or `{"base64": …}`.
    #[schema(required)]
    value: Value,
}

/// Records to be published.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are read without it")]
pub(crate) struct Records {
    #[schema(min_items = 1)]
    records: Vec<Record>,
    /// `all` (−1), `leader` (1) or `none` (0).
    acks: Option<Value>,
}

/// What became of a record: where it is, or why it isn't.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are written without it")]
pub(crate) struct RecordResult {
    partition: Option<i32>,
    offset: Option<Int64>,
    timestamp: Option<Int64>,
    /// It was stored before.
    duplicate: Option<bool>,
    error: Option<Problem>,
}

/// What became of each record, in the order of the request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are written without it")]
pub(crate) struct RecordResults {
    results: Vec<RecordResult>,
}

/// What became of each record, in the order of the request; or, of a record batch, where all of it is.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are written without it")]
pub(crate) struct PartitionResults {
    results: Option<Vec<RecordResult>>,
    partition: Option<i32>,
    base_offset: Option<Int64>,
    /// How many.
    records: Option<i32>,
    /// ms since 1970, of topics that say the time themselves.
    log_append_time: Option<Int64>,
    /// It was stored before.
    duplicate: Option<bool>,
}

/// A record that was read.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are written without it")]
pub(crate) struct RecordOut {
    offset: Int64,
    timestamp: Int64,
    key: Option<Value>,
    /// null when `embed` doesn't fit, with `value_base64` beside it.
    value: Option<Value>,
    headers: Vec<Header>,
    leader_epoch: i32,
}

/// Records of a partition, or (without `offset`) what the partition is like.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are written without it")]
pub(crate) struct RecordsOut {
    records: Option<Vec<RecordOut>>,
    next_offset: Option<Int64>,
    high_watermark: Option<Int64>,
    last_stable_offset: Option<Int64>,
    log_start_offset: Option<Int64>,
}

/// Pages of a long list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct Page {
    /// Part of a name.
    filter: Option<String>,
    /// `next_page` of the answer before.
    page: Option<String>,
    /// Entries of a page.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
}

/// Only say what would happen.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct DryRun {
    /// Only say what would happen.
    validate_only: Option<bool>,
}

/// How records are published.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct How {
    /// What keys and values are: `json`, `utf8`, `base64`; each says it itself unless given.
    #[param(pattern = "^(json|utf8|base64)$")]
    embed: Option<String>,
    /// `all`, `leader` or `none`.
    #[param(pattern = "^(all|leader|none)$")]
    acks: Option<String>,
    /// `string`: 64-bit numbers as text.
    #[param(pattern = "^(number|string)$")]
    int64: Option<String>,
}

/// Ways to have a request stored once; one of them.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "a description: the headers are read without it")]
pub(crate) struct Once {
    /// Remembered for an hour: the same request again gets the same answer.
    #[param(
        required = false,
        rename = "Idempotency-Key",
        min_length = 1,
        max_length = 255
    )]
    idempotency_key: String,
    /// Stored only if the first record gets this offset; else 412.
    #[param(required = false, rename = "If-Riverlog-Next-Offset", minimum = 0)]
    next_offset: i64,
    /// Of an idempotent producer, with its epoch and the sequence.
    #[param(required = false, rename = "Riverlog-Producer-Id", minimum = 0)]
    producer_id: i64,
    /// The producer's epoch.
    #[param(required = false, rename = "Riverlog-Producer-Epoch", minimum = 0)]
    producer_epoch: i16,
    /// The sequence of the request's first record in its partition.
    #[param(required = false, rename = "Riverlog-Sequence", minimum = 0)]
    sequence: i32,
    /// The transaction that the records are part of; with the producer's three.
    #[param(required = false, rename = "Riverlog-Transactional-Id")]
    transactional_id: String,
}

/// Bytes as they are.
pub(crate) struct Octets;

impl PartialSchema for Octets {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
            .into()
    }
}

impl ToSchema for Octets {}

/// What to read.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct Read {
    /// An offset, `start`, `end`, `-N`, `time:…`, `group:…`. Without it the partition is described.
    offset: Option<String>,
    /// A position to stop before.
    until: Option<String>,
    /// Records.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Bytes of keys and values; the first record comes whole.
    #[param(minimum = 1, maximum = 16777216)]
    max_bytes: Option<u32>,
    /// How long to wait for the first record.
    #[param(minimum = 0, maximum = 30000)]
    wait_ms: Option<u32>,
    /// `read_committed` unless given.
    #[param(pattern = "^(read_committed|read_uncommitted)$")]
    isolation: Option<String>,
    /// How keys and values are written: `json`, `utf8`, `base64`.
    #[param(pattern = "^(json|utf8|base64)$")]
    embed: Option<String>,
    /// `string`: 64-bit numbers as text.
    #[param(pattern = "^(number|string)$")]
    int64: Option<String>,
}

/// What a member polls.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct Poll {
    /// Of the last answer; without it from the commits.
    cursor: Option<String>,
    /// How long to wait for the first record.
    #[param(minimum = 0, maximum = 30000)]
    wait_ms: Option<u32>,
    /// Records.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// Bytes of keys and values.
    #[param(minimum = 1, maximum = 16777216)]
    max_bytes: Option<u32>,
    /// How keys and values are written: `json`, `utf8`, `base64`.
    #[param(pattern = "^(json|utf8|base64)$")]
    embed: Option<String>,
    /// `string`: 64-bit numbers as text.
    #[param(pattern = "^(number|string)$")]
    int64: Option<String>,
}

/// What to look at, in all partitions at once.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct Look {
    /// An offset, `start`, `end`, `-N`, `time:…`, `group:…`; the last ones unless given.
    offset: Option<String>,
    /// `next` of the page before: reads on.
    cursor: Option<String>,
    /// `first` of the page behind: reads what is before.
    before: Option<String>,
    /// Numbers with commas between them; all unless given.
    partitions: Option<String>,
    /// Records.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Of a tail: what stands in the key, the value or a header.
    contains: Option<String>,
    /// Of a tail: the key.
    key_eq: Option<String>,
    /// Of a tail: what stands in the key.
    key_contains: Option<String>,
    /// Of a tail: what stands in the value.
    value_contains: Option<String>,
    /// Of a tail: a header's name, or `name=value`.
    header: Option<String>,
    /// `read_committed` unless given.
    #[param(pattern = "^(read_committed|read_uncommitted)$")]
    isolation: Option<String>,
    /// How keys and values are written: `json`, `utf8`, `base64`.
    #[param(pattern = "^(json|utf8|base64)$")]
    embed: Option<String>,
    /// `string`: 64-bit numbers as text.
    #[param(pattern = "^(number|string)$")]
    int64: Option<String>,
}

/// How records are written.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct Written {
    /// How keys and values are written: `json`, `utf8`, `base64`.
    #[param(pattern = "^(json|utf8|base64)$")]
    embed: Option<String>,
    /// `string`: 64-bit numbers as text.
    #[param(pattern = "^(number|string)$")]
    int64: Option<String>,
}

/// A page of a list that is as of the last look.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description: the query is read without it")]
pub(crate) struct List {
    /// Part of a name.
    filter: Option<String>,
    /// From 0.
    #[param(minimum = 0, maximum = 1000000)]
    page: Option<u32>,
    /// Entries of a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}
