//! A node in memory behind the Kafka door, on virtual time: what the checks call a broker.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use riverlog_api::kafka::{Close, KafkaDoor, KafkaSettings, Part, Peer, Session};
use riverlog_checks::{Broker, Connection, Received};
use riverlog_log::Slice;
use riverlog_log::disk::MemoryDisk;
use riverlog_node::harness::Harness;
use riverlog_node::{Node, NodeSettings};
use riverlog_wire::frame;

const LISTENER: &str = "PLAINTEXT";

/// A node in memory with its door.
pub(crate) struct InMemory {
    disk: Arc<MemoryDisk>,
    host: Rc<RefCell<Harness>>,
    door: Arc<KafkaDoor>,
}

impl InMemory {
    /// A new node on an empty disk.
    pub(crate) fn new() -> InMemory {
        InMemory::with(KafkaSettings::default())
    }
    /// A new node on an empty disk, with other settings of the door.
    pub(crate) fn with(settings: KafkaSettings) -> InMemory {
        let disk = Arc::new(MemoryDisk::new());
        let host = Harness::open(disk.clone(), node_settings(), 1).expect("a new node starts");
        InMemory::behind(disk, host, settings)
    }
    /// Stops the node and starts it again on the same disk. Its connections must be gone.
    #[allow(dead_code)]
    pub(crate) fn restart(self) -> InMemory {
        let settings = self.door.settings.clone();
        let now = self.host.borrow().now();
        drop(self.door);
        let host = Rc::into_inner(self.host).expect("no connection is open");
        host.into_inner().close().expect("a clean stop");
        let host = Harness::open_at(self.disk.clone(), node_settings(), 2, now);
        InMemory::behind(self.disk, host.expect("the node starts again"), settings)
    }
    /// The node, for as long as there is one.
    #[allow(dead_code)]
    pub(crate) fn node(&self) -> Weak<Node> {
        Arc::downgrade(&self.door.node)
    }
    fn behind(disk: Arc<MemoryDisk>, host: Harness, settings: KafkaSettings) -> InMemory {
        let door = KafkaDoor::new(Arc::clone(host.node()), settings);
        InMemory {
            disk,
            host: Rc::new(RefCell::new(host)),
            door,
        }
    }
    /// A connection, with what the door itself gives.
    pub(crate) fn open(&self) -> InMemoryConnection {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);
        let session = Session::new(Arc::clone(&self.door), Peer { address }, || {});
        InMemoryConnection {
            host: Rc::clone(&self.host),
            session,
            max_frame_bytes: self.door.settings.max_frame_bytes,
            arrived: BytesMut::new(),
            answered: BytesMut::new(),
            closed: None,
        }
    }
}

fn node_settings() -> NodeSettings {
    NodeSettings {
        listeners: vec![(LISTENER.to_owned(), "broker.test".to_owned(), 9092)],
        ..NodeSettings::default()
    }
}

impl Broker for InMemory {
    fn connect(&mut self) -> Result<Box<dyn Connection>, String> {
        Ok(Box::new(self.open()))
    }
    fn pass(&mut self, time: Duration) {
        self.host.borrow_mut().advance(time);
    }
    fn clock(&self) -> Duration {
        self.host.borrow().now().mono
    }
    fn wall_ms(&self) -> i64 {
        self.host.borrow().now().wall_ms
    }
}

/// A connection: frames are cut as the server cuts them, jobs run when somebody waits.
pub(crate) struct InMemoryConnection {
    host: Rc<RefCell<Harness>>,
    session: Session,
    max_frame_bytes: usize,
    arrived: BytesMut,
    answered: BytesMut,
    closed: Option<String>,
}

impl InMemoryConnection {
    /// Why the door ended it.
    #[allow(dead_code)]
    pub(crate) fn closed(&self) -> Option<&str> {
        self.closed.as_deref()
    }

    /// Whether the host should stop reading from it.
    #[allow(dead_code)]
    pub(crate) fn is_busy(&self) -> bool {
        self.session.is_busy()
    }

    /// Takes what is answered already.
    fn collect(&mut self) -> Option<Bytes> {
        let mut parts = Vec::new();
        if let Err(close) = self.session.take(&mut parts) {
            self.end(close);
        }
        for part in &parts {
            self.write(part);
        }
        frame::split_frame(&mut self.answered, i32::MAX as usize)
            .expect("the door's own frames have lengths")
    }

    fn write(&mut self, part: &Part) {
        match part {
            Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) => {
                self.answered.extend_from_slice(bytes);
            }
            Part::Records(Slice::File { file, at, len }) => {
                let mut bytes = vec![0; *len];
                let read = file.read_at(&mut bytes, *at).expect("a verified range");
                assert_eq!(read, *len, "a verified range is all there");
                self.answered.extend_from_slice(&bytes);
            }
        }
    }

    fn end(&mut self, close: Close) {
        self.closed.get_or_insert(close.reason);
    }
}

impl Connection for InMemoryConnection {
    fn send(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
        while self.closed.is_none() {
            match frame::split_frame(&mut self.arrived, self.max_frame_bytes) {
                Ok(Some(frame)) => {
                    let now = self.host.borrow().now();
                    if let Err(close) = self.session.on_frame(&frame, now) {
                        self.end(close);
                    }
                }
                Ok(None) => break,
                Err(error) => self.closed = Some(error.to_string()),
            }
        }
    }

    fn receive(&mut self, within: Duration) -> Received {
        let until = self.host.borrow().now().mono + within;
        loop {
            self.host.borrow_mut().run();
            if let Some(frame) = self.collect() {
                return Received::Frame(frame);
            }
            if self.closed.is_some() {
                return Received::Closed;
            }
            let mut host = self.host.borrow_mut();
            let now = host.now().mono;
            if now >= until {
                return Received::Nothing;
            }
            let next = host.node().next_deadline().unwrap_or(until).min(until);
            host.advance(next.saturating_sub(now).max(Duration::from_micros(1)));
        }
    }
}
