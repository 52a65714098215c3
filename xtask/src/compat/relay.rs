//! A relay before a broker that counts the requests which pass, by client, API key and version.
//!
//! It is the broker's advertised address, so that clients come back to it after their bootstrap. It copies bytes
//! both ways and looks at nothing but the length, key and version of each request.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::broker::address;

/// How often each (client, API key, version) was seen.
pub(super) type Requests = BTreeMap<(String, i16, i16), u64>;

#[derive(Default)]
struct Counts {
    label: String,
    requests: Requests,
}

pub(super) struct Relay {
    port: u16,
    counts: Arc<Mutex<Counts>>,
}

/// More than any client sends; what announces more is no Kafka request and is passed on unseen.
const MOST_BYTES: i32 = 256 << 20;

impl Relay {
    /// Listens on a free port and connects each client to the broker at `upstream`, which need not run yet.
    /// Its threads end with this process.
    pub(super) fn start(upstream: u16) -> Result<Self> {
        let listener = TcpListener::bind(address(0))?;
        let port = listener.local_addr()?.port();
        let counts = Arc::new(Mutex::new(Counts::default()));
        let shared = Arc::clone(&counts);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let counts = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // A connection that breaks is the client's and the broker's affair.
                    let _ = connect(&client, upstream, &counts);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(Self { port, counts })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Counts the connections made from now on under this name.
    pub(super) fn label(&self, name: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        name.clone_into(&mut counts.label);
    }

    pub(super) fn requests(&self) -> Requests {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.requests.clone()
    }
}

fn connect(client: &TcpStream, upstream: u16, counts: &Mutex<Counts>) -> io::Result<()> {
    let broker = TcpStream::connect(address(upstream))?;
    for socket in [client, &broker] {
        socket.set_nodelay(true)?;
    }
    let label = counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .label
        .clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &broker, &mut &*client);
            // The broker hung up: the client must see that, and its half must end too.
            let _ = client.shutdown(Shutdown::Both);
        });
        let sent = requests(&mut &*client, &mut &broker, |key, version| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts
                .requests
                .entry((label.clone(), key, version))
                .or_default() += 1;
        });
        let _ = broker.shutdown(Shutdown::Write);
        sent
    })
}

/// Copies requests from `from` to `to`, telling `seen` the key and version of each.
fn requests(
    from: &mut impl Read,
    to: &mut impl Write,
    mut seen: impl FnMut(i16, i16),
) -> io::Result<()> {
    loop {
        let mut head = [0; 8];
        match from.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
        to.write_all(&head)?;
        let [l0, l1, l2, l3, k0, k1, v0, v1] = head;
        let length = i32::from_be_bytes([l0, l1, l2, l3]);
        if !(4..MOST_BYTES).contains(&length) {
            io::copy(from, to)?;
            return Ok(());
        }
        seen(i16::from_be_bytes([k0, k1]), i16::from_be_bytes([v0, v1]));
        let rest = u64::from(length.unsigned_abs()) - 4;
        io::copy(&mut from.by_ref().take(rest), to)?;
    }
}

/// Kafka's name of an API.
pub(super) fn api_name(key: i16) -> String {
    let name = match key {
        0 => "Produce",
        1 => "Fetch",
        2 => "ListOffsets",
        3 => "Metadata",
        8 => "OffsetCommit",
        9 => "OffsetFetch",
        10 => "FindCoordinator",
        11 => "JoinGroup",
        12 => "Heartbeat",
        13 => "LeaveGroup",
        14 => "SyncGroup",
        15 => "DescribeGroups",
        16 => "ListGroups",
        17 => "SaslHandshake",
        18 => "ApiVersions",
        19 => "CreateTopics",
        20 => "DeleteTopics",
        21 => "DeleteRecords",
        22 => "InitProducerId",
        23 => "OffsetForLeaderEpoch",
        24 => "AddPartitionsToTxn",
        25 => "AddOffsetsToTxn",
        26 => "EndTxn",
        27 => "WriteTxnMarkers",
        28 => "TxnOffsetCommit",
        29 => "DescribeAcls",
        30 => "CreateAcls",
        31 => "DeleteAcls",
        32 => "DescribeConfigs",
        33 => "AlterConfigs",
        35 => "DescribeLogDirs",
        36 => "SaslAuthenticate",
        37 => "CreatePartitions",
        42 => "DeleteGroups",
        44 => "IncrementalAlterConfigs",
        45 => "AlterPartitionReassignments",
        46 => "ListPartitionReassignments",
        47 => "OffsetDelete",
        48 => "DescribeClientQuotas",
        49 => "AlterClientQuotas",
        55 => "DescribeQuorum",
        57 => "UpdateFeatures",
        60 => "DescribeCluster",
        61 => "DescribeProducers",
        65 => "DescribeTransactions",
        66 => "ListTransactions",
        68 => "ConsumerGroupHeartbeat",
        69 => "ConsumerGroupDescribe",
        71 => "GetTelemetrySubscriptions",
        72 => "PushTelemetry",
        74 => "ListConfigResources",
        75 => "DescribeTopicPartitions",
        _ => return format!("api {key}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of `body` bytes after key and version.
    fn request(key: i16, version: i16, body: usize) -> Vec<u8> {
        let mut bytes = (4 + body as i32).to_be_bytes().to_vec();
        bytes.extend(key.to_be_bytes());
        bytes.extend(version.to_be_bytes());
        bytes.extend(std::iter::repeat_n(7, body));
        bytes
    }

    #[test]
    fn requests_are_counted_and_pass_unchanged() {
        let sent = [request(18, 3, 20), request(0, 9, 0), request(18, 3, 1)].concat();
        let mut passed = Vec::new();
        let mut seen = Vec::new();
        requests(&mut sent.as_slice(), &mut passed, |k, v| seen.push((k, v))).unwrap();
        assert_eq!(passed, sent);
        assert_eq!(seen, [(18, 3), (0, 9), (18, 3)]);
    }

    #[test]
    fn what_is_no_request_passes_uncounted() {
        let sent = b"GET / HTTP/1.1\r\n\r\n";
        let mut passed = Vec::new();
        requests(&mut sent.as_slice(), &mut passed, |_, _| panic!("counted")).unwrap();
        assert_eq!(passed, sent);
    }

    #[test]
    fn a_client_talks_through_the_relay_and_is_counted_under_its_name() {
        let broker = TcpListener::bind(address(0)).unwrap();
        let relay = Relay::start(broker.local_addr().unwrap().port()).unwrap();
        relay.label("someone");
        let mut client = TcpStream::connect(address(relay.port())).unwrap();
        client.write_all(&request(3, 12, 5)).unwrap();
        let (mut socket, _) = broker.accept().unwrap();
        let mut bytes = [0; 13];
        socket.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..], request(3, 12, 5));
        socket.write_all(b"answer").unwrap();
        drop(socket);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        let expected = [(("someone".to_owned(), 3, 12), 1)];
        assert_eq!(relay.requests(), expected.into());
    }
}
