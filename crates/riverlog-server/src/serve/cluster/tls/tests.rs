use super::*;

fn public(key: &[u8]) -> Vec<u8> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let pair = key_pair(key, &provider).unwrap();
    pair.cert[0].to_vec()
}

#[test]
fn the_golden_public_key_of_a_cluster_key() {
    let hex: String = public(&[b'k'; 40])
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    // Nodes of two releases know each other only while this stays.
    assert_eq!(
        hex,
        "302a300506032b6570032100faae9f776c3a3fe65841111f34d09579d3903ae59074d1367ed66e1313bdae79"
    );
    assert_ne!(public(&[b'k'; 40]), public(&[b'k'; 41]));
}

#[test]
fn lines_of_a_file_are_keys_and_bytes_that_are_no_text_are_one() {
    let (a, b) = ("a".repeat(32), "b".repeat(44));
    let both = format!("\n {a} \r\n\n{b}\n");
    assert_eq!(keys(both.as_bytes()), Ok(vec![a.as_bytes(), b.as_bytes()]));
    let bytes = [[0xff; 20], [b'\n'; 20], [0xfe; 20]].concat();
    assert_eq!(keys(&bytes), Ok(vec![bytes.as_slice()]));
}

#[test]
fn a_file_without_a_key_is_said_to_be_so() {
    assert_eq!(keys(b" \n\n").unwrap_err(), NoKey::Empty);
    let wrapped = format!("{}\ntail\n", "a".repeat(76));
    let short = keys(wrapped.as_bytes()).unwrap_err();
    assert_eq!(short, NoKey::Short { line: 2, len: 4 });
    assert!(!short.to_string().contains("tail"));
    let many = "a".repeat(32) + "\n";
    assert!(keys(many.repeat(KEYS).as_bytes()).is_ok());
    assert_eq!(keys(many.repeat(KEYS + 1).as_bytes()), Err(NoKey::Many));
    assert!(matches!(Tls::new(&[0xff; 31]), Err(NoKey::Short { .. })));
}

#[test]
fn no_key_is_in_what_is_printed_of_it() {
    let tls = Tls::new(&[b'k'; 40]).unwrap();
    assert!(!format!("{tls:?}").contains('k'));
}

/// What a side of TLS makes of bytes that aren't TLS.
async fn told(garbage: &[u8]) -> (io::Error, Vec<u8>) {
    let tls = Tls::new(&[b'k'; 40]).unwrap();
    let (mut near, far) = tokio::io::duplex(1 << 10);
    let says = async {
        // It may be turned away before it has said everything.
        let _ = near.write_all(garbage).await;
        let _ = near.shutdown().await;
        let mut heard = Vec::new();
        near.read_to_end(&mut heard).await.unwrap();
        heard
    };
    let hears = async { tls.accept(far).await.err().unwrap() };
    let (error, heard) = tokio::join!(hears, says);
    (error, heard)
}

#[tokio::test]
async fn garbage_ends_with_an_alert_and_without_a_panic() {
    let hello = [0x16, 3, 1, 0x02, 0, 1, 0, 1, 0xfc, 3, 3];
    let endless = [&hello[..], &[0x55; 4_000]].concat();
    let (error, heard) = told(&endless).await;
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert_eq!(heard.first(), Some(&0x15), "no alert: {heard:?}");
    // A handshake message of 16 MiB is announced, and nobody waits for it.
    let records = [
        &[0x16, 3, 3, 0x40, 0][..],
        &[1, 0xff, 0xff, 0xff],
        &[0; 16_380],
    ]
    .concat();
    let (error, _) = told(&records.repeat(8)).await;
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    // Cut off anywhere.
    for cut in 0..hello.len() {
        let (error, _) = told(&hello[..cut]).await;
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }
}
