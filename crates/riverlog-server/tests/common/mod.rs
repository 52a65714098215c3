//! A real server in a temporary folder, and the commands around it.

#![allow(dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running server.
pub struct Server {
    pub child: Child,
    pub kafka: String,
    pub http: String,
    pub log: Option<std::thread::JoinHandle<String>>,
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
        let data = data.to_str().unwrap();
        let mut args = vec![
            "serve",
            "--data",
            data,
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ];
        args.extend(["--log-format", "json"]);
        args.extend(more);
        let mut child = riverlog(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut kafka, mut http, mut log) = (String::new(), String::new(), String::new());
        for line in lines.by_ref() {
            let line = line.unwrap();
            log += &line;
            log.push('\n');
            let after = |what: &str| Some(line.split_once(what)?.1.split('"').next()?.to_owned());
            kafka = after("\"Kafka at ").unwrap_or(kafka);
            http = after("\"HTTP at http://").unwrap_or(http);
            if line.contains("\"message\":\"ready\"") {
                break;
            }
        }
        assert!(!kafka.is_empty(), "it didn't start:\n{log}");
        let log = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                log += &line;
                log.push('\n');
            }
            log
        });
        Server {
            child,
            kafka,
            http,
            log: Some(log),
        }
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

    /// As a power cut for the process.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
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
