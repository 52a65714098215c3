//! What somebody between the nodes sees, and strangers who speak TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;

use crate::common::{Server, eventually, http};
use crate::trio::{agree, create, has_topic, members, partitions_at, places, produce};

/// How long a connection may take to be ended; a server's own patience with strangers is shorter.
const PATIENCE: Duration = Duration::from_secs(40);

/// Passes connections on, and keeps what goes either way.
struct Relay {
    place: String,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    fn before(to: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, to) = (Arc::clone(&seen), to.to_owned());
        // Ends with the process of the tests.
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // A server that isn't there yet: whoever has connected tries again.
                let Ok(far) = TcpStream::connect(&to) else {
                    continue;
                };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                for (from, to) in [(near, far), (far_too, near_too)] {
                    let kept = Arc::clone(&kept);
                    thread::spawn(move || pass(from, to, &kept));
                }
            }
        });
        Relay { place, seen }
    }

    fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    fn has_seen(&self, bytes: &[u8]) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.windows(bytes.len()).any(|window| window == bytes)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        kept.lock().unwrap().extend(&bytes[..len]);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    // Gone already is ended too.
    let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
}

/// A file of keys, one for each letter.
fn key(folder: &Path, letters: &str) -> String {
    let path = folder.join(format!("{letters}.key"));
    let lines: Vec<String> = letters.chars().map(|c| c.to_string().repeat(40)).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Three nodes that reach each other through relays only.
struct Relayed {
    folder: TempDir,
    relays: Vec<Relay>,
    places: Vec<String>,
    nodes: Vec<Server>,
}

fn relayed(with_key: bool) -> Relayed {
    let folder = tempfile::tempdir().unwrap();
    let places = places(3);
    let relays: Vec<Relay> = places.iter().map(|place| Relay::before(place)).collect();
    let seeds: Vec<&str> = relays.iter().map(|relay| relay.place.as_str()).collect();
    let seeds = seeds.join(",");
    let key = key(folder.path(), "a");
    let node = |id: usize| {
        let number = id.to_string();
        let told = format!("advertised.listeners=PLAINTEXT://{}", relays[id - 1].place);
        let mut more = vec!["--node-id", &number, "--seeds", &seeds, "--set", &told];
        if with_key {
            more.extend(["--cluster-key", &key]);
        }
        Server::start_at(&folder.path().join(&number), &places[id - 1], &more)
    };
    let nodes: Vec<Server> = (1..=3).map(node).collect();
    agree(&nodes.iter().collect::<Vec<_>>());
    Relayed {
        folder,
        relays,
        places,
        nodes,
    }
}

/// How much has gone through the relays.
fn passed(cluster: &Relayed) -> usize {
    let seen = cluster
        .relays
        .iter()
        .map(|relay| relay.seen.lock().unwrap().len());
    seen.sum()
}

#[test]
fn nobody_between_nodes_reads_what_they_say_once_they_have_a_key() {
    // Without a key it is there to be read: else this test would find nothing whatever nodes did.
    for with_key in [false, true] {
        let cluster = relayed(with_key);
        create(&cluster.nodes[0], "t", "3");
        let mut partitions = Vec::new();
        assert!(eventually(|| {
            partitions = partitions_at(&cluster.places[0], "t").unwrap_or_default();
            !partitions.is_empty()
                && partitions
                    .iter()
                    .all(|p| p.leader_id > 0 && p.isr_nodes.len() == 3)
        }));
        let leader = partitions.iter().find(|p| p.partition_index == 0).unwrap();
        let leader = usize::try_from(leader.leader_id).unwrap() - 1;
        let any_has_seen = |words: &str| {
            let mut relays = cluster.relays.iter();
            relays.any(|relay| relay.has_seen(words.as_bytes()))
        };
        cluster.relays.iter().for_each(Relay::forget);

        // Copied from the leader: all in sync have it when it is acknowledged.
        let copied = "a record that is copied";
        let send = || produce(&cluster.places[leader], "t", 0, &[copied.to_owned()]);
        assert!(eventually(|| send().is_some()));
        assert_eq!(any_has_seen(copied), !with_key);
        assert!(passed(&cluster) > copied.len());

        // Fetched for a door from the node that has it.
        cluster.relays.iter().for_each(Relay::forget);
        let other = &cluster.nodes[(leader + 1) % 3].http;
        let path = "/v1/topics/t/partitions/0?offset=start&limit=100";
        let (status, body) = http(other, path, "localhost");
        assert_eq!(status, 200, "{body}");
        assert!(body.contains(copied), "{body}");
        assert_eq!(any_has_seen(copied), !with_key);
        assert!(passed(&cluster) > copied.len());
        drop(cluster.nodes);
        drop(cluster.folder);
    }
}

#[test]
fn a_key_is_changed_node_by_node_while_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(3);
    let start = |id: usize, letters: &str| {
        let (number, seeds) = (id.to_string(), places.join(","));
        let key = key(folder.path(), letters);
        let more = [
            "--node-id",
            &number,
            "--seeds",
            &seeds,
            "--cluster-key",
            &key,
        ];
        Server::start_at(&folder.path().join(&number), &places[id - 1], &more)
    };
    let mut nodes: Vec<Option<Server>> = (1..=3).map(|id| Some(start(id, "a"))).collect();
    agree(&nodes.iter().flatten().collect::<Vec<_>>());
    create(nodes[0].as_ref().unwrap(), "t", "3");
    for letters in ["ab", "ba", "b"] {
        for id in 1..=3 {
            let (code, log) = nodes[id - 1].take().unwrap().stop();
            assert_eq!(code, Some(0), "{log}");
            assert!(!log.contains("turned away"), "{letters}: {log}");
            nodes[id - 1] = Some(start(id, letters));
            let all: Vec<&Server> = nodes.iter().flatten().collect();
            agree(&all);
            let all_in_sync = |place: &String| {
                let partitions = partitions_at(place, "t").unwrap_or_default();
                !partitions.is_empty() && partitions.iter().all(|p| p.isr_nodes.len() == 3)
            };
            assert!(eventually(|| places.iter().all(all_in_sync)));
        }
    }
    // The old key is worth nothing any more.
    let last = nodes[2].take().unwrap();
    assert_eq!(last.stop().0, Some(0));
    let old = start(3, "a");
    assert!(eventually(|| old.has_said("--cluster-key")));
    assert!(eventually(|| {
        let node = nodes[0].as_ref().unwrap();
        let partitions = partitions_at(&node.kafka, "t").unwrap_or_default();
        !partitions.is_empty() && partitions.iter().all(|p| !p.isr_nodes.contains(&3))
    }));
}

/// Begins TLS as any client does; how it ended.
fn tls(place: &str) -> io::Error {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    session.complete_io(&mut stream).unwrap_err()
}

/// Says something, and hears what comes until the connection is ended.
fn say(place: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it wasn't ended"),
        // A reset is an end too.
        _ => heard,
    }
}

#[test]
fn a_client_that_speaks_tls_is_told_that_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let place = places(1).remove(0);
    let alone = Server::start(&folder.path().join("alone"), &[]);
    let member = Server::start_at(&folder.path().join("1"), &place, &["--seeds", &place]);
    for server in [alone, member] {
        let error = tls(&server.kafka).to_string();
        assert!(error.contains("HandshakeFailure"), "{error}");
        server.ok(&["topic", "list"]);
        let (code, log) = server.stop();
        assert_eq!(code, Some(0));
        assert!(log.contains("security.protocol=PLAINTEXT"), "{log}");
    }
}

#[test]
fn strangers_at_the_door_of_nodes_with_a_key_are_ended_and_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let place = places(1).remove(0);
    let key = key(folder.path(), "a");
    let more = ["--seeds", &place, "--cluster-key", &key];
    let server = Server::start_at(&folder.path().join("1"), &place, &more);
    assert!(eventually(|| members(&server).len() == 1));

    // A client of Kafka that was told to use TLS: it shows no key of a node.
    let error = tls(&place).to_string();
    assert!(error.contains("received fatal alert"), "{error}");
    // What begins as TLS and isn't.
    let garbage = [
        &[0x16, 3, 1, 0x02, 0, 1, 0, 1, 0xfc, 3, 3][..],
        &[0x55; 4_000],
    ]
    .concat();
    assert_eq!(say(&place, &garbage).first(), Some(&0x15));
    // A hello in the clear that says of itself that it has the key: version, node, address, disk, formed, cluster id, epoch, key, zeros, tags.
    let hello = [
        &[0, 1, 0, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0][..],
        &[0xff; 8],
        &[1],
        &[0; 17],
    ]
    .concat();
    let len = u16::try_from(hello.len()).unwrap().to_be_bytes();
    let hello = [b"\xf2RLPEER\x01".as_slice(), &len, &hello].concat();
    assert_eq!(say(&place, &hello), [3]);
    // Begins, and says no more.
    let stalls = |_| {
        let place = place.clone();
        thread::spawn(move || say(&place, &[0x16, 3, 1, 0x40, 0, 1, 0]))
    };
    let stalled: Vec<_> = (0..20).map(stalls).collect();
    for one in stalled {
        one.join().unwrap();
    }

    create(&server, "t", "1");
    assert!(has_topic(&server, "t"));
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    for words in [
        "security.protocol=PLAINTEXT",
        "give all nodes the same --cluster-key",
        "in time",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(!log.contains("aaaaaaaa"), "a key is in the log");
    assert!(log.matches("turned away").count() <= 5, "{log}");
}
