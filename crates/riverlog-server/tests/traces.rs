//! Spans of calls over HTTP, as a collector gets them.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{Server, riverlog};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Takes what comes; the spans, each with the service that made it.
fn collector() -> (String, Receiver<(String, Span)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let (send, spans) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let send = send.clone();
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while let Some(request) = request(&mut stream) {
                    for part in request.resource_spans {
                        let service = part
                            .resource
                            .iter()
                            .flat_map(|r| &r.attributes)
                            .find(|a| a.key == "service.name")
                            .map(|a| format!("{:?}", a.value))
                            .unwrap_or_default();
                        for span in part.scope_spans.into_iter().flat_map(|s| s.spans) {
                            // The test may have ended.
                            let _ = send.send((service.clone(), span));
                        }
                    }
                }
            });
        }
    });
    (at, spans)
}

fn request(stream: &mut BufReader<TcpStream>) -> Option<ExportTraceServiceRequest> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_ascii_lowercase()),
        }
    }
    assert!(head[0].starts_with("post /v1/traces "), "{head:?}");
    let length = head.iter().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
    stream.get_mut().write_all(answer.as_bytes()).ok()?;
    Some(ExportTraceServiceRequest::decode(&body[..]).unwrap())
}

fn started(data: &Path, environment: &[(&str, &str)]) -> Server {
    let data = data.to_str().unwrap();
    let mut command = riverlog(&[
        "serve",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ]);
    command.envs(environment.iter().copied());
    Server::spawned(command)
}

fn get(at: &str, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_call_is_a_span_within_the_trace_of_its_caller() {
    let (collector, spans) = collector();
    let folder = tempfile::tempdir().unwrap();
    let server = started(
        folder.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ],
    );
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("traceparent: 00-{trace}-b7ad6b7169203331-01\r\n");
    let answer = get(&server.http, "/v1/topics/nowhere", &parent);
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    // Health isn't traced.
    get(&server.http, "/livez", &parent);
    let (service, span) = spans.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(service.contains("riverlog"), "{service}");
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    assert_eq!(span.name, "topic");
    assert_eq!(hex(&span.trace_id), trace);
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    let attribute = |key: &str| {
        let found = span.attributes.iter().find(|a| a.key == key);
        format!("{:?}", found.unwrap().value)
    };
    assert!(attribute("http.response.status_code").contains("404"));
    assert!(attribute("url.path").contains("/v1/topics/nowhere"));
    // The answer names the span.
    let named = format!("traceparent: 00-{trace}-{}-01", hex(&span.span_id));
    assert!(answer.contains(&named), "{named}\n{answer}");
    // What waits at a stop is sent. A caller without a trace begins one.
    get(&server.http, "/v1/topics", "");
    server.stop();
    let (_, last) = spans.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(last.parent_span_id.is_empty());
    assert!(spans.try_recv().is_err());
}

#[test]
fn a_collector_that_is_not_there_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(
        folder.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ],
    );
    for _ in 0..20 {
        assert!(get(&server.http, "/v1/topics", "").starts_with("HTTP/1.1 200"));
        std::thread::sleep(Duration::from_millis(10));
    }
    server.stop();
}
