//! TLS between nodes, made of nothing but the cluster key: `docs/protocol/quorum.md`.
//!
//! A key pair follows from the cluster key, so all nodes have it and nobody else has. Both sides of a connection show its public key as it is
//! (RFC 7250) and sign the handshake with it: there is no certificate that could expire, no authority and no name to check. The two signatures of a
//! handshake are over different words (RFC 8446, 4.4.3), so what one node has signed can't be handed to another as that one's own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hkdf::Hkdf;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The least that a key may have.
const KEY_BYTES: usize = 32;
/// Keys that a file may hold.
const KEYS: usize = 8;
/// What the key pair is derived for; another use of the cluster key takes other words.
const PURPOSE: &[u8] = b"riverlog: key pair of TLS between nodes, 1";
/// A private Ed25519 key in PKCS #8 as far as its 32 bytes (RFC 8410, 7).
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// Says within the handshake that a node speaks, and no client of Kafka (ALPN, RFC 7301).
const PROTOCOL: &[u8] = b"riverlog-peer";
/// Bytes read from the socket at once: rustls asks for a quarter of a record.
const READ_AHEAD: usize = 16 << 10;
/// How long a side that was told why it is turned away may take to read it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A fatal alert, `handshake_failure`, before any key is agreed on: what a port without TLS says to who tries it (RFC 8446, 6.2).
const NO_TLS: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28];

/// Bytes that hold no cluster key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum NoKey {
    #[error("it is empty")]
    Empty,
    #[error(
        "the key in line {line} has {len} bytes, and a key has at least {KEY_BYTES}; each line is a key of its own"
    )]
    Short { line: usize, len: usize },
    #[error("it has more than {KEYS} lines, each of which is a key of its own")]
    Many,
    #[error("no key pair can be made of it: {0}")]
    Unusable(rustls::Error),
}

/// How this node speaks TLS to others.
#[derive(Clone)]
pub(crate) struct Tls {
    dials: TlsConnector,
    accepts: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

impl Tls {
    /// - `file`: what a key file holds. Each line of text is a key: this node shows that it has the first, and takes others for nodes that show
    ///   any of them. Bytes that are no text are one key.
    pub(crate) fn new(file: &[u8]) -> Result<Tls, NoKey> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut pairs = Vec::new();
        for key in keys(file)? {
            pairs.push(key_pair(key, &provider).map_err(NoKey::Unusable)?);
        }
        Tls::of(pairs, provider).map_err(NoKey::Unusable)
    }

    fn of(
        pairs: Vec<Arc<CertifiedKey>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Tls, rustls::Error> {
        let own = pairs.first().cloned();
        let own = own.ok_or(rustls::Error::NoCertificatesPresented)?;
        let known = Arc::new(Known {
            keys: pairs.iter().flat_map(|pair| pair.cert.clone()).collect(),
            algorithms: provider.signature_verification_algorithms,
        });
        let mut dials = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&known) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&own),
            )));
        let mut accepts = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(known)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        dials.alpn_protocols = vec![PROTOCOL.to_vec()];
        dials.enable_sni = false;
        // Each connection proves the key: one that was taken back ends with the process that knew it.
        dials.resumption = Resumption::disabled();
        accepts.alpn_protocols = vec![PROTOCOL.to_vec()];
        accepts.session_storage = Arc::new(NoServerSessionStorage {});
        accepts.send_tls13_tickets = 0;
        Ok(Tls {
            dials: TlsConnector::from(Arc::new(dials)),
            accepts: TlsAcceptor::from(Arc::new(accepts)),
        })
    }

    /// The side that has opened the connection.
    pub(super) async fn dial<S>(&self, stream: S) -> io::Result<client::TlsStream<BufReader<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // Nobody looks at it: nodes are known by the key.
        let name = ServerName::from(std::net::Ipv4Addr::UNSPECIFIED);
        let stream = BufReader::with_capacity(READ_AHEAD, stream);
        match self.dials.connect(name, stream).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, mut stream)) => {
                let_it_read(&mut stream).await;
                Err(error)
            }
        }
    }

    /// The side to which it was opened.
    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<server::TlsStream<BufReader<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = BufReader::with_capacity(READ_AHEAD, stream);
        match self.accepts.accept(stream).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, mut stream)) => {
                let_it_read(&mut stream).await;
                Err(error)
            }
        }
    }
}

/// Turns away who begins TLS at a port without it, in words that any TLS client knows.
pub(crate) async fn refuse(mut read: impl AsyncRead + Unpin, mut write: impl AsyncWrite + Unpin) {
    let refused = write.write_all(&NO_TLS).await;
    if refused.is_ok() && write.shutdown().await.is_ok() {
        let_it_read(&mut read).await;
    }
}

/// Waits until the other side has taken the alert that tells it why: closing with bytes unread would take the alert back (RFC 9293, 3.10.7.4).
async fn let_it_read(read: &mut (impl AsyncRead + Unpin)) {
    let reading = async {
        let mut unread = [0; 1 << 10];
        while matches!(read.read(&mut unread).await, Ok(len) if len > 0) {}
    };
    // Whether it has read it is its own affair.
    let _ = tokio::time::timeout(LAST_WORDS, reading).await;
}

/// The keys in a file.
fn keys(file: &[u8]) -> Result<Vec<&[u8]>, NoKey> {
    let lines = match std::str::from_utf8(file) {
        Ok(text) => text
            .lines()
            .map(|line| line.trim_ascii().as_bytes())
            .collect(),
        // A line feed among random bytes means nothing.
        Err(_) => vec![file.trim_ascii()],
    };
    let keys = lines
        .into_iter()
        .zip(1..)
        .filter(|(key, _)| !key.is_empty());
    let mut out = Vec::new();
    for (key, line) in keys {
        if key.len() < KEY_BYTES {
            let len = key.len();
            return Err(NoKey::Short { line, len });
        }
        if out.len() == KEYS {
            return Err(NoKey::Many);
        }
        out.push(key);
    }
    match out.is_empty() {
        true => Err(NoKey::Empty),
        false => Ok(out),
    }
}

/// The key pair that follows from a key: Ed25519, of 32 bytes by HKDF-SHA-256 without salt (RFC 5869).
fn key_pair(key: &[u8], provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let mut private = PKCS8.to_vec();
    let mut seed = [0; 32];
    let derived = Hkdf::<Sha256>::new(None, key).expand(PURPOSE, &mut seed);
    derived.map_err(|error| rustls::Error::General(error.to_string()))?;
    private.extend(seed);
    let private = PrivatePkcs8KeyDer::from(private);
    let pair = provider.key_provider.load_private_key(private.into())?;
    let public = pair.public_key().ok_or(rustls::Error::General(
        "the private key doesn't tell the public one".to_owned(),
    ))?;
    let public = CertificateDer::from(public.to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], pair)))
}

/// The public keys by which nodes of this cluster are known.
#[derive(Debug)]
struct Known {
    keys: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Known {
    fn is_known(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match self.keys.iter().any(|key| key == shown) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn is_signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let shown = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &shown, signed, &self.algorithms)
    }
}

/// There is no TLS 1.2 here.
fn too_old() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.is_known(shown)
            .map(|()| ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        too_old()
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.is_signed(message, shown, signed)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Known {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.is_known(shown)
            .map(|()| ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        too_old()
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.is_signed(message, shown, signed)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
