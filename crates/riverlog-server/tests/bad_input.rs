//! What goes wrong around a broker: folders that can't be used, no descriptors, no room, clients that stall, impatience at a stop.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, answer_to, ask, eventually, http, riverlog, run_with, signal, wait};
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::frame;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{FetchRequest, ProduceRequest, Request};

/// The words that start a broker on a free port.
fn serve(data: &Path) -> [&str; 7] {
    let data = data.to_str().unwrap();
    [
        "serve",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--http",
        "none",
    ]
}

/// Starts a broker that must not start; its exit code and what it says.
fn refused(data: &Path) -> (Option<i32>, String) {
    let output = run_with(&serve(data), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

fn request<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_request(&mut out, version, 7, Some("test"), request).unwrap();
    out
}

/// A fetch of topic `t`, which is empty or asks for much.
fn fetch(wait_ms: i32, min_bytes: i32) -> Vec<u8> {
    let partition = FetchPartition {
        partition: 0,
        partition_max_bytes: 50 << 20,
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        topic: "t".to_owned(),
        partitions: vec![partition],
        ..FetchTopic::default()
    };
    let fetch = FetchRequest {
        replica_id: -1,
        max_wait_ms: wait_ms,
        min_bytes,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    request(11, &fetch)
}

/// Resident memory of a process, MiB.
fn resident(server: &Server) -> u64 {
    let status = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib >> 10
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_folder_of_a_newer_release_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    server.stop();
    let format = folder.path().join("format");
    let before = std::fs::read(&format).unwrap();
    std::fs::write(&format, "riverlog format 7\nanything\ncrc32c 527ad6a6\n").unwrap();
    let (code, said) = refused(folder.path());
    assert_eq!(code, Some(6), "{said}");
    assert!(
        said.contains("format 7") && said.contains("start a newer release"),
        "{said}"
    );
    std::fs::write(&format, before).unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.ok(&["topic", "list", "-o", "name"]), "t\n");
    server.stop();
}

#[test]
fn a_folder_of_somebody_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("meta.properties"), "version=1\n").unwrap();
    let (code, said) = refused(folder.path());
    assert_eq!(code, Some(6), "{said}");
    assert!(
        said.contains("meta.properties") && said.contains("--data"),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn another_node_id_is_refused_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "node.id=5"]);
    server.ok_with(&["produce", "t"], "kept\n");
    server.stop();
    let (code, said) = refused(folder.path());
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("node.id=5"), "{said}");
    let server = Server::start(folder.path(), &["--set", "node.id=5"]);
    assert_eq!(server.ok(&["consume", "t", "-e"]), "kept\n");
    server.stop();
}

#[test]
fn a_lock_that_is_a_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lock")).unwrap();
    let (code, said) = refused(folder.path());
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("\"lock\" in it is a folder"), "{said}");
}

#[test]
fn a_folder_without_permission_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let mut mode = std::fs::metadata(&data).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o500);
    std::fs::set_permissions(&data, mode).unwrap();
    let mut command = riverlog(&serve(&data));
    if is_root() {
        // For whom nothing is forbidden.
        command.uid(65_534);
    }
    let output = match command.stderr(Stdio::piped()).output() {
        Ok(output) => output,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            eprintln!("not tried: another user may not run {command:?}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.contains("may not read or write it") && said.contains("chown"),
        "{said}"
    );
}

#[test]
fn a_second_signal_ends_it_at_once_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[]);
    server.ok_with(&["produce", "t"], "a\nb\n");
    // Something is under way, which a stop waits for.
    let mut stream = TcpStream::connect(&server.kafka).unwrap();
    stream.write_all(&fetch(30_000, 1 << 20)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    signal(&server.child, "TERM");
    std::thread::sleep(Duration::from_millis(100));
    signal(&server.child, "TERM");
    assert_eq!(wait(&mut server.child), Some(130));
    let log = server.log.take().unwrap().join().unwrap();
    assert!(log.contains("a second signal ends it at once"), "{log}");
    assert!(!log.contains("\"stopped\""), "{log}");
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.ok(&["consume", "t", "-e"]), "a\nb\n");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn without_descriptors_connections_wait_and_files_can_still_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut command = Command::new("sh");
    let serve = format!(
        "ulimit -n 120; exec {} serve --data {data} --listen 127.0.0.1:0 --http 127.0.0.1:0 --log-format json",
        env!("CARGO_BIN_EXE_riverlog")
    );
    command.args(["-c", &serve]);
    let server = Server::spawned(command);
    server.ok(&["topic", "create", "t", "-p", "3"]);
    let held: Vec<TcpStream> = (0..150)
        .map(|_| TcpStream::connect(&server.kafka).unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    // Those that came first are served, whatever files that takes.
    let mut first = &held[0];
    first
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    first.write_all(&fetch(0, 0)).unwrap();
    let mut length = [0; 4];
    first.read_exact(&mut length).unwrap();
    drop(held);
    assert!(eventually(|| {
        server
            .run_with(&["produce", "t", "-p", "2"], "x\n")
            .status
            .success()
    }));
    assert_eq!(server.ok(&["consume", "t", "-e"]).lines().next(), Some("x"));
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("raise the limit of open files"), "{log}");
}

#[test]
fn clients_that_stall_hold_little_memory_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let bound = "riverlog.receive.memory.bytes=8388608";
    let server = Server::start(folder.path(), &["--set", bound]);
    server.ok(&["topic", "create", "t"]);
    let record = "v".repeat(100_000);
    let records: String = (0..300).map(|_| format!("{record}\n")).collect();
    server.ok_with(&["produce", "t"], &records);
    let before = resident(&server);
    // Announces 50 MiB, sends what is taken, and stops in the middle.
    let mut stalled = Vec::new();
    for _ in 0..60 {
        let mut stream = TcpStream::connect(&server.kafka).unwrap();
        stream.write_all(&(50_i32 << 20).to_be_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let piece = [0; 64 << 10];
        let mut sent = 0;
        while sent < 4 << 20 {
            match stream.write(&piece) {
                Ok(n) => sent += n,
                Err(_) => break,
            }
        }
        stalled.push(stream);
    }
    // Asks for 30 MB each, and reads nothing of it.
    for _ in 0..60 {
        let mut stream = TcpStream::connect(&server.kafka).unwrap();
        stream.write_all(&fetch(0, 1)).unwrap();
        stalled.push(stream);
    }
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    assert_eq!(server.ok(&["consume", "t", "-n", "3"]).lines().count(), 3);
    server.ok_with(&["produce", "t"], "goes on\n");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    let after = resident(&server);
    assert!(after < before + 150, "{before} MiB, then {after} MiB");
    let metrics = http(&server.http, "/metrics", "localhost").1;
    let held = metrics
        .lines()
        .find_map(|l| l.strip_prefix("riverlog_receive_bytes_held "))
        .unwrap();
    // One frame may pass the bound, so that there is always progress.
    assert!(held.parse::<f64>().unwrap() < f64::from(64 << 20), "{held}");
    drop(stalled);
    assert_eq!(server.stop().0, Some(0));
}

/// As many connections as the system grants this process, up to 12,000; the server has the same limit, of 20,000 open files say.
#[test]
fn thousands_of_connections_cost_little_and_leave_the_log_its_files() {
    let granted = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let count = granted.unwrap_or(u64::MAX).saturating_sub(500).min(12_000);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "50"]);
    let before = resident(&server);
    let held: Vec<TcpStream> = (0..count)
        .map(|_| TcpStream::connect(&server.kafka).unwrap())
        .collect();
    let start = Instant::now();
    for partition in 0..50 {
        server.ok_with(&["produce", "t", "-p", &partition.to_string()], "x\n");
    }
    assert_eq!(server.ok(&["consume", "t", "-e"]).lines().count(), 50);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    let each = (resident(&server) - before) * 1024 / count.max(1);
    assert!(each < 32, "{each} KiB a connection");
    drop(held);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn a_client_that_was_told_to_slow_down_is_not_read_from_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let full = ["riverlog.max.records=1", "riverlog.when.full=block"];
    server.ok(&["topic", "create", "t", "-c", full[0], "-c", full[1]]);
    server.ok_with(&["produce", "t"], "x\n");
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(1, None, Some(b"y"), &[]);
    let produce = ProduceRequest {
        acks: -1,
        timeout_ms: 1,
        topic_data: vec![TopicProduceData {
            name: "t".to_owned(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(batch.build().into()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let answer = ask(&server.kafka, 12, &produce);
    let pause = Duration::from_millis(answer.throttle_time_ms.try_into().unwrap());
    assert!(pause >= Duration::from_millis(100), "{answer:?}");
    // The same again, and another request behind it once it is answered.
    let mut stream = TcpStream::connect(&server.kafka).unwrap();
    let timeout = Some(Duration::from_secs(30));
    stream.set_read_timeout(timeout).unwrap();
    let mut answered = |bytes: &[u8]| {
        stream.write_all(bytes).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body).unwrap();
        Instant::now()
    };
    let told = answered(&request(12, &produce));
    let next = answered(&fetch(0, 0));
    assert!(next - told >= pause * 9 / 10, "{:?}", next - told);
    // And with it the pause is over.
    let start = Instant::now();
    for _ in 0..20 {
        answered(&fetch(0, 0));
    }
    assert!(start.elapsed() < pause * 20, "{:?}", start.elapsed());
    assert_eq!(server.stop().0, Some(0));
}

/// A small file system in memory, while it lives.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` where this user may not mount.
    fn mount(megabytes: u32) -> Option<Small> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let path = folder.path().to_str().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs", path])
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Small(folder));
        }
        eprintln!("NOT TRIED: this user may not mount a small file system (root may)");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // What is still used is unmounted with its last user.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_whole_things_and_is_said_once() {
    let Some(small) = Small::mount(32) else {
        return;
    };
    let data = small.0.path().join("data");
    let server = Server::start(&data, &[]);
    // There is room for a topic and its records on so small a disk.
    server.ok(&["topic", "create", "t", "-c", "segment.bytes=1048576"]);
    server.ok_with(&["produce", "t"], "kept\n");
    let fill = "f".repeat(1_000_000);
    let records: String = (0..40).map(|_| format!("{fill}\n")).collect();
    let args = ["produce", "t", "--delivery-timeout", "2s"];
    let output = server.run_with(&args, &records);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("KAFKA_STORAGE_ERROR") && said.contains("disk is full"),
        "{said}"
    );
    assert!(said.contains("make room"), "{said}");
    for args in [
        &["topic", "create", "u", "-p", "3"][..],
        &["topic", "add-partitions", "t", "--to", "3", "--yes"],
    ] {
        let output = server.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?} {said}");
        assert!(said.contains("disk failed or is full"), "{said}");
    }
    assert_eq!(server.ok(&["topic", "list"]), "t\t1\t1\n");
    assert_eq!(server.ok(&["consume", "t", "-n", "1"]), "kept\n");
    assert_eq!(http(&server.http, "/readyz", "localhost").0, 503);
    let log = server.stop().1;
    assert_eq!(log.matches("the disk is full").count(), 1, "{log}");

    // It starts on a full disk, and what was refused was not made later.
    let server = Server::start(&data, &[]);
    assert_eq!(server.ok(&["consume", "t", "-n", "1"]), "kept\n");
    assert_eq!(server.ok(&["topic", "list"]), "t\t1\t1\n");
    let output = server.run_with(&args, "refused\n");
    assert!(!output.status.success(), "{output:?}");
    // Room again, and no restart.
    server.ok(&["topic", "delete", "t", "--yes"]);
    assert!(eventually(|| server
        .run(&["topic", "create", "u"])
        .status
        .success()));
    server.ok_with(&["produce", "u"], "again\n");
    assert_eq!(server.ok(&["consume", "u", "-e"]), "again\n");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("the disk has room again").count(), 1, "{log}");
}

#[test]
fn an_advertised_address_that_leads_nowhere_is_said_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let advertised = "advertised.listeners=PLAINTEXT://no.such.host.invalid:9092";
    let server = Server::start(folder.path(), &["--set", advertised]);
    std::thread::sleep(Duration::from_secs(1));
    let (_, log) = server.stop();
    let warning = log.lines().find(|l| l.contains("set advertised.listeners"));
    let warning = warning.unwrap_or_else(|| panic!("{log}"));
    assert!(
        warning.contains("no.such.host.invalid") && warning.contains("resolve"),
        "{warning}"
    );
}

#[test]
fn rows_stay_rows_whatever_groups_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok_with(&["produce", "t"], "x\n");
    for group in ["a\nb", "%2F", "x#y", "\u{1f980}"] {
        server.ok(&["consume", "t", "--group", group, "-e"]);
    }
    let listed = server.ok(&["group", "list", "-o", "name"]);
    assert_eq!(listed, "%2F\na\\nb\nx#y\n\u{1f980}\n");
    server.ok(&["group", "delete", "a\nb", "--yes"]);
    let long = "g".repeat(40_000);
    let output = server.run(&["consume", "t", "--group", &long, "-e"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}",
        &said[..200.min(said.len())]
    );
    assert!(
        said.contains("40000 bytes"),
        "{}",
        &said[..200.min(said.len())]
    );
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_client_that_sends_faster_than_the_disk_takes_it_is_slowed_down_and_refused_nothing() {
    const SENT: usize = 80;
    let folder = tempfile::tempdir().unwrap();
    let least = ["--set", "riverlog.append.memory.bytes=1048576"];
    let server = Server::start(folder.path(), &least);
    server.ok(&["topic", "create", "t"]);
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(1, None, Some(&[7; 250_000]), &[]);
    let partition = PartitionProduceData {
        index: 0,
        records: Some(batch.build().into()),
    };
    let produce = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: "t".to_owned(),
            partition_data: vec![partition],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let frame = request(12, &produce);
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let mut reading = TcpStream::connect(&server.kafka).unwrap();
            reading
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let mut writing = reading.try_clone().unwrap();
            let frame = frame.clone();
            let writer = std::thread::spawn(move || {
                (0..SENT).for_each(|_| writing.write_all(&frame).unwrap());
            });
            std::thread::spawn(move || {
                for _ in 0..SENT {
                    let answer = answer_to::<ProduceRequest>(&mut reading, 12);
                    let partition = &answer.responses[0].partition_responses[0];
                    assert_eq!(partition.error_code, ErrorCode::NONE, "{answer:?}");
                }
                writer.join().unwrap();
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(
        server
            .ok(&["consume", "t", "-e", "-f", "%o\\n"])
            .lines()
            .count(),
        2 * SENT
    );
}
