//! HTTP/2 without TLS, for clients that begin with it.

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use common::Server;
use h2::client::SendRequest;
use hyper::{HeaderMap, Method, Request, StatusCode};
use tokio::net::TcpStream;

async fn connect(server: &Server) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.http.as_str()).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send
}

/// Sends a request; status, headers and the body's stream.
async fn send(
    client: &mut SendRequest<Bytes>,
    server: &Server,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(StatusCode, HeaderMap, h2::RecvStream), h2::Error> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{}{path}", server.http));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
    let (answer, mut stream) = client.send_request(request.body(()).unwrap(), body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
    }
    let (parts, body) = answer.await?.into_parts();
    Ok((parts.status, parts.headers, body))
}

async fn whole(mut body: h2::RecvStream) -> String {
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        text.extend_from_slice(&data);
    }
    String::from_utf8(text).unwrap()
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test(flavor = "multi_thread")]
async fn calls_share_a_connection_and_none_waits_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = connect(&server).await;
    let made = r#"{"name":"t","partitions":1}"#;
    let (status, ..) = send(&mut client, &server, Method::POST, "/v1/topics", JSON, made)
        .await
        .unwrap();
    assert_eq!(status, 201);
    // Waits for a record that comes by another stream of the same connection.
    let path = "/v1/topics/t/partitions/0?offset=0&wait_ms=30000";
    let mut other = client.clone();
    let (waited, stored) = tokio::join!(
        async {
            let (status, _, body) = send(&mut client, &server, Method::GET, path, &[], "").await?;
            Ok::<_, h2::Error>((status, whole(body).await))
        },
        async {
            let body = r#"{"records":[{"key":"k","value":"second"}]}"#;
            let path = "/v1/topics/t/records";
            let (status, _, body) =
                send(&mut other, &server, Method::POST, path, JSON, body).await?;
            Ok::<_, h2::Error>((status, whole(body).await))
        }
    );
    let (status, body) = stored.unwrap();
    assert_eq!(status, 200, "{body}");
    let (status, body) = waited.unwrap();
    assert_eq!(status, 200, "{body}");
    assert!(body.contains(r#""value":"second""#), "{body}");
    // A large body passes through windows that are smaller.
    let large = "x".repeat(3 << 20);
    let headers = [("content-type", "application/octet-stream")];
    let path = "/v1/topics/t/records";
    let (status, _, body) = send(&mut client, &server, Method::POST, path, &headers, &large)
        .await
        .unwrap();
    let body = whole(body).await;
    assert_eq!(status, 413, "larger than the topic takes: {body}");
    // A name that isn't this machine's is refused here as well.
    let mut request = Request::builder().uri("http://evil.example/v1/topics");
    request = request.method(Method::GET);
    let (answer, _) = client
        .send_request(request.body(()).unwrap(), true)
        .unwrap();
    assert_eq!(answer.await.unwrap().status(), 421);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_connection_may_ask_for_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = connect(&server).await;
    let large = "x".repeat(70 << 10);
    let headers = [("x-large", large.as_str())];
    let refused = send(&mut client, &server, Method::GET, "/livez", &headers, "").await;
    assert!(!refused.is_ok_and(|(status, ..)| status == 200));
    let mut client = connect(&server).await;
    let (status, ..) = send(&mut client, &server, Method::GET, "/livez", &[], "")
        .await
        .unwrap();
    assert_eq!(status, 200);
    // The settings of the server are known by now.
    assert_eq!(client.current_max_send_streams(), 100);
    // Nonsense behind the preface ends the connection, and nothing else.
    let at = server.http.clone();
    let said = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff")
            .unwrap();
        let mut said = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut said);
    })
    .await;
    assert!(said.is_ok());
    // Requests that are taken back at once, over and over: whoever does that may lose the connection, and others go on.
    let mut storm = connect(&server).await;
    for _ in 0..20_000 {
        if std::future::poll_fn(|cx| storm.poll_ready(cx))
            .await
            .is_err()
        {
            break;
        }
        let request = Request::builder().uri(format!("http://{}/v1/topics", server.http));
        match storm.send_request(request.body(()).unwrap(), true) {
            Ok((_, mut stream)) => stream.send_reset(h2::Reason::CANCEL),
            Err(_) => break,
        }
    }
    let (status, ..) = send(&mut client, &server, Method::GET, "/livez", &[], "")
        .await
        .unwrap();
    assert_eq!(status, 200);
}
