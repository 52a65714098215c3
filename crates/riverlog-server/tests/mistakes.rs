//! Common mistakes: what is said about them, and the exit code. The cases are in `mistakes.golden`; to write it anew:
//! `UPDATE_GOLDEN=1 cargo test -p riverlog-server --test mistakes`.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use common::{Server, run_with};

/// A port where something else than Kafka answers.
fn foreign(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                // The client may be gone already.
                let _ = stream.read(&mut buffer);
                if answer.is_empty() {
                    std::thread::sleep(std::time::Duration::from_secs(5));
                }
                let _ = stream.write_all(answer);
            });
        }
    });
    at
}

/// Splits a line at blanks, but within single quotes.
fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            out.push(part.to_owned());
        } else {
            out.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    out
}

#[test]
fn mistakes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    server.ok(&["topic", "create", "orders", "-p", "2"]);
    server.ok(&["topic", "create", "payments", "-p", "1"]);
    server.ok_with(&["produce", "payments"], "a\nb\nc\n");
    server.ok(&["consume", "payments", "-e", "--group", "billing"]);
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let places = [
        ("$BROKER", server.kafka.clone()),
        ("$HTTP", server.http.clone()),
        ("$TLS", foreign(&[0x15, 3, 1, 0, 2, 2, 0x28])),
        ("$SSH", foreign(b"SSH-2.0-OpenSSH_9.2\r\n")),
        ("$SILENT", foreign(b"")),
        ("$CLOSED", closed),
        (
            "$BAD_PROPERTIES",
            file(
                "bad.properties",
                "num.partitons=3\nnode.id=x\nlog.retention.ms=-5\nlisteners=SSL://127.0.0.1:1\n",
            ),
        ),
        ("$BAD_TOML", file("bad.toml", "num.partitions = \n")),
        (
            "$GARBAGE",
            file(
                "00000000000000000000.log",
                "this is no batch at all, only words that go on for a while........",
            ),
        ),
        ("$FILE", file("plain", "")),
        ("$DATA", data.to_str().unwrap().to_owned()),
        ("$DIR", folder.path().to_str().unwrap().to_owned()),
    ];
    let large = format!("small\n{}\n", "x".repeat(1_100_000));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes.golden");
    let text = std::fs::read_to_string(&golden).unwrap();
    let mut got = String::new();
    let mut cases = 0;
    for line in text.lines() {
        let Some(command) = line.strip_prefix("$ ") else {
            if line.starts_with('#') {
                got += &format!("{line}\n\n");
            }
            continue;
        };
        cases += 1;
        let (command_line, input) = command.split_once(" <<< ").unwrap_or((command, ""));
        let input = input.replace("$LARGE", &large);
        let mut args = words(command_line.strip_prefix("riverlog").unwrap());
        for arg in &mut args {
            for (name, value) in &places {
                *arg = arg.replace(name, value);
            }
        }
        if !args.iter().any(|a| a == "-b" || a == "serve" || a == "dev") {
            args.splice(..0, ["-b".to_owned(), server.kafka.clone()]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = run_with(&args, &input);
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        if args.contains(&"connect") || args.contains(&"check") {
            said = format!("{}{said}", String::from_utf8_lossy(&output.stdout));
        }
        for (name, value) in &places {
            said = said.replace(value.as_str(), name);
        }
        assert!(!said.contains("panicked"), "{command}: {said}");
        let code = output.status.code().unwrap();
        let said: String = said
            .lines()
            .map(|l| format!("{}\n", l.trim_end()))
            .collect();
        got += &format!("$ {command}\n{said}[{code}]\n\n");
    }
    assert!(cases >= 40, "{cases} cases");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, got).unwrap();
    } else {
        assert!(
            got == text,
            "what is said has changed; see above for how to write the file anew:\n{}",
            difference(&text, &got)
        );
    }
    assert_eq!(server.stop().0, Some(0));
}

/// The first lines that differ.
fn difference(want: &str, got: &str) -> String {
    let pairs = want.lines().zip(got.lines()).enumerate();
    pairs
        .filter(|(_, (a, b))| a != b)
        .take(5)
        .map(|(n, (a, b))| format!("line {}:\n  want {a}\n  got  {b}\n", n + 1))
        .collect()
}
