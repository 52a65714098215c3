//! The console in the browser: files that `cargo xtask console` has built, carried in the binary.
//!
//! Each address of the console is the same page, which looks at its address itself. Where the console wasn't built (no Node), a plain
//! page says so.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use riverlog_wire::compression::{Compression, compress};

use super::http::plain;

/// A debug build reads them from the source tree instead, as they are then.
#[derive(rust_embed::Embed)]
#[folder = "../../console/dist"]
#[allow_missing = true]
struct Files;

/// Everything comes from here, and no text of a page is code: neither a record's value nor a topic's name can become some.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
);
/// The names of assets change with what is in them.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");
/// Smaller files aren't worth compressing.
const WORTH_COMPRESSING: usize = 1024;

const PAGE: &str = "index.html";

/// Whether this binary has its console.
pub(super) fn is_built() -> bool {
    Files::get(PAGE).is_some()
}

/// The page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    answer(PAGE, &headers).unwrap_or_else(not_built)
}

/// A file of the console; the page for every other address, since it is the page that knows them.
pub(super) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    let hidden = path.split('/').any(|part| part.starts_with('.'));
    if let Some(found) = answer(&path, &headers).filter(|_| !hidden) {
        return found;
    }
    if path.starts_with("assets/") {
        return (
            StatusCode::NOT_FOUND,
            "there is no such file; reload the page\n",
        )
            .into_response();
    }
    index(headers).await
}

fn answer(path: &str, headers: &HeaderMap) -> Option<Response> {
    let kind = match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    };
    let found = Files::get(path)?;
    let mut response = Response::default();
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    out.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    let keep = if path.starts_with("assets/") {
        FOR_EVER
    } else {
        ASK_AGAIN
    };
    out.insert(header::CACHE_CONTROL, keep);
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let accept = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|v| v.to_str().ok());
    let takes = accept.is_some_and(|accept| accept.split(',').any(|c| c.trim() == "gzip"));
    let mut bytes = found.data.into_owned();
    if takes && bytes.len() >= WORTH_COMPRESSING && !path.ends_with(".woff2") {
        let mut small = Vec::new();
        if compress(Compression::Gzip, &bytes, &mut small).is_ok() {
            bytes = small;
            out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    *response.body_mut() = bytes.into();
    Some(response)
}

fn not_built() -> Response {
    let text = "<!doctype html><html lang=en><meta charset=utf-8><title>Riverlog</title><link rel=stylesheet href=/style.css>\n\
         <h1>No console in this binary</h1>\n\
         <p>It was built from a source tree where the console wasn't. With Node 20.19 or newer:</p>\n\
         <pre>cargo xtask console\ncargo build --release</pre>\n\
         <p>What it would show is at <a href=/v1/topics>/v1</a>, and in <code>riverlog --help</code>.</p>\n";
    let mut response = plain(text.to_owned());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_console_is_not_given_out() {
        let none = HeaderMap::new();
        for path in [".gitignore", "", "index", "../Cargo.toml", "no/such.js"] {
            assert!(answer(path, &none).is_none(), "{path}");
        }
    }

    #[test]
    fn a_binary_without_a_console_says_how_to_get_one() {
        let response = not_built();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let policy = response.headers().get(header::CONTENT_SECURITY_POLICY);
        assert!(policy.is_some_and(|p| p.to_str().is_ok_and(|p| !p.contains("script"))));
    }
}
