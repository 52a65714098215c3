//! The HTTP listener: health, metrics, and a page that says what this is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get};
use riverlog_host::Driver;
use riverlog_http::HttpDoor;

use super::console;
use super::limits::Limits;
use super::metrics::{self, MetricsSettings, Times};
use super::traces::Traces;

/// What the routes look at.
pub(crate) struct Health {
    pub(crate) driver: Arc<Driver>,
    pub(crate) limits: Arc<Limits>,
    /// Turns true once clients are served, and false again at a stop.
    pub(crate) serving: AtomicBool,
    /// Where the Kafka listeners are, for the page.
    pub(crate) kafka: Vec<String>,
    /// `/v1`, and whom it answers.
    pub(crate) door: Arc<HttpDoor>,
    /// The connections of this listener.
    pub(crate) web: Arc<Limits>,
    /// What is told by which names.
    pub(crate) metrics: MetricsSettings,
    /// Spans of calls of `/v1`, where a collector is named.
    pub(crate) traces: Option<Traces>,
    /// Times of waiting records that are known.
    pub(crate) times: Times,
}

/// The routes.
pub(crate) fn routes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/startupz", get(startup))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .route("/style.css", get(style))
        .route("/docs", get(docs))
        .route("/console", get(console::index))
        .route("/console/", get(console::index))
        .route("/console/{*path}", get(console::file))
        .route("/v1", any(api))
        .route("/v1/{*call}", any(api))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here; see /\n") })
        .layer(middleware::from_fn_with_state(Arc::clone(&health), guarded))
        .with_state(health)
}

/// The guard before everything, and what every answer carries behind it.
async fn guarded(State(health): State<Arc<Health>>, request: Request, next: Next) -> Response {
    let settings = health.door.settings();
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = match riverlog_http::guard(settings, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    riverlog_http::secure(settings, origin.as_ref(), &mut response);
    response
}

async fn api(State(health): State<Arc<Health>>, request: Request) -> Response {
    let Some(traces) = &health.traces else {
        return health.door.answer(request).await;
    };
    let span = traces.begin(&request);
    let mut response = health.door.answer(request).await;
    traces.end(span, &mut response);
    response
}

/// Why this node isn't ready; empty when it is.
fn reasons(health: &Health) -> Vec<String> {
    let mut reasons = Vec::new();
    if !health.serving.load(Ordering::Acquire) {
        reasons.push("the node is starting or stopping".to_owned());
    }
    for metric in health.driver.node.metrics() {
        match (metric.name, metric.value) {
            ("registered", 0.0) => reasons.push("the node has no leader epochs yet".to_owned()),
            ("disk_full", 1.0) => reasons
                .push("the disk is full: nothing can be written until there is room".to_owned()),
            ("disk_failed", 1.0) => {
                reasons.push("the disk failed: nothing can be written until a restart".to_owned());
            }
            _ => {}
        }
    }
    if !health.driver.node.is_let_in() {
        reasons.push(
            "the cluster hasn't let the node in: it has just started, or was silent for too long"
                .to_owned(),
        );
    }
    let image = health.driver.node.image();
    for (topic, partition, why) in health.driver.node.broken_partitions() {
        let name = match image.topics.get(&topic) {
            Some(topic) => topic.name.clone(),
            None => topic.to_string(),
        };
        reasons.push(format!(
            "partition {name}-{partition} can't be opened: {why}"
        ));
    }
    reasons
}

/// What is wrong and doesn't keep the node from serving all the rest.
fn findings(health: &Health) -> Vec<serde_json::Value> {
    let node = &health.driver.node;
    let damages = node.damages().into_iter().map(|damage| {
        serde_json::json!({
            "kind": "damage",
            "topic": damage.topic,
            "partition": damage.partition,
            "file": damage.path,
            "from": damage.from.0,
            "to": damage.to.0,
            "reason": damage.reason,
        })
    });
    let groups = node
        .unavailable_coordinators()
        .into_iter()
        .map(|(topic, partition, why)| {
            serde_json::json!({
                "kind": "unavailable",
                "topic": topic,
                "partition": partition,
                "reason": why,
            })
        });
    damages.chain(groups).collect()
}

async fn ready(State(health): State<Arc<Health>>, RawQuery(query): RawQuery) -> Response {
    let reasons = reasons(&health);
    let status = if reasons.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let verbose = query.is_some_and(|q| {
        q.split('&')
            .any(|p| p == "verbose" || p.starts_with("verbose="))
    });
    if verbose {
        let body = serde_json::json!({
            "ready": reasons.is_empty(),
            "reasons": reasons,
            "findings": findings(&health),
        });
        return (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            format!("{body}\n"),
        )
            .into_response();
    }
    (
        status,
        if reasons.is_empty() {
            "ok\n"
        } else {
            "not ready; see /readyz?verbose\n"
        },
    )
        .into_response()
}

async fn startup(State(health): State<Arc<Health>>) -> Response {
    if health.serving.load(Ordering::Acquire) {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response()
}

async fn scrape(State(health): State<Arc<Health>>) -> Response {
    match metrics::text(&health).await {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics can't be written\n",
        )
            .into_response(),
    }
}

/// What pages may do: look like something. They run nothing.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);

async fn docs() -> Response {
    plain(riverlog_http::page())
}

async fn page(State(health): State<Arc<Health>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    if console::is_built() && accept.is_some_and(|accept| accept.contains("text/html")) {
        return Redirect::temporary("/console/").into_response();
    }
    let kafka = health.kafka.join(", ");
    let text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Riverlog</title><link rel=stylesheet href=/style.css>\n\
         <h1>Riverlog {}</h1>\n\
         <p>A Kafka-compatible event log. Clients connect to <code>{kafka}</code>.</p>\n\
         <ul><li><a href=/console/>console</a><li><a href=/docs>the HTTP API</a><li><a href=/v1/topics>topics</a><li><a href=/readyz?verbose>ready?</a><li><a href=/livez>alive?</a><li><a href=/metrics>metrics</a></ul>\n",
        env!("CARGO_PKG_VERSION")
    );
    plain(text)
}

/// A page that runs nothing.
pub(super) fn plain(text: String) -> Response {
    (
        [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/html; charset=utf-8"),
            ),
            (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        ],
        text,
    )
        .into_response()
}

async fn style() -> Response {
    let text = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui;max-width:60em;margin:3em auto;padding:0 1em}table{border-spacing:1em 0}td,th{text-align:left;vertical-align:top}pre{overflow:auto}\n";
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], text).into_response()
}
