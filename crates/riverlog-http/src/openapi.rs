//! The description of `/v1` (OpenAPI 3.1), made of the code: as JSON, and as a page for people.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use serde_json::Value;
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use crate::door::Answer;
use crate::problem::Problem;
use crate::{cluster, fetch, groups, produce, records, schema, topics, transactions, watch};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Riverlog",
        description = "The event log over HTTP: the same partitions, offsets, groups and producers as over Kafka's protocol.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        topics::list,
        topics::create,
        topics::describe,
        topics::delete,
        topics::configs,
        topics::alter_configs,
        topics::add_partitions,
        produce::to_topic,
        produce::to_partition,
        fetch::fetch,
        records::look,
        records::search::search,
        groups::view::list,
        groups::view::describe,
        groups::view::delete,
        groups::reset::reset,
        groups::offsets::committed,
        groups::offsets::commit,
        groups::lag::lag,
        groups::members::join,
        groups::members::poll,
        groups::members::heartbeat,
        groups::members::leave,
        transactions::producers,
        transactions::open,
        transactions::describe,
        transactions::commit,
        transactions::abort,
        groups::offsets::commit_in_transaction,
        cluster::brokers,
        cluster::configs,
        cluster::alter_configs,
        cluster::cluster,
        watch::answers::node,
        watch::answers::topics,
        watch::answers::groups,
        watch::answers::transactions,
        watch::history::of_node,
        watch::history::of_topic,
        watch::history::of_group,
        description,
    ),
    components(schemas(Problem, schema::Record, schema::RecordOut)),
    tags(
        (name = "topics", description = "Topics and their configs"),
        (name = "records", description = "Records in and out"),
        (name = "groups", description = "Consumer groups: members, commits, lag"),
        (name = "transactions", description = "Producers and transactions"),
        (name = "cluster", description = "Nodes")
    ),
    modifiers(&Refusals)
)]
struct Api;

/// What every call may answer.
struct Refusals;

impl Modify for Refusals {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let problem = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .build();
        let refusal = ResponseBuilder::new()
            .description("A problem document (RFC 9457)")
            .content("application/problem+json", problem)
            .build();
        for item in api.paths.paths.values_mut() {
            let all = [
                &mut item.get,
                &mut item.post,
                &mut item.patch,
                &mut item.delete,
            ];
            for operation in all.into_iter().flatten() {
                let responses = &mut operation.responses.responses;
                responses.insert("default".to_owned(), refusal.clone().into());
            }
        }
    }
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    // What is described has a JSON form.
    let mut text = Api::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
});

/// The whole description of `/v1`, as JSON.
pub fn document() -> &'static str {
    &DOCUMENT
}

/// This description
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "cluster", operation_id = "getDescription",
    responses((status = 200, description = "OpenAPI 3.1", body = Value))
)]
pub(crate) fn description() -> Answer {
    let mut response = Response::new(Body::from(document()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The description as a page of HTML that runs nothing and asks nobody.
pub fn page() -> String {
    let document: Value = serde_json::from_str(document()).unwrap_or_default();
    let mut out = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Riverlog: /v1</title><link rel=stylesheet href=/style.css>\n<h1>Riverlog: <code>/v1</code></h1>\n",
    );
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "<p>{} The same as JSON: <a href=/v1/openapi.json>/v1/openapi.json</a>.</p>",
        escaped(words(&document["info"]["description"]))
    );
    let empty = serde_json::Map::new();
    let paths = document["paths"].as_object().unwrap_or(&empty);
    for tag in document["tags"].as_array().into_iter().flatten() {
        let name = words(&tag["name"]);
        let _ = writeln!(
            out,
            "<h2 id={0}>{0}</h2><p>{1}</p>",
            escaped(name),
            escaped(words(&tag["description"]))
        );
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap_or(&empty) {
                if words(&operation["tags"][0]) == name {
                    call(&mut out, method, path, operation);
                }
            }
        }
    }
    out.push_str("<h2 id=types>Types</h2>\n");
    let schemas = document["components"]["schemas"]
        .as_object()
        .unwrap_or(&empty);
    for (name, schema) in schemas {
        let _ = writeln!(
            out,
            "<h3 id=type-{0}>{0}</h3><p>{1}</p><pre>{2}</pre>",
            escaped(name),
            escaped(words(&schema["description"])),
            escaped(&serde_json::to_string_pretty(&schema["properties"]).unwrap_or_default())
        );
    }
    out
}

fn call(out: &mut String, method: &str, path: &str, operation: &Value) {
    let _ = writeln!(
        out,
        "<h3><code>{} {}</code></h3><p>{}</p>",
        escaped(&method.to_uppercase()),
        escaped(path),
        escaped(words(&operation["summary"]))
    );
    if let Some(text) = operation["description"].as_str() {
        let _ = writeln!(out, "<p>{}</p>", escaped(text));
    }
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|p| !p.is_empty()) {
        out.push_str("<table><tr><th>name<th>in<th>\n");
        for parameter in parameters {
            let _ = writeln!(
                out,
                "<tr><td><code>{}</code><td>{}<td>{}",
                escaped(words(&parameter["name"])),
                escaped(words(&parameter["in"])),
                escaped(words(&parameter["description"]))
            );
        }
        out.push_str("</table>\n");
    }
    for (what, contents) in [
        ("body", &operation["requestBody"]["content"]),
        ("answer", &operation["responses"]["200"]["content"]),
        ("answer", &operation["responses"]["201"]["content"]),
    ] {
        for (kind, content) in contents.as_object().into_iter().flatten() {
            let name = words(&content["schema"]["$ref"]).rsplit('/').next();
            let name = escaped(name.unwrap_or_default());
            let _ = writeln!(
                out,
                "<p>{what}: {} <a href=#type-{name}>{name}</a></p>",
                escaped(kind)
            );
        }
    }
}

fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Target;
    use crate::route::allows;

    #[test]
    fn every_call_that_is_described_is_served_and_the_other_way_round() {
        let document: Value = serde_json::from_str(document()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let mut described = std::collections::BTreeMap::new();
        let mut ids = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let plain = path.strip_prefix("/v1/").unwrap().replace(['{', '}'], "");
            let target = Target::parse(&plain).unwrap();
            let place = allows(&target).unwrap_or_else(|| panic!("{path} isn't served"));
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id} twice");
                assert!(operation["summary"].is_string(), "{path} has no words");
                described
                    .entry((place, path.clone()))
                    .or_insert_with(Vec::new)
                    .push(method.to_uppercase());
            }
        }
        for ((place, path), mut methods) in described {
            methods.sort_unstable();
            let mut served: Vec<&str> = place.split(", ").collect();
            served.sort_unstable();
            assert_eq!(methods, served, "{path}");
        }
    }

    #[test]
    fn the_committed_description_is_that_of_the_code() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/protocol/openapi.json"
        );
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == document(),
            "docs/protocol/openapi.json is not the code's; look at the change, then run UPDATE_DOCS=1 cargo test -p riverlog-http description"
        );
    }

    #[test]
    fn the_page_runs_nothing_and_has_every_call() {
        let page = page();
        for word in ["<script", "javascript:", "onload", "http://", "https://"] {
            assert!(!page.contains(word), "{word}");
        }
        for call in [
            "GET /v1/topics</code>",
            "POST /v1/groups/{group}:reset</code>",
        ] {
            assert!(page.contains(call), "{call}");
        }
    }
}
