//! Damage on the disk: what the log, the metrics, `/readyz` and the commands say of it.

mod common;

use common::{Server, flip, http, run_with, segments};

/// The topic's id, as it names its folder.
fn id_of(server: &Server, topic: &str) -> String {
    let rows = server.ok(&["topic", "list", "--internal", "-o", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let rows = rows["data"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == topic).unwrap();
    row["id"].as_str().unwrap().to_owned()
}

#[test]
fn damage_is_told_to_the_operator_and_not_only_to_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    for i in 0..3 {
        server.ok_with(&["produce", "t"], &format!("{i}{}\n", "v".repeat(500)));
    }
    let id = id_of(&server, "t");
    assert_eq!(server.stop().0, Some(0));
    let segment = &segments(&folder.path().join(&id))[0];
    flip(segment, 100);

    let server = Server::start(folder.path(), &[]);
    for _ in 0..2 {
        let output = server.run(&["consume", "t", "-e"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("CORRUPT_MESSAGE"), "{said}");
    }
    // The damaged record takes no other along.
    let rest = server.ok(&["consume", "t", "--from", "1", "-e"]);
    assert_eq!(rest.lines().count(), 2);
    let (status, body) = http(&server.http, "/readyz?verbose", "localhost");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["ready"]), (200, &true.into()));
    let finding = &body["findings"][0];
    assert_eq!(
        (
            &finding["kind"],
            &finding["topic"],
            &finding["from"],
            &finding["to"]
        ),
        (&"damage".into(), &"t".into(), &0.into(), &1.into())
    );
    let metrics = http(&server.http, "/metrics", "localhost").1;
    assert!(
        metrics.contains("riverlog_damage_found_total 1.0"),
        "{metrics}"
    );
    assert!(metrics.contains("riverlog_damaged_ranges 1.0"), "{metrics}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("damaged: ")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in [
        "\"ERROR\"",
        "offsets 0 to 0 of t-0",
        &id,
        "topic trim t -p 0 --before 1",
    ] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }

    let path = segment.to_str().unwrap();
    let data = folder.path().to_str().unwrap();
    for args in [
        &["segment", "check", path][..],
        &["segment", "dump", path],
        &["segment", "dump", path, "--records"],
        &["doctor", "data", data],
    ] {
        let output = run_with(args, "");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        let all = [&output.stdout[..], &output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains("CRC"), "{args:?}: {all}");
    }
    std::fs::remove_file(segment).unwrap();
    for args in [&["segment", "check", data][..], &["doctor", "data", data]] {
        let output = run_with(args, "");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("the file is missing"), "{args:?}: {said}");
    }
}

#[test]
fn a_damaged_log_of_groups_hides_only_its_groups() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "offsets.topic.num.partitions=3"]);
    server.ok(&["topic", "create", "t"]);
    server.ok_with(&["produce", "t"], "a\n");
    let groups: Vec<String> = (0..8).map(|i| format!("g{i}")).collect();
    for group in &groups {
        server.ok(&["consume", "t", "--group", group, "-e"]);
    }
    let id = id_of(&server, "__consumer_offsets");
    assert_eq!(server.stop().0, Some(0));
    let segment = &segments(&folder.path().join(&id))[0];
    flip(segment, 70);

    let server = Server::start(folder.path(), &["--set", "offsets.topic.num.partitions=3"]);
    let listed = server.ok(&["group", "list", "-o", "name"]);
    let count = listed.lines().count();
    assert!(count > 0 && count < groups.len(), "{listed}");
    let body = http(&server.http, "/readyz?verbose", "localhost").1;
    assert!(body.contains("\"kind\":\"unavailable\""), "{body}");
    let (_, log) = server.stop();
    let partition = segment
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    let name = format!("what __consumer_offsets-{partition} keeps can't be served");
    assert_eq!(log.matches(&name).count(), 1, "{log}");
}

#[test]
fn an_accepted_loss_is_said_loudly() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    for i in 0..5 {
        server.ok_with(&["produce", "t"], &format!("some value {i}\n"));
    }
    server.kill();
    let wal = std::fs::read_dir(folder.path().join("wal")).unwrap();
    let hurt = wal
        .map(|entry| entry.unwrap().path())
        .find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(12).position(|w| w == b"some value 2")?;
            Some((path, at))
        })
        .expect("the record is in the write-ahead log");
    flip(&hurt.0, hurt.1);
    let data = folder.path().to_str().unwrap();
    let start = [
        "serve",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--http",
        "none",
    ];
    let refused = run_with(&start, "");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("accept-loss"),
        "{said}"
    );

    // Without consent `recover` says what is wrong and what to do, and changes nothing.
    let output = run_with(&["recover", data], "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("recover --accept-loss"), "{said}");
    let output = run_with(&["recover", data, "--accept-loss"], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");

    // With it, a start says it; the segments have all records here, so none is known to be lost.
    std::fs::write(folder.path().join("accept-loss"), "").unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_all(folder.path(), copy.path());
    let server = Server::start(copy.path(), &[]);
    assert_eq!(server.ok(&["consume", "t", "-e"]).lines().count(), 5);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    let loud = log
        .lines()
        .find(|l| l.contains("ACKNOWLEDGED RECORDS MAY BE LOST"));
    let loud = loud.unwrap_or_else(|| panic!("{log}"));
    assert!(loud.contains("bytes can't be read: places "), "{loud}");

    let output = run_with(
        &["recover", data, "--accept-loss", "--yes", "-o", "json"],
        "",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows["data"][0]["finding"], "loss");
    let detail = rows["data"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("bytes can't be read: places "), "{detail}");
    // Afterwards it is sound.
    let output = run_with(&["recover", data], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_all(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn recover_takes_data_folders_only() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_with(&["recover", folder.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
