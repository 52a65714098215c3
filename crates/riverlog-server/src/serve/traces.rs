//! A span for each call of `/v1`, pushed to a collector (OTLP, protobuf over HTTP).
//!
//! All settings are OpenTelemetry's own environment variables; without an endpoint among them nothing is recorded. Spans wait in a bounded queue,
//! and are dropped there while the collector doesn't take them: requests never wait for it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use hyper::body::Bytes;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Span as _, SpanKind, Status, TraceContextExt, Tracer, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use riverlog_http::CallName;
use tokio::runtime::Handle;

/// Where spans go: said of traces alone, or of all signals.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
/// What this is called unless the environment says otherwise.
const SERVICE: &str = "riverlog";
/// How long the collector may take for a batch of spans, and for the last ones at a stop.
const PATIENCE: Duration = Duration::from_secs(10);
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Makes spans and passes them on.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// `None` unless the environment names an endpoint. Called in the runtime that is to send.
    pub(crate) fn start() -> Option<Traces> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = ENDPOINTS.into_iter().find_map(set)?;
        if !endpoint.starts_with("http://") {
            tracing::warn!(
                endpoint,
                "no traces are sent: the collector is spoken to over http:// only; name one on this machine or in this network"
            );
            return None;
        }
        let client = OnRuntime {
            runtime: Handle::current(),
            client: HyperClient::with_default_connector(PATIENCE, None),
        };
        let exporter = SpanExporter::builder().with_http().with_http_client(client);
        let exporter = match exporter.build() {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::warn!(endpoint, "no traces are sent: {error}");
                return None;
            }
        };
        let mut resource = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if set("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(SERVICE);
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        tracing::info!(endpoint, "traces of calls over HTTP go to a collector");
        Some(Traces {
            tracer: provider.tracer(SERVICE),
            provider,
        })
    }

    /// Begins the span of a request: a child of the one that its header `traceparent` names.
    pub(crate) fn begin(&self, request: &Request) -> Span {
        let parent = TraceContextPropagator::new()
            .extract_with_context(&Context::new(), &HeaderExtractor(request.headers()));
        let attributes = [
            KeyValue::new("http.request.method", request.method().to_string()),
            KeyValue::new("url.path", request.uri().path().to_owned()),
        ];
        let builder = self
            .tracer
            .span_builder(request.method().to_string())
            .with_kind(SpanKind::Server)
            .with_attributes(attributes);
        self.tracer.build_with_context(builder, &parent)
    }

    /// Ends it with the answer's head, which is told by which span it was made.
    pub(crate) fn end(&self, mut span: Span, response: &mut Response) {
        if let Some(CallName(call)) = response.extensions().get::<CallName>() {
            span.update_name(*call);
        }
        let status = response.status();
        span.set_attribute(KeyValue::new(
            "http.response.status_code",
            i64::from(status.as_u16()),
        ));
        if status.is_server_error() {
            span.set_status(Status::error(""));
        }
        let context = Context::new().with_remote_span_context(span.span_context().clone());
        TraceContextPropagator::new()
            .inject_context(&context, &mut HeaderInjector(response.headers_mut()));
        span.end();
    }

    /// Sends what waits.
    pub(crate) async fn stop(&self) {
        let provider = self.provider.clone();
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST_WORDS));
        if let Ok(Err(error)) = ended.await {
            tracing::warn!("the last traces were not sent: {error}");
        }
    }
}

/// Spans are passed on by a thread of their own; what sends them needs the runtime.
#[derive(Debug)]
struct OnRuntime {
    runtime: Handle,
    client: HyperClient,
}

type Sent = Result<hyper::Response<Bytes>, HttpError>;

impl HttpClient for OnRuntime {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: hyper::Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Sent> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sending = self
            .runtime
            .spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { sending.await? })
    }
}
