//! A real server in a temporary folder, and the commands around it.

#![allow(dead_code, unreachable_pub)]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::frame;
use riverlog_wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest, Request, Response,
};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running server.
pub struct Server {
    pub child: Child,
    pub kafka: String,
    pub http: String,
    pub log: Option<std::thread::JoinHandle<String>>,
    /// What it has said so far.
    said: Arc<Mutex<String>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; one that passed has waited for the end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary, free of what the caller's environment says.
pub fn riverlog(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_riverlog"));
    for (name, _) in std::env::vars() {
        if name.starts_with("RIVERLOG_") || name.starts_with("KAFKA_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1").args(args);
    command
}

impl Server {
    /// Starts one on free ports.
    pub fn start(data: &Path, more: &[&str]) -> Server {
        Server::start_at(data, "127.0.0.1:0", more)
    }

    /// Starts one for Kafka clients at an address: that of one which has been there before, say.
    pub fn start_at(data: &Path, kafka: &str, more: &[&str]) -> Server {
        let data = data.to_str().unwrap();
        let mut args = vec!["serve", "--data", data, "--listen", kafka];
        args.extend(["--http", "127.0.0.1:0", "--log-format", "json"]);
        args.extend(more);
        Server::spawned(riverlog(&args))
    }

    /// Waits until a command that is a server serves.
    pub fn spawned(mut command: Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut kafka, mut http) = (String::new(), String::new());
        let said = Arc::new(Mutex::new(String::new()));
        let keep = Arc::clone(&said);
        let keep = move |line: &str| {
            let mut said = keep.lock().unwrap();
            said.push_str(line);
            said.push('\n');
        };
        for line in lines.by_ref() {
            let line = line.unwrap();
            keep(&line);
            let after = |what: &str| Some(line.split_once(what)?.1.split('"').next()?.to_owned());
            kafka = after("\"Kafka at ").unwrap_or(kafka);
            http = after("\"HTTP at http://").unwrap_or(http);
            if line.contains("\"message\":\"ready\"") {
                break;
            }
        }
        assert!(
            !kafka.is_empty(),
            "it didn't start:\n{}",
            said.lock().unwrap()
        );
        let all = Arc::clone(&said);
        let log = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                keep(&line);
            }
            all.lock().unwrap().clone()
        });
        Server {
            child,
            kafka,
            http,
            log: Some(log),
            said,
        }
    }

    /// Whether it has said something by now.
    pub fn has_said(&self, words: &str) -> bool {
        self.said.lock().unwrap().contains(words)
    }

    /// Runs a command against it.
    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, "")
    }

    /// As [`Server::run`], with something on standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> Output {
        let mut all = vec!["-b", &self.kafka, "--timeout", "30s"];
        all.extend(args);
        run_with(&all, input)
    }

    /// Runs a command that must succeed; what it wrote.
    pub fn ok(&self, args: &[&str]) -> String {
        self.ok_with(args, "")
    }

    /// As [`Server::ok`], with something on standard input.
    pub fn ok_with(&self, args: &[&str], input: &str) -> String {
        let output = self.run_with(args, input);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{args:?}: {} {error}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Stops it by SIGTERM; its exit code and its log.
    pub fn stop(mut self) -> (Option<i32>, String) {
        signal(&self.child, "TERM");
        let status = wait(&mut self.child);
        (status, self.log.take().unwrap().join().unwrap())
    }

    /// Waits until it has ended by itself; its exit code and its log.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child);
        (status, self.log.take().unwrap().join().unwrap())
    }

    /// As a power cut for the process.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Asks a server's HTTP listener: status and body.
pub fn http(at: &str, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    (status, body)
}

/// Asks a broker in a version, over a connection of its own.
pub fn ask<R: Request>(at: &str, version: i16, request: &R) -> R::Response {
    try_ask(at, version, request, PATIENCE).unwrap()
}

/// As [`ask`], of a broker that may be gone, or go.
pub fn try_ask<R: Request>(
    at: &str,
    version: i16,
    request: &R,
    patience: Duration,
) -> io::Result<R::Response> {
    let mut stream = try_send(at, version, request, patience)?;
    try_answer::<R>(&mut stream, version)
}

/// Sends a request over a connection of its own, and waits for nothing.
pub fn send<R: Request>(at: &str, version: i16, request: &R) -> TcpStream {
    try_send(at, version, request, PATIENCE).unwrap()
}

fn try_send<R: Request>(
    at: &str,
    version: i16,
    request: &R,
    patience: Duration,
) -> io::Result<TcpStream> {
    let mut out = Vec::new();
    frame::encode_request(&mut out, version, 7, Some("test"), request).unwrap();
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&out)?;
    Ok(stream)
}

/// The answer to what was sent.
pub fn answer_to<R: Request>(stream: &mut TcpStream, version: i16) -> R::Response {
    try_answer::<R>(stream, version).unwrap()
}

/// The same from a broker that may be gone.
pub fn try_answer<R: Request>(stream: &mut TcpStream, version: i16) -> io::Result<R::Response> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut bytes)?;
    let bytes = bytes::Bytes::from(bytes);
    let mut reader = Reader::shared(&bytes);
    frame::ResponseHeader::decode(&mut reader, R::KEY, version).unwrap();
    Ok(R::Response::decode(&mut reader, version).unwrap())
}

/// A producer in its transaction.
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
}

/// Opens a transaction of `name` that has written one record to the first partition of `t`.
pub fn open_transaction(server: &Server, name: &str) -> Producer {
    let mut found = None;
    // The coordinator's topic is made on the way.
    let ready = eventually(|| {
        let init = InitProducerIdRequest {
            transactional_id: Some(name.to_owned()),
            transaction_timeout_ms: 600_000,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdRequest::default()
        };
        let answer = ask(&server.kafka, 4, &init);
        found = Some(Producer {
            id: answer.producer_id,
            epoch: answer.producer_epoch,
        });
        answer.error_code == ErrorCode::NONE
    });
    assert!(ready, "{name} is not initialised");
    let producer = found.unwrap();
    let add = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: name.to_owned(),
        v3_and_below_producer_id: producer.id,
        v3_and_below_producer_epoch: producer.epoch,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "t".to_owned(),
            partitions: vec![0],
        }],
        ..AddPartitionsToTxnRequest::default()
    };
    let added = ask(&server.kafka, 3, &add).results_by_topic_v3_and_below;
    assert_eq!(
        added[0].results_by_partition[0].partition_error_code,
        ErrorCode::NONE
    );
    let now = jiff::Timestamp::now().as_millisecond();
    let batch = BatchBuilder::new(Compression::None)
        .producer(
            ProducerId(producer.id),
            ProducerEpoch(producer.epoch),
            Sequence(0),
        )
        .transactional()
        .push(now, None, Some(name.as_bytes()), &[])
        .build();
    assert_eq!(produce(server, Some(name), "t", batch), ErrorCode::NONE);
    producer
}

/// Produces a batch to the first partition of a topic.
pub fn produce(
    server: &Server,
    transaction: Option<&str>,
    topic: &str,
    batch: Vec<u8>,
) -> ErrorCode {
    let produce = ProduceRequest {
        transactional_id: transaction.map(str::to_owned),
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(batch.into()),
            }],
            ..TopicProduceData::default()
        }],
    };
    ask(&server.kafka, 11, &produce).responses[0].partition_responses[0].error_code
}

/// The segments under a folder that hold something, the largest first.
pub fn segments(under: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|e| e == "log") {
            found.push(path);
        }
    }
    found.retain(|path| path.metadata().unwrap().len() > 0);
    found.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    found
}

/// Flips a bit of a file.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

/// Runs a command with something on standard input.
pub fn run_with(args: &[&str], input: &str) -> Output {
    let mut child = riverlog(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments doesn't read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let id = child.id().to_string();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let late = ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if late {
            // It may have ended just now.
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
        late
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    assert!(
        !watch.join().unwrap(),
        "{args:?} didn't end in time: {output:?}"
    );
    output
}

/// Sends a signal.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Waits for the end of a process; its exit code.
pub fn wait(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it didn't end in time");
}

/// Whether it becomes true in time.
pub fn eventually(mut what: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
