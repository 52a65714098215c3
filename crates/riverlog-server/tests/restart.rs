//! A broker that dies under `produce` and `consume`, and comes back.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Server, eventually, riverlog, signal, wait};

/// Starts a command against a broker that runs on.
fn start(server: &Server, args: &[&str]) -> Child {
    let mut all = vec!["-b", &server.kafka, "--timeout", "30s"];
    all.extend(args);
    riverlog(&all)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the broker, waits a moment, and starts it again where it was.
fn again(server: Server, data: &std::path::Path) -> Server {
    let at = server.kafka.clone();
    server.kill();
    std::thread::sleep(Duration::from_millis(300));
    Server::start_at(data, &at, &["--set", "group.initial.rebalance.delay.ms=0"])
}

#[test]
fn what_is_produced_across_kills_is_there_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "3"]);
    let args = [
        "produce",
        "t",
        "-K",
        ":",
        "--batch-size",
        "2KiB",
        "--linger",
        "1ms",
    ];
    let mut produce = start(&server, &args);
    let mut input = produce.stdin.take().unwrap();
    for round in 0..3 {
        for i in 0..2_000 {
            let i = round * 2_000 + i;
            if writeln!(input, "{}:{i}", i % 11).is_err() {
                drop(input);
                panic!("{:?}", produce.wait_with_output());
            }
        }
        // A first connection that fails would end it, as it should.
        assert!(eventually(|| !server
            .ok(&["consume", "t", "-e"])
            .is_empty()));
        server = again(server, folder.path());
    }
    drop(input);
    let output = produce.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("6000 records to t"), "{said}");
    let got = server.ok(&["consume", "t", "-e", "-f", "%k %s\\n"]);
    let mut last = BTreeMap::new();
    for line in got.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        let value: i32 = value.parse().unwrap();
        let before = last.insert(key.to_owned(), value);
        assert!(
            before.is_none_or(|before| before < value),
            "{line} after {before:?}"
        );
    }
    assert_eq!(got.lines().count(), 6_000);
    assert_eq!(server.stop().0, Some(0));
}

/// Reads what a command writes, line by line, on a thread of its own.
fn lines_of(child: &mut Child) -> std::sync::Arc<std::sync::Mutex<Vec<String>>> {
    let out = std::io::BufReader::new(child.stdout.take().unwrap());
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = lines.clone();
    std::thread::spawn(move || {
        for line in std::io::BufRead::lines(out).map_while(Result::ok) {
            kept.lock().unwrap().push(line);
        }
    });
    lines
}

#[test]
fn readers_go_on_where_they_were_when_the_broker_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(
        folder.path(),
        &["--set", "group.initial.rebalance.delay.ms=0"],
    );
    server.ok(&["topic", "create", "t", "-p", "2"]);
    let mut alone = start(&server, &["consume", "t"]);
    let mut member = start(
        &server,
        &["consume", "t", "--group", "g", "--from", "start"],
    );
    let (read_alone, read_in_group) = (lines_of(&mut alone), lines_of(&mut member));
    for round in 0..3 {
        let input: String = (0..200).map(|i| format!("{}\n", round * 200 + i)).collect();
        server.ok_with(&["produce", "t", "--batch-size", "100"], &input);
        let wanted = (round + 1) * 200;
        let all = |read: &std::sync::Mutex<Vec<String>>| {
            let read = read.lock().unwrap();
            (0..wanted).all(|i| read.contains(&i.to_string()))
        };
        assert!(
            eventually(|| all(&read_alone) && all(&read_in_group)),
            "round {round}"
        );
        server = again(server, folder.path());
    }
    // Without a group nothing is read twice: it goes on from its own place.
    assert_eq!(read_alone.lock().unwrap().len(), 600);
    for child in [&mut alone, &mut member] {
        signal(child, "INT");
        assert_eq!(wait(child), Some(130));
    }
    let rows = server.ok(&["group", "lag", "g", "-o", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let rows = rows["data"].as_array().unwrap();
    let lag = rows.iter().map(|row| row["lag"].as_i64().unwrap_or(-1));
    assert_eq!(lag.collect::<Vec<_>>(), [0, 0], "{rows:?}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_broker_that_stays_away_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    let consume = start(&server, &["consume", "t", "--reconnect", "1s"]);
    let mut produce = start(&server, &["produce", "t", "--delivery-timeout", "1s"]);
    // Both are connected and wait.
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    produce.stdin.take().unwrap().write_all(b"x\n").unwrap();
    for child in [consume, produce] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("trying again") && said.contains("can't be reached"),
            "{said}"
        );
    }
}

#[test]
fn members_share_by_the_cooperative_assignor_and_nothing_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &["--set", "group.initial.rebalance.delay.ms=0"],
    );
    server.ok(&["topic", "create", "t", "-p", "6"]);
    let args = ["consume", "t", "--group", "g", "-f", "%p %s\\n"];
    let mut members = vec![start(&server, &args)];
    let mut read = vec![lines_of(&mut members[0])];
    let mut sent = 0;
    let mut send = |upto: i32| {
        let more: String = (sent..upto).map(|i| format!("{i}:{i}\n")).collect();
        sent = upto;
        server.ok_with(&["produce", "t", "-K", ":"], &more);
    };
    for count in 1..=3 {
        send(count * 60);
        if count > 1 {
            members.push(start(&server, &args));
            let last = members.len() - 1;
            read.push(lines_of(&mut members[last]));
        }
        // Each member has its share.
        let share = 6 / count;
        assert!(eventually(|| {
            // At first there is no such group.
            let rows = server.run(&["group", "members", "g", "-o", "json"]).stdout;
            let rows: serde_json::Value = serde_json::from_slice(&rows).unwrap_or_default();
            let Some(rows) = rows["data"].as_array() else {
                return false;
            };
            rows.len() == count as usize && rows.iter().all(|row| row["partitions"] == share)
        }));
    }
    send(300);
    let all = || -> Vec<String> {
        let lines = read.iter().flat_map(|r| r.lock().unwrap().clone());
        lines
            .map(|l| l.split_once(' ').unwrap().1.to_owned())
            .collect()
    };
    assert!(eventually(|| {
        let all = all();
        (0..300).all(|i| all.contains(&i.to_string()))
    }));
    let described = server.ok(&["group", "describe", "g", "-o", "json"]);
    assert!(described.contains("cooperative-sticky"), "{described}");
    for child in &mut members {
        signal(child, "INT");
        assert_eq!(wait(child), Some(130));
    }
    assert_eq!(server.stop().0, Some(0));
}
