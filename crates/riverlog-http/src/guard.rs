//! Who may ask: the door is closed to pages of other sites, also where nobody has to say who they are.
//!
//! - Host: on loopback only this machine's own names, and those that are listed (DNS rebinding).
//! - Origin and Sec-Fetch-Site: a page of another site gets nothing, unless its origin is listed (CORS).
//! - Writes from a browser need the header `Riverlog-Client`, which a form can't send and a page of another site only after
//!   a question that is answered no.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
};

use crate::door::HttpSettings;
use crate::problem::Problem;

/// The header that a browser's writes need.
const CLIENT: &str = "riverlog-client";
/// How a browser says where a request came from.
const SITE: &str = "sec-fetch-site";
/// How long a browser may remember the answer to its question.
const PREFLIGHT_SECONDS: &str = "600";

/// What a page of a listed origin may send and see.
const CORS_METHODS: &str = "GET, HEAD, POST, PATCH, DELETE";
const CORS_REQUEST: &str = "accept, content-type, content-encoding, idempotency-key, if-riverlog-next-offset, last-event-id, \
    riverlog-client, riverlog-producer-id, riverlog-producer-epoch, riverlog-sequence, riverlog-transactional-id, \
    riverlog-key, riverlog-timestamp, riverlog-partition, riverlog-tombstone";
const CORS_ANSWER: &str = "idempotency-replayed, link, location, retry-after, riverlog-request-id, riverlog-offset, \
    riverlog-next-offset, riverlog-timestamp, riverlog-key, riverlog-tombstone, riverlog-high-watermark";

/// Looks at a request before anybody else does. `Some` is the answer: it goes no further.
pub fn guard<B>(settings: &HttpSettings, request: &Request<B>) -> Option<Response<Body>> {
    match check(settings, request) {
        Ok(None) => None,
        Ok(Some(preflight)) => Some(preflight),
        Err(problem) => Some(problem.into_response()),
    }
}

/// Adds what every answer carries: nothing of ours runs, is framed, or is guessed to be of another type.
pub fn secure(
    settings: &HttpSettings,
    origin: Option<&HeaderValue>,
    response: &mut Response<Body>,
) {
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &'static str| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    put(
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    );
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::REFERRER_POLICY, "no-referrer");
    put(header::CACHE_CONTROL, "no-store");
    put(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    let listed = origin.filter(|origin| is_listed(settings, origin));
    if let Some(origin) = listed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(CORS_ANSWER),
        );
        headers.insert(
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("cross-origin"),
        );
    }
    if !settings.origins.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}

fn check<B>(
    settings: &HttpSettings,
    request: &Request<B>,
) -> Result<Option<Response<Body>>, Problem> {
    let headers = request.headers();
    let host = host_of(request);
    if settings.loopback && !is_local(host) && !settings.hosts.iter().any(|h| names(h, host)) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong-host",
            "this listener answers to its own names only",
            format!("the header Host is {host:?}, which isn't this machine's"),
        )
        .hint("ask for localhost, or list the name in riverlog.http.hosts"));
    }
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let listed = headers
        .get(header::ORIGIN)
        .is_some_and(|origin| is_listed(settings, origin));
    if listed && request.method() == Method::OPTIONS {
        return Ok(Some(preflight(headers)));
    }
    if !listed && is_foreign(headers, host, safe) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "foreign-origin",
            "pages of other sites may not use this door",
            format!(
                "the request comes from {:?}",
                text(headers, header::ORIGIN.as_str())
                    .or(text(headers, SITE))
                    .unwrap_or_default()
            ),
        )
        .hint("list the page's origin in riverlog.http.cors.origins"));
    }
    let from_browser = headers.contains_key(header::ORIGIN) || headers.contains_key(SITE);
    if from_browser && !safe && !headers.contains_key(CLIENT) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "client-header-missing",
            "a browser's writes need a header of their own",
            "the header Riverlog-Client is missing",
        )
        .hint("send the header Riverlog-Client with any value"));
    }
    // A search is asked with a body and changes nothing.
    let looks = safe || request.uri().path().ends_with("/search");
    if settings.read_only && from_browser && !looks {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "read-only",
            "browsers change nothing here",
            "riverlog.console.read.only is set on this broker",
        )
        .hint("use a Kafka client, the command line, or HTTP from a program"));
    }
    Ok(None)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Of the header, or (HTTP/2) of the address.
fn host_of<B>(request: &Request<B>) -> &str {
    let header = text(request.headers(), header::HOST.as_str());
    let authority = request.uri().authority().map(|a| a.as_str());
    header.or(authority).unwrap_or_default()
}

/// Without the port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether a listed name is the one of a Host header.
fn names(listed: &str, host: &str) -> bool {
    listed.eq_ignore_ascii_case(host) || listed.eq_ignore_ascii_case(name_of(host))
}

/// Whether a Host header names this machine itself.
fn is_local(host: &str) -> bool {
    let name = name_of(host);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_listed(settings: &HttpSettings, origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    settings
        .origins
        .iter()
        .any(|listed| listed.eq_ignore_ascii_case(origin))
}

/// Whether a page of another site is behind the request. Following a link to a page of ours is no harm.
fn is_foreign(headers: &HeaderMap, host: &str, safe: bool) -> bool {
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map(|(_, rest)| rest);
        return !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host));
    }
    let navigates = safe && text(headers, "sec-fetch-mode") == Some("navigate");
    match text(headers, SITE) {
        None | Some("same-origin" | "none") => false,
        Some(_) => !navigates,
    }
}

fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let out = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, CORS_METHODS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS),
    ] {
        out.insert(name, HeaderValue::from_static(value));
    }
    // Headers of records have names of the client's choice.
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let ours = asked.and_then(|v| v.to_str().ok()).filter(|asked| {
        asked
            .split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .all(|name| {
                name.starts_with("riverlog-header-")
                    || CORS_REQUEST.split(", ").any(|n| n.trim() == name)
            })
    });
    let allowed = ours.and_then(|names| HeaderValue::from_str(names).ok());
    out.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        allowed.unwrap_or(HeaderValue::from_static(CORS_REQUEST)),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(settings: &HttpSettings, method: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri("/v1/topics");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        guard(settings, &request).map(|response| response.status().as_u16())
    }

    #[test]
    fn only_this_machines_names_are_answered_on_loopback() {
        let mut settings = HttpSettings::default();
        for host in [
            "localhost",
            "localhost:8082",
            "127.0.0.1:8082",
            "[::1]:8082",
            "LOCALHOST",
        ] {
            assert_eq!(status(&settings, "GET", &[("host", host)]), None, "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8082",
            "127.0.0.1.evil.example",
            "10.0.0.1",
        ] {
            assert_eq!(
                status(&settings, "GET", &[("host", host)]),
                Some(421),
                "{host}"
            );
        }
        settings.hosts = vec!["log.example".to_owned()];
        assert_eq!(
            status(&settings, "GET", &[("host", "log.example:80")]),
            None
        );
        settings.loopback = false;
        assert_eq!(status(&settings, "GET", &[("host", "10.0.0.1")]), None);
    }

    #[test]
    fn pages_of_other_sites_get_nothing_unless_they_are_listed() {
        let mut settings = HttpSettings::default();
        let host = ("host", "localhost:8082");
        let evil = ("origin", "https://evil.example");
        assert_eq!(status(&settings, "GET", &[host, evil]), Some(403));
        assert_eq!(status(&settings, "OPTIONS", &[host, evil]), Some(403));
        assert_eq!(
            status(
                &settings,
                "GET",
                &[host, ("origin", "http://localhost:9999")]
            ),
            Some(403)
        );
        assert_eq!(
            status(&settings, "POST", &[host, ("origin", "null")]),
            Some(403)
        );
        for site in ["cross-site", "same-site"] {
            let site = ("sec-fetch-site", site);
            assert_eq!(status(&settings, "GET", &[host, site]), Some(403));
            let navigates = ("sec-fetch-mode", "navigate");
            assert_eq!(status(&settings, "GET", &[host, site, navigates]), None);
            assert_eq!(
                status(&settings, "POST", &[host, site, navigates]),
                Some(403)
            );
        }
        settings.origins = vec!["https://evil.example".to_owned()];
        assert_eq!(status(&settings, "GET", &[host, evil]), None);
        assert_eq!(status(&settings, "OPTIONS", &[host, evil]), Some(204));
        assert_eq!(status(&settings, "POST", &[host, evil]), Some(403));
        assert_eq!(
            status(&settings, "POST", &[host, evil, ("riverlog-client", "x")]),
            None
        );
    }

    #[test]
    fn a_browsers_writes_need_a_header_that_forms_cannot_send() {
        let settings = HttpSettings::default();
        let host = ("host", "localhost:8082");
        let own = ("origin", "http://localhost:8082");
        assert_eq!(status(&settings, "GET", &[host, own]), None);
        assert_eq!(status(&settings, "POST", &[host, own]), Some(403));
        let same = ("sec-fetch-site", "same-origin");
        assert_eq!(status(&settings, "DELETE", &[host, same]), Some(403));
        assert_eq!(
            status(
                &settings,
                "POST",
                &[host, own, same, ("riverlog-client", "console")]
            ),
            None
        );
        // curl says nothing of all this.
        assert_eq!(status(&settings, "POST", &[host]), None);
    }

    #[test]
    fn where_browsers_may_only_look_they_can_still_search() {
        let settings = HttpSettings {
            read_only: true,
            ..HttpSettings::default()
        };
        let ask = |path: &str, from_browser: bool| {
            let mut request = Request::builder().method("POST").uri(path);
            request = request.header("host", "localhost");
            if from_browser {
                request = request.header("sec-fetch-site", "same-origin");
                request = request.header("riverlog-client", "console");
            }
            let refused = guard(&settings, &request.body(()).unwrap());
            refused.map(|response| response.status().as_u16())
        };
        assert_eq!(ask("/v1/topics", true), Some(403));
        assert_eq!(ask("/v1/topics/t/search", true), None);
        assert_eq!(ask("/v1/topics", false), None);
    }
}
