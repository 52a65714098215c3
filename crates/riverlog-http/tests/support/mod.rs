//! A door in memory, and requests to it.

#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt;
use riverlog_host::Driver;
use riverlog_http::{HttpDoor, HttpSettings};
use riverlog_log::disk::MemoryDisk;
use riverlog_node::NodeSettings;
use serde_json::Value;

pub struct World {
    pub door: Arc<HttpDoor>,
    pub driver: Arc<Driver>,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    #[track_caller]
    pub fn is(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
    #[track_caller]
    pub fn problem(self, status: u16, slug: &str) -> Value {
        let kind = self.header("content-type").to_owned();
        let problem = self.is(status).json();
        assert_eq!(kind, "application/problem+json");
        assert_eq!(problem["type"], format!("urn:riverlog:problem:{slug}"));
        assert_eq!(problem["status"], status);
        problem
    }
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl World {
    pub fn new() -> World {
        World::with(HttpSettings::default())
    }

    pub fn with(settings: HttpSettings) -> World {
        let mut node = NodeSettings::default();
        let cache = ("riverlog.durability".to_owned(), "page-cache".to_owned());
        node.configs.extend([cache]);
        World::on(node, settings)
    }

    pub fn on(node: NodeSettings, settings: HttpSettings) -> World {
        let driver = Driver::start(Arc::new(MemoryDisk::default()), node, 1).unwrap();
        let clock = Arc::clone(&driver);
        let door = HttpDoor::new(Arc::clone(&driver.node), move || clock.now(), settings);
        World { door, driver }
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.door.answer(request.body(body.into()).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send("GET", path, &[("accept", accept)], "").await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(
            "POST",
            path,
            &[("content-type", "application/json")],
            body.to_owned(),
        )
        .await
    }

    pub async fn topic(&self, name: &str, partitions: i32) {
        let body = format!("{{\"name\":\"{name}\",\"partitions\":{partitions}}}");
        self.post("/v1/topics", &body).await.is(201);
    }

    /// Publishes a record for each value to partition 0.
    pub async fn values(&self, topic: &str, values: &[&str]) {
        let records: Vec<String> = values
            .iter()
            .map(|value| format!("{{\"value\":\"{value}\"}}"))
            .collect();
        let body = format!("{{\"records\":[{}]}}", records.join(","));
        let path = format!("/v1/topics/{topic}/partitions/0/records");
        self.post(&path, &body).await.is(200);
    }
}
