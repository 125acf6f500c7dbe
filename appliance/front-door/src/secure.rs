//! TLS with the programs that ask for it by `httpsPorts`.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sandboxo_zone_protocol::ByteStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::refusal::Failure;

/// A program that waits for more than a hello is one that waits for another protocol.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Greeter(TlsConnector);

impl Greeter {
    #[expect(clippy::expect_used, reason = "ring has the versions that rustls holds to be safe")]
    pub(crate) fn new() -> Self {
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(TlsConnector::from(Arc::new(config)))
    }

    pub(crate) async fn greet(
        &self,
        stream: Box<dyn ByteStream>,
    ) -> Result<Box<dyn ByteStream>, Failure> {
        // Whom the agent dials; servers that choose a certificate by the name have one for it.
        let Ok(name) = ServerName::try_from("localhost") else { return Err(Failure::NotTls) };
        match timeout(PATIENCE, self.0.connect(name, stream)).await {
            Ok(Ok(secure)) => Ok(Box::new(secure)),
            Ok(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "TLS with a program");
                Err(Failure::NotTls)
            }
            Err(_silent) => Err(Failure::NotTls),
        }
    }
}

/// Believes every certificate. The way to a program is the agent channel, which is the host's own
/// and which nobody else is on: a certificate proves nothing here that the channel does not. It is
/// the program that insists on TLS, most often with one that it has signed itself.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
